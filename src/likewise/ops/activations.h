// Sigmoid and hyperbolic tangent, in lanes.
#pragma once
#include "simd.h"
#include "scaled.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The smaller of each two, and the larger; where `value` is NaN, NaN. In one instruction: GCC takes two for x < y ? x : y.
// And a reciprocal with at least twelve correct bits, which is 0 from 2^126 on.
#if defined(__AVX512F__)
// With a mask of all lanes: GCC 12 warns of undefined values in the plain forms.
INLINE V<float> at_most(V<float> bound, V<float> value) { return (V<float>)_mm512_maskz_min_ps(0xffff, (__m512)bound, (__m512)value); }
INLINE V<float> at_least(V<float> bound, V<float> value) { return (V<float>)_mm512_maskz_max_ps(0xffff, (__m512)bound, (__m512)value); }
INLINE V<float> about_reciprocal(V<float> value) {
    const __mmask16 most = _mm512_cmp_ps_mask((__m512)value, _mm512_set1_ps(0x1p126f), _CMP_NGE_UQ);
    return (V<float>)_mm512_maskz_rcp14_ps(most, (__m512)value);
}
#elif defined(__AVX2__)
INLINE V<float> at_most(V<float> bound, V<float> value) { return (V<float>)_mm256_min_ps((__m256)bound, (__m256)value); }
INLINE V<float> at_least(V<float> bound, V<float> value) { return (V<float>)_mm256_max_ps((__m256)bound, (__m256)value); }
INLINE V<float> about_reciprocal(V<float> value) { return (V<float>)_mm256_rcp_ps((__m256)value); }
#elif defined(__SSE2__)
INLINE V<float> at_most(V<float> bound, V<float> value) { return (V<float>)_mm_min_ps((__m128)bound, (__m128)value); }
INLINE V<float> at_least(V<float> bound, V<float> value) { return (V<float>)_mm_max_ps((__m128)bound, (__m128)value); }
INLINE V<float> about_reciprocal(V<float> value) { return (V<float>)_mm_rcp_ps((__m128)value); }
#else
INLINE V<float> at_most(V<float> bound, V<float> value) { return bound < value ? bound : value; }
INLINE V<float> at_least(V<float> bound, V<float> value) { return bound > value ? bound : value; }
INLINE V<float> about_reciprocal(V<float> value) { return value >= splat(0x1p126f) ? V<float>{} : 1.0f / value; }
#endif
INLINE V<double> at_most(V<double> bound, V<double> value) { return bound < value ? bound : value; }
INLINE V<double> at_least(V<double> bound, V<double> value) { return bound > value ? bound : value; }

// 1 / value, for 1 <= value. One third-order step refines twelve bits to full precision: a division is much slower.
INLINE V<float> reciprocal(V<float> value) {
    const V<float> about = about_reciprocal(value), error = 1.0f - value * about;
    return about + about * (error + error * error);
}
INLINE V<double> reciprocal(V<double> value) { return 1.0 / value; }

// 2^x on [-1/2, 1/2]: relative error 9e-8 in float (a minimax polynomial), 3e-18 in double.
INLINE V<float> short_exp2(V<float> x) {
    const V<float> square = x * x;  // in pairs that do not depend on each other
    const V<float> high = 1.326472763008183e-3f * x + 9.671512646243384e-3f;
    const V<float> middle = 5.5507337417522784e-2f * x + 2.4022242085258264e-1f;
    const V<float> low = 6.931469776002884e-1f * x + 1.0f;
    return (high * square + middle) * square + low;
}
INLINE V<double> short_exp2(V<double> x) { return exp2_fraction(x); }

// Activations take their arguments times these factors, which are part of the weights and so cost no multiplication.
template <class T> constexpr T kSigmoid = T(-1.44269504088896340736);  // -1 / ln 2
template <class T> constexpr T kTangent = 2 * kSigmoid<T>;

// The sigmoid of a, given z = kSigmoid a: 1 / (1 + 2^z), absolute error about 1e-7 (2e-16); 0 where that is tiny, and
// of minus infinity. NaN stays NaN.
template <class T> INLINE V<T> sigmoid(V<T> z) {
    // The reciprocal of infinity is 0 by division alone; of float, 2^127 is enough.
    constexpr T most = Format<T>::bias + (sizeof(T) == 8), least = -Format<T>::bias;
    constexpr T shift = Format<T>::round + Format<T>::bias;
    z = at_least(splat(least), at_most(splat(most), z));
    const V<T> moved = z + shift;  // its last bits are the integer part of z, plus the exponent bias
    const V<T> scale = (V<T>)((I<T>)moved << Format<T>::mantissa);
    return reciprocal(short_exp2(z - (moved - shift)) * scale + T(1));
}
// The hyperbolic tangent of a, given kTangent a.
template <class T> INLINE V<T> hyperbolic_tangent(V<T> z) { return sigmoid<T>(z) * T(2) - T(1); }

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
