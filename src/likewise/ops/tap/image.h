// Images of cells, and convolutions between one number per cell (a plane) and `stride` numbers per cell.
#pragma once
#include "../simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

using Vec = V<float>;
constexpr int kLanes = W<float>;
#if defined(__AVX512F__)
constexpr int kRows = 8, kGradRows = 10;  // of a product of matrices in registers; 30 channels are three times ten
#else
constexpr int kRows = 4, kGradRows = 5;
#endif
constexpr int64_t kMargin = 24;  // columns beside a row: half of a kernel, a tile, and a block of cells
constexpr int64_t kLargestSide = 15;

// Rows of cells with `stride` numbers each, with zeros around the pair. A row may replace one that is no longer needed: only
// so many are in memory, a power of two.
class Image {
public:
    int64_t made = 0;  // rows before this one are there

    // Not initialised but for the columns beside the pair; the same shape again costs nothing.
    void reshape(int64_t rows, int64_t columns, int64_t stride) {
        const int64_t width = columns + 2 * kMargin;
        if (rows == mask_ + 1 && width == width_ && stride == stride_) return;
        mask_ = rows - 1;
        width_ = width;
        stride_ = stride;
        data_.reserve(rows * width * stride);
        fill(data_.get(), rows * width * stride, 0.0f);
    }

    // The zeros above a new pair.
    void begin() {
        for (int64_t i = -kTop; i < 0; ++i) clear(i);
        made = 0;
    }

    // Cell (i, 0).
    INLINE float* row(int64_t i) const { return data_.get() + ((i & mask_) * width_ + kMargin) * stride_; }
    INLINE int64_t stride() const { return stride_; }

    void clear(int64_t i) { fill(row(i) - kMargin * stride_, width_ * stride_, 0.0f); }

    static constexpr int64_t kTop = 8;  // half of the largest kernel, at least

private:
    int64_t mask_ = -1, width_ = 0, stride_ = 0;
    Buffer<float> data_;
};

// One number for each cell of a pair, with zeros around it.
class Plane {
public:
    void reshape(int64_t rows, int64_t columns) {
        width_ = columns + 2 * kMargin;
        data_.reserve((rows + 2 * Image::kTop) * width_);
        fill(data_.get(), (rows + 2 * Image::kTop) * width_, 0.0f);
    }
    INLINE float* row(int64_t i) const { return data_.get() + (i + Image::kTop) * width_ + kMargin; }

private:
    int64_t width_ = 0;
    Buffer<float> data_;
};

// What a sum begins with: a number for each of the `stride`, for all cells or, with a step of `stride`, for each of them;
// null for zeros.
struct Start {
    const float* from;
    int64_t step;
    INLINE Vec at(int64_t j, int64_t place) const { return from ? load(from + j * step + place) : Vec{}; }
};

// N vectors of kRows cells at once: sum over planes and taps of weights (planes, side, side, stride) times numbers; of the
// last plane first. finish(cell, vector, sum) has the result for each cell of the row.
template <int N, class Finish>
INLINE void spread_vectors(const Plane* planes, int64_t count, int64_t side, const float* weights, const Start& start,
                           int64_t stride, int64_t i, int64_t columns, int64_t first, const Finish& finish) {
    const int64_t half = side / 2;
    for (int64_t j = 0; j < columns; j += kRows) {
        Vec sums[kRows][N];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < N; ++v) sums[r][v] = start.at(j + r, first + v * kLanes);
        for (int64_t p = count; p--;) {
            const float* weight = weights + p * side * side * stride + first;
            for (int64_t a = 0; a < side; ++a) {
                const float* from = planes[p].row(i + a - half) + j - half;
                for (int64_t b = 0; b < side; ++b, weight += stride) {
                    Vec w[N];
                    for (int v = 0; v < N; ++v) w[v] = load(weight + v * kLanes);
                    for (int r = 0; r < kRows; ++r) {
                        const Vec number = splat(from[b + r]);
                        for (int v = 0; v < N; ++v) sums[r][v] += number * w[v];
                    }
                }
            }
        }
        const int64_t here = min<int64_t>(kRows, columns - j);
        for (int64_t r = 0; r < here; ++r)
            for (int v = 0; v < N; ++v) finish(j + r, first / kLanes + v, sums[r][v]);
    }
}

// A row of a convolution of planes.
template <class Finish>
INLINE void spread(const Plane* planes, int64_t count, int64_t side, const float* weights, const Start& start, int64_t stride,
                   int64_t i, int64_t columns, const Finish& finish) {
    int64_t first = 0;
    for (; first + 2 * kLanes <= stride; first += 2 * kLanes)
        spread_vectors<2>(planes, count, side, weights, start, stride, i, columns, first, finish);
    if (first < stride) spread_vectors<1>(planes, count, side, weights, start, stride, i, columns, first, finish);
}

// A row of a convolution to one number per cell, with weights (side, side, stride). finish(column, sums of kLanes cells).
template <class Finish>
INLINE void gather(const Image& image, int64_t side, const float* weights, int64_t i, int64_t columns, const Finish& finish) {
    const int64_t half = side / 2, stride = image.stride();
    for (int64_t j = 0; j < columns; j += kLanes) {
        Vec sums[kLanes];
        for (int r = 0; r < kLanes; ++r) sums[r] = Vec{};
        const float* weight = weights;
        for (int64_t a = 0; a < side; ++a) {
            const float* from = image.row(i + a - half) + (j - half) * stride;
            for (int64_t b = 0; b < side; ++b, from += stride)
                for (int64_t v = 0; v < stride; v += kLanes, weight += kLanes) {
                    const Vec w = load(weight);
                    for (int r = 0; r < kLanes; ++r) sums[r] += load(from + r * stride + v) * w;
                }
        }
        finish(j, sums_of_each<float>(sums));
    }
}

// T taps of one row, N vectors: sums[t] += sum over columns j of image[j] * numbers[j + t * step].
template <int T, int N>
INLINE void add_vectors(const float* image, int64_t stride, const float* numbers, int64_t step, int64_t columns, float* sums) {
    Vec total[T][N];
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < N; ++v) total[t][v] = load(sums + t * stride + v * kLanes);
    for (int64_t j = 0; j < columns; ++j) {
        Vec here[N];
        for (int v = 0; v < N; ++v) here[v] = load(image + j * stride + v * kLanes);
        for (int t = 0; t < T; ++t) {
            const Vec number = splat(numbers[j + t * step]);
            for (int v = 0; v < N; ++v) total[t][v] += here[v] * number;
        }
    }
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < N; ++v) store(sums + t * stride + v * kLanes, total[t][v]);
}

template <int T>
INLINE void add_taps(const float* image, int64_t stride, const float* numbers, int64_t step, int64_t columns, float* sums) {
    int64_t v = 0;
    for (; v + 2 * kLanes <= stride; v += 2 * kLanes)
        add_vectors<T, 2>(image + v, stride, numbers, step, columns, sums + v);
    if (v < stride) add_vectors<T, 1>(image + v, stride, numbers, step, columns, sums + v);
}

INLINE void add_row(const float* image, int64_t stride, const float* numbers, int64_t step, int64_t columns, int64_t side,
                    float* sums) {
    int64_t t = 0;
    for (; t + 5 <= side; t += 5) add_taps<5>(image, stride, numbers + t * step, step, columns, sums + t * stride);
    for (; t + 3 <= side; t += 3) add_taps<3>(image, stride, numbers + t * step, step, columns, sums + t * stride);
    for (; t < side; ++t) add_taps<1>(image, stride, numbers + t * step, step, columns, sums + t * stride);
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
