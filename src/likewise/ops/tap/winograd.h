// Convolutions between images, by Winograd's algorithm: of an 8 x 8 tile of the input, (9 - side)^2 results are found with 64
// products for each pair of channels instead of (9 - side)^2 side^2. Polynomials are compared at 0, 1, -1, 1/2, -1/2, 2, -2
// and infinity: `points` are the 64 pairs of these. ops/tap/winograd.py transforms the weights, and their derivatives back.
// Reference: Lavin & Gray (2016), Fast algorithms for convolutional neural networks.
#pragma once
#include "image.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kTile = 8, kPoints = kTile * kTile;
constexpr int64_t kTilesAtOnce = 16;  // about; their values and the weights stay in the cache

INLINE void to_points(const Vec (&d)[8], Vec (&t)[8]) {
    t[0] = (d[0] - d[6]) + 5.25f * (d[4] - d[2]);
    const Vec even1 = (d[2] + d[6]) - 4.25f * d[4], odd1 = (d[1] + d[5]) - 4.25f * d[3];
    t[1] = even1 + odd1;
    t[2] = even1 - odd1;
    const Vec even2 = d[6] + 4.0f * d[2] - 5.0f * d[4], odd2 = 2.0f * d[1] - 2.5f * d[3] + 0.5f * d[5];
    t[3] = even2 + odd2;
    t[4] = even2 - odd2;
    const Vec even3 = d[6] + 0.25f * d[2] - 1.25f * d[4], odd3 = 0.5f * d[1] - 2.5f * d[3] + 2.0f * d[5];
    t[5] = even3 + odd3;
    t[6] = even3 - odd3;
    t[7] = (d[7] - d[1]) + 5.25f * (d[3] - d[5]);
}

constexpr float power(float base, int exponent) { return exponent ? base * power(base, exponent - 1) : 1.0f; }

// M results from the products at the points, and its transpose.
template <int M> INLINE void from_points(const Vec (&m)[8], Vec (&y)[M]) {
    const Vec sum1 = m[1] + m[2], sum2 = m[3] + m[4], sum3 = m[5] + m[6];
    const Vec more1 = m[1] - m[2], more2 = m[3] - m[4], more3 = m[5] - m[6];
    each<M>([&](auto index) INLINE_LAMBDA {
        constexpr int k = decltype(index)::value;
        constexpr float half = power(0.5f, k), two = power(2.0f, k);
        if constexpr (k % 2 == 0) y[k] = sum1 + half * sum2 + two * sum3;
        else y[k] = more1 + half * more2 + two * more3;
        if constexpr (k == 0) y[k] += m[0];
        if constexpr (k == M - 1) y[k] += m[7];
    });
}
template <int M> INLINE void back_to_points(const Vec (&y)[M], Vec (&t)[8]) {
    Vec even[3] = {}, odd[3] = {};
    each<M>([&](auto index) INLINE_LAMBDA {
        constexpr int k = decltype(index)::value;
        constexpr float factors[3] = {1.0f, power(0.5f, k), power(2.0f, k)};
        for (int p = 0; p < 3; ++p) (k % 2 ? odd : even)[p] += factors[p] * y[k];
    });
    t[0] = y[0];
    for (int p = 0; p < 3; ++p) {
        t[1 + 2 * p] = even[p] + odd[p];
        t[2 + 2 * p] = even[p] - odd[p];
    }
    t[7] = y[M - 1];
}

// Some whole rows of tiles, which begin at cell (first, 0) of the result. Points are computed and used eight at a time, those
// of one row of points: they stay in the first cache.
struct Group {
    int64_t first, across, down;  // tiles in each direction
    int64_t padded() const { return (across * down + 7) / 8 * 8; }
    // From one point to the next, in floats: not a power of two, which would fill few sets of the cache.
    int64_t plane(int64_t stride) const { return padded() * stride + 16; }
    int64_t points(int64_t stride) const { return kTile * plane(stride); }
    // Of `each` columns for a tile and `more` beyond: from one row of points to the next, and of all.
    int64_t row(int64_t each, int64_t more, int64_t stride) const { return down * (across * each + more) * stride + 16; }
    int64_t rows(int64_t each, int64_t more, int64_t stride) const { return kTile * row(each, more, stride); }
};

