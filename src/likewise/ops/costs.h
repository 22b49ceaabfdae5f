// Distances of frames of several channels, blocked in registers as in a product of matrices.
//
// They are sums of squared differences, not |x|^2 + |y|^2 - 2 x.y, which would lose precision for close frames.
#pragma once
#include "simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Vectors of frames: channel k of vector v is at [v * step + k * stride].
template <class T> struct Vectors {
    const T* at;
    int64_t step, stride;
};

// Calls to(v, s, cost) with the costs of the vectors v of x, all kVectors, and s of y, for s in [begin, end). y(s) is
// where vector s has its first channel; the others follow at y_stride.
template <int kVectors, class T, class Y, class Store>
INLINE void blocked_costs(const Vectors<T> x, const Y& y, int64_t y_stride, int64_t channels, bool euclidean, int64_t begin,
                          int64_t end, const Store& to) {
    const auto block = [&](int64_t s, auto count) INLINE_LAMBDA {
        constexpr int N = decltype(count)::value;
        V<T> cost[N][kVectors];
        const T* from[N];
        for (int c = 0; c < N; ++c) from[c] = y(s + c);
#pragma GCC unroll 32
        for (int c = 0; c < N * kVectors; ++c) cost[c / kVectors][c % kVectors] = V<T>{};
        for (int64_t k = 0; k < channels; ++k) {
            V<T> y_k[N];
#pragma GCC unroll 4
            for (int c = 0; c < N; ++c) y_k[c] = load(from[c] + k * y_stride);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const V<T> x_k = load(x.at + v * x.step + k * x.stride);
#pragma GCC unroll 4
                for (int c = 0; c < N; ++c) {
                    const V<T> difference = y_k[c] - x_k;
                    cost[c][v] += difference * difference;
                }
            }
        }
#pragma GCC unroll 32
        for (int c = 0; c < N * kVectors; ++c) {
            const V<T> value = cost[c / kVectors][c % kVectors];
            to(c % kVectors, s + c / kVectors, euclidean ? square_root<T>(value) : value);
        }
    };
    constexpr int kAtOnce = kBytes == 64 ? 4 : 2;  // what 32 or 16 registers hold, of six vectors
    for (; begin + kAtOnce <= end; begin += kAtOnce) block(begin, Constant<kAtOnce>());
    for (; begin < end; ++begin) block(begin, Constant<1>());
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
