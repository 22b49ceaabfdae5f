// Envelopes, Keogh's bound, and what rounding may do to it.
#pragma once
#include "../simd.h"
#include "kernel.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

using Float = V<float>;
constexpr int kLanes = W<float>;

// Bit l: lane l is at most the limit.
INLINE uint32_t at_most(Float a, float limit) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, splat(limit), _CMP_LE_OQ);
#elif defined(__AVX2__)
    return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a, splat(limit), _CMP_LE_OQ)));
#else
    uint32_t bits = 0;
    for (int l = 0; l < kLanes; ++l) bits |= uint32_t(a[l] <= limit) << l;
    return bits;
#endif
}
INLINE float sum(Float a) {
    typedef float Quarter __attribute__((vector_size(16)));
    Quarter parts[kLanes / 4];
    std::memcpy(parts, &a, sizeof(a));
    for (int i = 1; i < kLanes / 4; ++i) parts[0] += parts[i];
    return (parts[0][0] + parts[0][1]) + (parts[0][2] + parts[0][3]);
}

// How far x is outside of [lower, upper].
template <class X> INLINE X outside(X x, X upper, X lower) { return max(max(x - upper, lower - x), X{}); }

// Steps that a path may be off the diagonal, towards columns before and behind that of its row, n rows and m columns.
INLINE int64_t radius_of(const Window& window, int64_t n, int64_t m) {
    const double steps = window.kind == WindowKind::fraction ? window.size * double(min(n, m)) : window.size;
    return window.kind == WindowKind::none || steps >= double(n + m) ? n + m : int64_t(steps);
}
INLINE int64_t reach_of(const Window& window, int64_t n, int64_t m) { return radius_of(window, n, m) + max(int64_t(0), m - n); }

// to[j] = the greatest (or least) of x[j - left..j + right], as far as there are any of x's n. Each turn doubles the
// number that an element stands for; the last two overlap.
template <bool kGreatest> void slide(const float* x, int64_t n, int64_t left, int64_t right, int64_t count, Buffer<float>& scratch, float* to) {
    const auto better = [](auto a, auto b) INLINE_LAMBDA { return kGreatest ? max(a, b) : min(a, b); };
    left = min(left, count - 1), right = min(right, n - 1);
    const int64_t width = left + right + 1, size = count + width;
    float* at = scratch.reserve(size + 3 * kLanes);
    const float nothing = kGreatest ? -kInfinity<float> : kInfinity<float>;
    fill(at, min(left, size), nothing);
    const int64_t copied = min(n, size - left);
    std::memcpy(at + left, x, size_t(max(copied, int64_t(0))) * sizeof(float));
    fill(at + left + copied, size + 3 * kLanes - left - copied, nothing);
    int64_t stands = 1;
    for (; 2 * stands <= width; stands *= 2)
        for (int64_t i = 0; i < size; i += kLanes) {
            const int64_t other = min(i + stands, size + kLanes);
            store(at + i, better(load(at + i), load(at + other)));
        }
    const int64_t shift = width - stands;
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) store(to + j, better(load(at + j), load(at + j + shift)));
    for (; j < count; ++j) to[j] = better(at[j], at[j + shift]);
}

constexpr int64_t kBlock = 16;    // steps whose costs are added up together; every padded length is a multiple of it
constexpr int64_t kSegment = 8;   // steps that share one mean

// Means of every kSegment elements of x, `count` of them, and zeros behind.
INLINE void average(const float* x, int64_t count, int64_t padded, float* to) {
    for (int64_t j = 0; j < count; ++j, x += kSegment) {
        float total = 0;
        for (int64_t i = 0; i < kSegment; ++i) total += x[i];
        to[j] = total / float(kSegment);
    }
    fill(to + count, padded - count, 0.0f);
}

// What the steps i..i + lanes - 1 of x cost against an envelope, both (channels, padded).
INLINE Float step_costs(const float* x, const float* upper, const float* lower, int64_t channels, int64_t padded, int64_t i, Ground ground) {
    Float squares = Float{}, far = Float{};
    for (int64_t c = 0; c < channels; ++c, i += padded) {
        far = outside(load(x + i), load(upper + i), load(lower + i));
        squares += far * far;
    }
    return ground == Ground::squared ? squares : channels == 1 ? far : square_root<float>(squares);
}