// The columns of the tiles' inputs at the points (8, down, columns, stride), `half` cells around the M x M results.
template <int M> void input_columns(const Image& image, const Group& group, float* columns) {
    constexpr int64_t half = (kTile - M) / 2;
    const int64_t stride = image.stride(), row = group.row(M, kTile - M, stride);
    const int64_t numbers = (group.across * M + kTile - M) * stride;
    for (int64_t s = 0; s < group.down; ++s, columns += numbers) {
        const float* rows[kTile];
        for (int64_t q = 0; q < kTile; ++q) rows[q] = image.row(group.first + s * M - half + q) - half * stride;
        for (int64_t k = 0; k < numbers; k += kLanes) {
            Vec d[kTile], t[kTile];
            for (int q = 0; q < kTile; ++q) d[q] = load(rows[q] + k);
            to_points(d, t);
            for (int q = 0; q < kTile; ++q) store(columns + q * row + k, t[q]);
        }
    }
}

// A row of points (8, tiles, stride) from its columns.
template <int M> void input_points(const float* columns, const Group& group, int64_t stride, float* points) {
    const int64_t plane = group.plane(stride);
    for (int64_t s = 0; s < group.down; ++s, columns += (kTile - M) * stride)
        for (int64_t tile = 0; tile < group.across; ++tile, columns += M * stride, points += stride)
            for (int64_t v = 0; v < stride; v += kLanes) {
                Vec d[kTile], t[kTile];
                for (int r = 0; r < kTile; ++r) d[r] = load(columns + r * stride + v);
                to_points(d, t);
                for (int r = 0; r < kTile; ++r) store(points + r * plane + v, t[r]);
            }
}

// The same of the tiles' own cells, for the weights' derivative.
template <int M> void result_columns(const Image& image, const Group& group, float* columns) {
    const int64_t stride = image.stride(), row = group.row(M, 0, stride), numbers = group.across * M * stride;
    for (int64_t s = 0; s < group.down; ++s, columns += numbers) {
        const float* rows[M];
        for (int64_t a = 0; a < M; ++a) rows[a] = image.row(group.first + s * M + a);
        for (int64_t k = 0; k < numbers; k += kLanes) {
            Vec y[M], t[kTile];
            for (int a = 0; a < M; ++a) y[a] = load(rows[a] + k);
            back_to_points<M>(y, t);
            for (int q = 0; q < kTile; ++q) store(columns + q * row + k, t[q]);
        }
    }
}

template <int M> void result_points(const float* columns, const Group& group, int64_t stride, float* points) {
    const int64_t plane = group.plane(stride);
    for (int64_t tile = 0; tile < group.across * group.down; ++tile, columns += M * stride, points += stride)
        for (int64_t v = 0; v < stride; v += kLanes) {
            Vec y[M], t[kTile];
            for (int b = 0; b < M; ++b) y[b] = load(columns + b * stride + v);
            back_to_points<M>(y, t);
            for (int r = 0; r < kTile; ++r) store(points + r * plane + v, t[r]);
        }
}

// Columns (tiles, M, stride) from the products of a row of points (8, tiles, stride).
template <int M> void columns_of(const float* points, const Group& group, int64_t stride, float* columns) {
    const int64_t plane = group.plane(stride);
    for (int64_t tile = 0; tile < group.across * group.down; ++tile, columns += M * stride, points += stride)
        for (int64_t v = 0; v < stride; v += kLanes) {
            Vec m[kTile], y[M];
            for (int r = 0; r < kTile; ++r) m[r] = load(points + r * plane + v);
            from_points<M>(m, y);
            for (int b = 0; b < M; ++b) store(columns + b * stride + v, y[b]);
        }
}

