// Words of 32 bits, and numbers of 16 bits, two to a word: twice as many lanes. What exceeds 16 bits is 65535.
#pragma once
#include "../simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

typedef int32_t Words __attribute__((vector_size(kBytes)));
typedef uint32_t Naturals __attribute__((vector_size(kBytes)));
typedef uint16_t Shorts __attribute__((vector_size(kBytes)));
constexpr int kWords = kBytes / 4, kWide = 2 * kWords;

// Any memory.
INLINE Words load_words(const void* from) {
    typedef int32_t Loose __attribute__((vector_size(kBytes), aligned(1), may_alias));
    return *static_cast<const Loose*>(from);
}
template <class X> INLINE void store_words(void* to, X words) {
    typedef int32_t Loose __attribute__((vector_size(kBytes), aligned(1), may_alias));
    *static_cast<Loose*>(to) = (Words)words;
}
INLINE Words splat_word(int32_t word) { return Words{} + word; }
INLINE Shorts splat_short(uint16_t number) { return Shorts{} + number; }

// Of the words of two vectors, the place among as many numbers of 16 bits. Processors pack and unpack 16 bytes at a time.
constexpr int place_of(int half, int word) { return word / 4 * 8 + half * 4 + word % 4; }

// Words that are not negative as numbers of 16 bits.
INLINE Shorts pack(Words first, Words second) {
#if defined(__AVX512F__)
    return (Shorts)_mm512_packus_epi32((__m512i)first, (__m512i)second);
#elif defined(__AVX2__)
    return (Shorts)_mm256_packus_epi32((__m256i)first, (__m256i)second);
#else
    Shorts result;
    for (int i = 0; i < kWords; ++i) {
        result[place_of(0, i)] = uint16_t(min(first[i], 65535));
        result[place_of(1, i)] = uint16_t(min(second[i], 65535));
    }
    return result;
#endif
}
// A number of a in the lower, one of b in the upper half of each word.
template <int kHalf> INLINE Words unpack(Shorts a, Shorts b) {
#if defined(__AVX512F__)
    return (Words)(kHalf ? _mm512_unpackhi_epi16((__m512i)a, (__m512i)b) : _mm512_unpacklo_epi16((__m512i)a, (__m512i)b));
#elif defined(__AVX2__)
    return (Words)(kHalf ? _mm256_unpackhi_epi16((__m256i)a, (__m256i)b) : _mm256_unpacklo_epi16((__m256i)a, (__m256i)b));
#else
    Words result;
    for (int i = 0; i < kWords; ++i) result[i] = int32_t(a[place_of(kHalf, i)] | uint32_t(b[place_of(kHalf, i)]) << 16);
    return result;
#endif
}
INLINE Shorts least(Shorts a, Shorts b) {
#if defined(__AVX512F__)
    return (Shorts)_mm512_min_epu16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Shorts)_mm256_min_epu16((__m256i)a, (__m256i)b);
#else
    return a < b ? a : b;
#endif
}
INLINE Shorts add(Shorts a, Shorts b) {
#if defined(__AVX512F__)
    return (Shorts)_mm512_adds_epu16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Shorts)_mm256_adds_epu16((__m256i)a, (__m256i)b);
#else
    const Shorts sum = a + b;
    return sum | (Shorts)(sum < a);
#endif
}
// Bit l: lane l is at most the limit.
INLINE uint32_t at_most(Shorts a, uint16_t limit) {
#if defined(__AVX512F__)
    return _mm512_cmple_epu16_mask((__m512i)a, (__m512i)splat_short(limit));
#else
    uint32_t bits = 0;
    for (int l = 0; l < kWide; ++l) bits |= uint32_t(a[l] <= limit) << l;
    return bits;
#endif
}
// sum + the products of both signed numbers of each word. kFused: the processor has one instruction for this.
template <bool kFused> INLINE Words add_products(Words sum, Words a, Words b) {
#if defined(__AVX512F__)
    if (kFused) {
        asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
        return sum;
    }
    return sum + (Words)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (Words)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return sum + (Words)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
inline bool has_fused_products() {
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

// Of a and b by turns, `count` words each time, within 16 bytes: from the first half of these, or the second.
template <int kCount, int kHalf> INLINE Words zip(Words a, Words b) {
#if defined(__clang__)
    Words result;
    for (int l = 0; l < kWords; ++l) result[l] = (l / kCount % 2 ? b : a)[l / 4 * 4 + kHalf * 2 + l % 4 / (2 * kCount) * kCount + l % kCount];
    return result;
#else
    const Words l = counting<float>();
    return __builtin_shuffle(a, b, l / 4 * 4 + kHalf * 2 + l % 4 / (2 * kCount) * kCount + l % kCount + l / kCount % 2 * kWords);
#endif
}
// The transpose of each square of 16 bytes by four vectors.
INLINE void transpose(Words (&rows)[4]) {
    const Words a = zip<1, 0>(rows[0], rows[1]), b = zip<1, 1>(rows[0], rows[1]);
    const Words c = zip<1, 0>(rows[2], rows[3]), d = zip<1, 1>(rows[2], rows[3]);
    rows[0] = zip<2, 0>(a, c), rows[1] = zip<2, 1>(a, c), rows[2] = zip<2, 0>(b, d), rows[3] = zip<2, 1>(b, d);
}
typedef int32_t Quarter __attribute__((vector_size(16)));
typedef int32_t LooseQuarter __attribute__((vector_size(16), aligned(1), may_alias));
// Four words of each lane, `from` of lane l at lane(l): in words[w] the w-th of all lanes. The loads place them, and leave
// less to shuffle.
template <class F> INLINE void load_four(F&& lane, Words (&words)[4]) {
    for (int i = 0; i < 4; ++i) {
        const auto quarter = [&](int k) INLINE_LAMBDA { return *reinterpret_cast<const LooseQuarter*>(lane(4 * k + i)); };
#if defined(__AVX512F__)
        __m512i row = _mm512_castsi128_si512((__m128i)quarter(0));
        row = _mm512_mask_broadcast_i32x4(row, 0x00f0, (__m128i)quarter(1));
        row = _mm512_mask_broadcast_i32x4(row, 0x0f00, (__m128i)quarter(2));
        row = _mm512_mask_broadcast_i32x4(row, 0xf000, (__m128i)quarter(3));
        words[i] = (Words)row;
#elif defined(__AVX2__)
        words[i] = (Words)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)quarter(0)), (__m128i)quarter(1), 1);
#else
        words[i] = quarter(0);
#endif
    }
    transpose(words);
}
// And back: four words of each lane to lane(l).
template <class F> INLINE void store_four(Words (&words)[4], F&& lane) {
    transpose(words);
    for (int i = 0; i < 4; ++i) {
        Quarter quarters[kWords / 4];
        std::memcpy(quarters, &words[i], sizeof(quarters));
        for (int k = 0; k < kWords / 4; ++k) *reinterpret_cast<LooseQuarter*>(lane(4 * k + i)) = quarters[k];
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
