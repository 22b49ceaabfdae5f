// Short vectors exactly as wide as a register of the instruction set this file is compiled for.
// Everything lives in an unnamed namespace: the same sources are compiled once per instruction set, and no
// function of one set may be linked into another. For that reason kernels also keep away from std:: templates.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))

template <class T> struct Lanes;
template <> struct Lanes<float> {
    using Bits = int32_t;
    typedef float Vector __attribute__((vector_size(kBytes)));
    typedef float Unaligned __attribute__((vector_size(kBytes), aligned(4)));
    typedef int32_t Integers __attribute__((vector_size(kBytes)));
};
template <> struct Lanes<double> {
    using Bits = int64_t;
    typedef double Vector __attribute__((vector_size(kBytes)));
    typedef double Unaligned __attribute__((vector_size(kBytes), aligned(8)));
    typedef int64_t Integers __attribute__((vector_size(kBytes)));
};
template <class T> using V = typename Lanes<T>::Vector;
template <class T> using I = typename Lanes<T>::Integers;
template <class T> constexpr int W = kBytes / int(sizeof(T));
template <class T> constexpr T kInfinity = std::numeric_limits<T>::infinity();

template <class T> INLINE V<T> load(const T* from) { return *reinterpret_cast<const typename Lanes<T>::Unaligned*>(from); }
template <class T> INLINE void store(T* to, V<T> value) { *reinterpret_cast<typename Lanes<T>::Unaligned*>(to) = value; }
// x - 0 is x for every x, so this is one broadcast; 0 + x is not (for -0), and would be an addition.
template <class T> INLINE V<T> splat(T value) { return value - V<T>{}; }
// While one exists, subnormal results become 0. An Intel processor takes a hundred times as long for such a result, and
// products of probabilities are full of them; their contribution is far below rounding.
class FlushTiny {
public:
#if defined(__x86_64__)
    FlushTiny() : before_(_mm_getcsr()) { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON); }
    ~FlushTiny() { _mm_setcsr(before_); }
    FlushTiny(const FlushTiny&) = delete;

private:
    const unsigned before_;
#else
    FlushTiny() {}  // avoids a warning about an unused variable
#endif
};

template <class X> INLINE X min(X a, X b) { return a < b ? a : b; }
template <class X> INLINE X max(X a, X b) { return a > b ? a : b; }
INLINE float root(float value) { return __builtin_sqrtf(value); }
INLINE double root(double value) { return __builtin_sqrt(value); }

template <class T> INLINE V<T> square_root(V<T> value) {
    V<T> result;
    for (int l = 0; l < W<T>; ++l) result[l] = root(value[l]);
    return result;
}

// Over the lanes.
template <class T> INLINE T sum_of(V<T> value) {
    T total = 0;
    for (int l = 0; l < W<T>; ++l) total += value[l];
    return total;
}

// The sum of a[k] b[k].
INLINE double dot(const double* a, const double* b, int64_t count) {
    V<double> sums{};
    int64_t k = 0;
    for (; k + W<double> <= count; k += W<double>) sums += load(a + k) * load(b + k);
    double total = sum_of<double>(sums);
    for (; k < count; ++k) total += a[k] * b[k];
    return total;
}

// 0, 1, 2, ... in the lanes.
template <class T> INLINE I<T> counting() {
    I<T> result;
    for (int l = 0; l < W<T>; ++l) result[l] = l;
    return result;
}

// The value in the first `count` lanes, 0 in the others.
template <class T> INLINE V<T> keep(V<T> value, int64_t count) {
    const I<T> cut = I<T>{} + static_cast<typename Lanes<T>::Bits>(count);
    return counting<T>() < cut ? value : V<T>{};
}

// a - b, on the units that multiply: those that add are the ones that compare, and DTW takes two minima per cell.
template <class T> INLINE V<T> subtract(V<T> a, V<T> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return _mm512_fmsub_ps(a, splat(T(1)), b);
    else return _mm512_fmsub_pd(a, splat(T(1)), b);
#elif defined(__FMA__)
    if constexpr (sizeof(T) == 4) return _mm256_fmsub_ps(a, splat(T(1)), b);
    else return _mm256_fmsub_pd(a, splat(T(1)), b);
#else
    return a - b;
#endif
}

// Every lane of a takes the one before it; the first takes the last of b.
template <class T> INLINE V<T> shift(V<T> a, V<T> b) {
#if defined(__clang__) || __GNUC__ >= 12
    if constexpr (W<T> == 2) return __builtin_shufflevector(b, a, 1, 2);
    else if constexpr (W<T> == 4) return __builtin_shufflevector(b, a, 3, 4, 5, 6);
    else if constexpr (W<T> == 8) return __builtin_shufflevector(b, a, 7, 8, 9, 10, 11, 12, 13, 14);
    else return __builtin_shufflevector(b, a, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
#else
    return __builtin_shuffle(b, a, counting<T>() + (W<T> - 1));
#endif
}

// body(0), ..., body(N - 1), with constant arguments, so that indexed values can stay in registers.
template <int N> using Constant = std::integral_constant<int, N>;
template <int N, class F> INLINE void each(const F& body) {
    if constexpr (N > 0) {
        each<N - 1>(body);
        body(Constant<N - 1>());
    }
}

// In lane l the sum of the lanes of vectors[l], which are overwritten.
template <class T> INLINE V<T> sums_of_each(V<T> (&vectors)[W<T>]) {
#if defined(__clang__)
    V<T> result;
    for (int l = 0; l < W<T>; ++l) result[l] = sum_of<T>(vectors[l]);
    return result;
#else
    each<5>([&](auto level) INLINE_LAMBDA {
        constexpr int b = 1 << decltype(level)::value;
        if constexpr (b < W<T>) {
            const I<T> lane = counting<T>(), odd = (lane / b) % 2 != 0;
            const I<T> one = odd ? lane - b + W<T> : lane, two = odd ? lane + W<T> : lane + b;
            for (int l = 0; l < W<T> / (2 * b); ++l) {
                const V<T> low = vectors[2 * l], high = vectors[2 * l + 1];
                vectors[l] = __builtin_shuffle(low, high, one) + __builtin_shuffle(low, high, two);
            }
        }
    });
    return vectors[0];
#endif
}

// Aligned scratch that grows and is never initialised.
template <class T> class Buffer {
public:
    Buffer() = default;
    explicit Buffer(int64_t count) { reserve(count); }
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    // Room for `count` elements; earlier contents are lost when it grows.
    T* reserve(int64_t count) {
        const size_t needed = (size_t(count) * sizeof(T) + 127) / 64 * 64;
        if (!data_ || needed > bytes_) {
            std::free(data_);
            data_ = static_cast<T*>(std::aligned_alloc(64, needed));
            bytes_ = needed;
            if (!data_) throw std::bad_alloc();
        }
        return data_;
    }
    T* get() const { return data_; }
    T& operator[](int64_t i) const { return data_[i]; }

private:
    T* data_ = nullptr;
    size_t bytes_ = 0;
};

template <class T> INLINE void fill(T* to, int64_t count, T value) {
    for (int64_t i = 0; i < count; ++i) to[i] = value;
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