// Keogh's bound of x against an envelope, and what each block of steps adds to it. Stops once it exceeds `most`. A function
// of its own, so that its pointers stay in registers.
__attribute__((noinline)) float keogh(const float* x, const float* upper, const float* lower, int64_t channels, int64_t padded,
                                      Ground ground, float most, float* blocks) {
    float total = 0;
    for (int64_t i = 0; i < padded && total <= most; i += kBlock) {
        Float costs = Float{};
        for (int64_t s = i; s < i + kBlock; s += kLanes) costs += step_costs(x, upper, lower, channels, padded, s, ground);
        total += blocks[i / kBlock] = sum(costs);
    }
    return total;
}

// The greatest bound that a candidate at the threshold can have, as both are computed. Values and bounds are sums of
// terms that are not negative, each right but for its rounding: so are the sums, but for the rounding of each addition.
// An error of the frames (that of float32 copies, or of running means) changes the root of a sum of squares by at most
// the root of the number of frames times the error.
struct Limit {
    double relative, absolute;
    bool squares;
    double factor;  // from the values that are reported to sums

    Limit(const SearchProblem& problem, int64_t n, int64_t m, double error) {
        const double half = 6e-8, frames = double(n + m);
        squares = problem.pairs.ground == Ground::squared;
        relative = half * (4 * frames + 4 * double(problem.pairs.channels) + double(m * problem.pairs.channels) / kLanes + 64);
        absolute = squares ? root(frames) * error : frames * error;
        factor = problem.by_lengths ? frames * (1 + 1e-6) : 1;
    }
    float operator()(double threshold) const {
        if (!(threshold < double(kInfinity<float>))) return kInfinity<float>;
        const double sum = threshold * factor;
        const double least = squares ? root(sum) * (1 + relative) + absolute : sum * (1 + relative) + absolute;
        return float((squares ? least * least : least) * (1 + 1e-6));
    }
};

// What the columns cost at least that rows before row i do not reach, for i = 0..n, in every lane: y (m, channels, lanes),
// the query's envelope (channels, stride).
template <class T>
void suffixes(const SearchProblem& problem, const T* y, int64_t n, int64_t m, const float* upper, const float* lower, int64_t stride, T* to) {
    const int64_t channels = problem.pairs.channels, reach = reach_of(problem.pairs.window, n, m);
    for (int64_t i = max(int64_t(0), m - reach); i <= n; ++i) store(to + i * W<T>, V<T>{});
    V<T> total = V<T>{};
    for (int64_t j = m - 1; j >= reach; --j) {
        V<T> squares = V<T>{}, far = V<T>{};
        for (int64_t c = 0; c < channels; ++c) {
            far = outside(load(y + (j * channels + c) * W<T>), splat(T(upper[c * stride + j])), splat(T(lower[c * stride + j])));
            squares += far * far;
        }
        if (problem.pairs.ground == Ground::squared) total += squares;
        else total += channels == 1 ? far : square_root<T>(squares);
        if (j - reach <= n) store(to + (j - reach) * W<T>, total);
    }
}

// Mean and inverse deviation of one channel of a window, in double precision. A channel whose deviation is at most 1e-7 of
// its largest absolute value is constant: what is left of a constant in float32 is rounding. Its inverse is 0.
struct Moments {
    double mean, inverse;
    template <class T> Moments(const T* x, int64_t length, int64_t apart) {
        double part[4] = {0, 0, 0, 0}, largest = 0;
        const double origin = double(x[0]);
        for (int64_t i = 0; i < length; ++i) {
            const double value = double(x[i * apart]);
            part[i & 3] += value - origin;
            largest = max(largest, max(value, -value));
        }
        mean = origin + ((part[0] + part[1]) + (part[2] + part[3])) / double(length);
        part[0] = part[1] = part[2] = part[3] = 0;
        for (int64_t i = 0; i < length; ++i) {
            const double centred = double(x[i * apart]) - mean;
            part[i & 3] += centred * centred;
        }
        const double deviation = root(((part[0] + part[1]) + (part[2] + part[3])) / double(length));
        inverse = deviation <= 1e-7 * largest ? 0 : 1 / deviation;
    }
    template <class T> T operator()(T x) const { return T((double(x) - mean) * inverse); }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
