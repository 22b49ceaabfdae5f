// Numbers that neither overflow nor underflow: mantissa * 2^exponent, both floating point.
#pragma once
#include <cmath>

#include "simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> struct Format;
template <> struct Format<float> {
    static constexpr int mantissa = 23, bias = 127;
    static constexpr int32_t fraction = 0x7fffff, one = 0x3f800000;
    static constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    static constexpr float unreachable = -1e30f;
};
template <> struct Format<double> {
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr int64_t fraction = 0xfffffffffffffLL, one = 0x3ff0000000000000LL;
    static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double unreachable = -1e300;
};

// 2^x on [-1/2, 1/2], relative error 2e-9 and 3e-18 (minimax polynomials).
INLINE V<float> exp2_fraction(V<float> x) {
    V<float> p = splat(1.53458121613116298e-4f);
    p = p * x + 1.3399931177239738e-3f;
    p = p * x + 9.61848895633118162e-3f;
    p = p * x + 5.5503287771053248e-2f;
    p = p * x + 2.40226468906455207e-1f;
    p = p * x + 6.93147205737195751e-1f;
    return p * x + 1.0f;
}
INLINE V<double> exp2_fraction(V<double> x) {
    V<double> p = splat(4.43528270695727715e-10);
    p = p * x + 7.0741056135081428e-9;
    p = p * x + 1.01781980216719308e-7;
    p = p * x + 1.32154330896763992e-6;
    p = p * x + 1.52527334899885256e-5;
    p = p * x + 1.54035304625144321e-4;
    p = p * x + 1.33335581467899217e-3;
    p = p * x + 9.61812910758833524e-3;
    p = p * x + 5.55041086648199216e-2;
    p = p * x + 2.40226506959101562e-1;
    p = p * x + 6.9314718055994533e-1;
    return p * x + 1.0;
}

// 2^k for whole k <= 0; zero once it underflows.
template <class T> INLINE V<T> power_of_two(V<T> k) {
    k = max(k, splat(T(-Format<T>::bias)));
    return (V<T>)((I<T>)(k + (Format<T>::round + Format<T>::bias)) << Format<T>::mantissa);
}

// P in the lanes: mantissa in [1, 2), exponent whole. Beyond 2^24 (2^53) exponents are rounded, as R itself would be.
template <class T> struct Scaled {
    V<T> mantissa, exponent;
};

template <class T> INLINE Scaled<T> scaled_exp2(V<T> z) {
    const V<T> rounded = (z + Format<T>::round) - Format<T>::round;
    const V<T> whole = z > splat(-Format<T>::round / 4) ? rounded : z;  // larger z are integers already
    return {exp2_fraction(z - whole), whole};
}

template <class T> INLINE Scaled<T> normalised(V<T> mantissa, V<T> exponent) {
    const I<T> bits = (I<T>)mantissa;
    const V<T> shift = __builtin_convertvector((bits >> Format<T>::mantissa) - Format<T>::bias, V<T>);
    return {(V<T>)((bits & Format<T>::fraction) | Format<T>::one), exponent + shift};
}

template <class T> T negative_log(T mantissa, T exponent, double gamma) {
    if (exponent <= Format<T>::unreachable / 2) return kInfinity<T>;
    return T(-gamma * (double(exponent) * 0.693147180559945309 + std::log(double(mantissa))));
}

// A cell of P from its neighbours and its cost times -1 / (gamma ln 2); record(up, left, sum) sees what they add.
template <class T, class Record>
INLINE Scaled<T> next_cell(Scaled<T> diagonal, Scaled<T> up, Scaled<T> left, V<T> scaled_cost, const Record record) {
    const Scaled<T> weight = scaled_exp2<T>(scaled_cost);
    const V<T> top = max(max(up.exponent, left.exponent), diagonal.exponent);
    const V<T> from_left = left.mantissa * power_of_two<T>(left.exponent - top);
    const V<T> from_up = up.mantissa * power_of_two<T>(up.exponent - top);
    const V<T> from_diagonal = diagonal.mantissa * power_of_two<T>(diagonal.exponent - top);
    const V<T> sum = (from_left + from_up) + from_diagonal;
    record(from_up, from_left, sum);
    return normalised<T>(sum * weight.mantissa, top + weight.exponent);
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