// finish(row, column, vector, value) of every cell of the tiles that is one of rows x count, from columns of all points.
template <int M, class Finish>
INLINE void results(const float* columns, const Group& group, int64_t stride, int64_t rows, int64_t count, const Finish& finish) {
    const int64_t row = group.row(M, 0, stride);
    for (int64_t s = 0; s < group.down; ++s, columns += group.across * M * stride)
        for (int64_t j = 0; j < count; ++j)
            for (int64_t v = 0; v < stride; v += kLanes) {
                Vec m[kTile], y[M];
                for (int q = 0; q < kTile; ++q) m[q] = load(columns + q * row + j * stride + v);
                from_points<M>(m, y);
                const int64_t i = group.first + s * M;
                for (int a = 0; a < M; ++a)
                    if (i + a < rows) finish(i + a, j, v / kLanes, y[a]);
            }
}

// to (tiles, stride) = from (tiles, stride) * weights (width, stride), N vectors of columns.
template <int N>
INLINE void product(const float* from, const float* weights, int64_t tiles, int64_t width, int64_t stride, float* to) {
    for (int64_t t = 0; t < tiles; t += kRows) {
        Vec sums[kRows][N] = {};
        const float* own = from + t * stride;
        for (int64_t k = 0; k < width; ++k) {
            Vec w[N];
            for (int v = 0; v < N; ++v) w[v] = load(weights + k * stride + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const Vec number = splat(own[r * stride + k]);
                for (int v = 0; v < N; ++v) sums[r][v] += number * w[v];
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < N; ++v) store(to + (t + r) * stride + v * kLanes, sums[r][v]);
    }
}

// At every point of a row, products with the weights (8, width, stride).
inline void products(const float* points, const float* weights, const Group& group, int64_t width, int64_t stride, float* to) {
    const int64_t plane = group.plane(stride);
    for (int64_t p = 0; p < kTile; ++p, points += plane, to += plane, weights += width * stride) {
        int64_t first = 0;
        for (; first + 2 * kLanes <= stride; first += 2 * kLanes)
            product<2>(points, weights + first, group.padded(), width, stride, to + first);
        if (first < stride) product<1>(points, weights + first, group.padded(), width, stride, to + first);
    }
}

// sums (kGradRows, stride) += from (tiles, kGradRows)' * slopes (tiles, stride), N vectors of columns.
template <int N>
INLINE void outer_product(const float* from, const float* slopes, int64_t tiles, int64_t stride, int64_t rows, float* sums) {
    Vec total[kGradRows][N];
    for (int r = 0; r < kGradRows; ++r)
        for (int v = 0; v < N; ++v) total[r][v] = load(sums + (r < rows ? r : 0) * stride + v * kLanes);
    for (int64_t t = 0; t < tiles; ++t) {
        Vec slope[N];
        for (int v = 0; v < N; ++v) slope[v] = load(slopes + t * stride + v * kLanes);
        for (int r = 0; r < kGradRows; ++r) {
            const Vec number = splat(from[t * stride + r]);
            for (int v = 0; v < N; ++v) total[r][v] += number * slope[v];
        }
    }
    for (int r = 0; r < kGradRows; ++r)
        if (r < rows)
            for (int v = 0; v < N; ++v) store(sums + r * stride + v * kLanes, total[r][v]);
}

// At every point of a row, the weights' derivative (8, width, stride) from the points of inputs and of slopes. Numbers are read
// up to kGradRows beyond the last of a cell, and not used.
inline void outer_products(const float* points, const float* slopes, const Group& group, int64_t width, int64_t stride, float* sums) {
    const int64_t plane = group.plane(stride), tiles = group.across * group.down;
    for (int64_t p = 0; p < kTile; ++p, points += plane, slopes += plane, sums += width * stride) {
        int64_t first = 0;
        for (; first + 2 * kLanes <= stride; first += 2 * kLanes)
            for (int64_t k = 0; k < width; k += kGradRows)
                outer_product<2>(points + k, slopes + first, tiles, stride, width - k, sums + k * stride + first);
        if (first < stride)
            for (int64_t k = 0; k < width; k += kGradRows)
                outer_product<1>(points + k, slopes + first, tiles, stride, width - k, sums + k * stride + first);
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
