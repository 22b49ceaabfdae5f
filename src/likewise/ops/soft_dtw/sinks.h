// Where an expected alignment goes: into a plan, or into the gradients of the sequences.
#pragma once
#include "wavefront.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// E into d/dx and d/dy of one pair, laid out like Packed.
template <class T, bool kEuclidean> struct GradientSink {
    SquaredGround<T> ground;
    T *x_grad, *y_grad;
    GradientSink(const Packed<T>& pair, T* x_grad, T* y_grad, int64_t top)
        : ground(pair, top), x_grad(x_grad + top), y_grad(y_grad + pair.m - 1) {}
    INLINE void operator()(V<T> expected, int64_t i, int64_t d, int64_t) const {
        V<T> factor = expected + expected;
        if constexpr (kEuclidean) {
            const V<T> distance = square_root<T>(ground(i, d));
            factor = distance > V<T>{} ? expected / distance : V<T>{};
        }
        const T *x = ground.x + i, *y = ground.y - d + i;
        T *gx = x_grad + i, *gy = y_grad - d + i;
        for (int64_t k = 0; k < ground.channels; ++k) {
            const V<T> step = factor * (load(x) - load(y));
            store(gx, load(gx) + step);
            store(gy, load(gy) - step);
            x += ground.x_stride, gx += ground.x_stride;
            y += ground.y_stride, gy += ground.y_stride;
        }
    }
};
template <class T> struct PlanSink {
    T* plan;  // row-major, at the strip's first row
    int64_t stride;
    INLINE void operator()(V<T> expected, int64_t i, int64_t d, int64_t count) const {
        unskew<T>(expected, i, d, count, plan, stride);
    }
};

// What E weighs the differences of frames by, row-major: 2 E, or E / distance under the Euclidean cost.
template <class T> struct FactorSink {
    StripGround<T> ground;
    bool euclidean;
    T* factors;  // at the strip's first row
    int64_t stride;
    INLINE void operator()(V<T> expected, int64_t i, int64_t d, int64_t count) const {
        V<T> factor = expected + expected;
        if (euclidean) {
            const V<T> distance = ground(i, d);
            factor = distance > V<T>{} ? expected / distance : V<T>{};
        }
        unskew<T>(factor, i, d, count, factors, stride);
    }
};

// Gradients of pairs of many channels. Lanes are channels, and a block of rows stays in registers.
template <class T> class ChannelGradients {
public:
    void begin(const Problem& problem, int64_t row, int64_t column) {
        channels_ = problem.channels, n_ = problem.x_lengths[row], m_ = problem.y_lengths[column];
        width_ = (channels_ + W<T> - 1) / W<T> * W<T>;
        copy(static_cast<const T*>(problem.x) + row * problem.x_steps * channels_, n_, n_ + kRows, x_, x_sum_);
        copy(static_cast<const T*>(problem.y) + column * problem.y_steps * channels_, m_, m_, y_, y_sum_);
    }
    // Zeros for the factors of a strip of so many rows.
    T* factors(int64_t rows) {
        const int64_t size = (rows + kRows) * m_;
        fill(factors_.reserve(size), size, T(0));
        return factors_.get();
    }
    int64_t stride() const { return m_; }

    // Adds a strip: factor(i, j) (x(i) - y(j)) to x's sums, less the same to y's.
    void add(int64_t top, int64_t rows) {
        for (int64_t i = 0; i < rows; i += kRows) {
            int64_t first = m_, last = -1;  // columns that any of the rows reaches
            const T* factors = factors_.get() + i * m_;
            for (int64_t r = 0; r < kRows; ++r) {
                int64_t lo = 0, hi = m_ - 1;
                while (lo < first && factors[r * m_ + lo] == T(0)) ++lo;
                while (hi > last && factors[r * m_ + hi] == T(0)) --hi;
                first = min(first, lo), last = max(last, hi);
            }
            for (int64_t c = 0; c < width_; c += W<T>) add_rows(factors, (top + i) * width_ + c, c, first, last);
        }
    }
    void finish(T* x_grad, T* y_grad) const {
        for (int64_t i = 0; i < n_; ++i)
            for (int64_t c = 0; c < channels_; ++c) x_grad[i * channels_ + c] += x_sum_[i * width_ + c];
        for (int64_t j = 0; j < m_; ++j)
            for (int64_t c = 0; c < channels_; ++c) y_grad[j * channels_ + c] += y_sum_[j * width_ + c];
    }

private:
    static constexpr int64_t kRows = 6;
    int64_t channels_ = 0, width_ = 0, n_ = 0, m_ = 0;
    Buffer<T> x_, y_, x_sum_, y_sum_, factors_;

    void copy(const T* from, int64_t steps, int64_t room, Buffer<T>& to, Buffer<T>& sums) const {
        fill(to.reserve(room * width_), room * width_, T(0));
        fill(sums.reserve(room * width_), room * width_, T(0));
        for (int64_t t = 0; t < steps; ++t)
            for (int64_t c = 0; c < channels_; ++c) to[t * width_ + c] = from[t * channels_ + c];
    }
    void add_rows(const T* factors, int64_t at, int64_t c, int64_t first, int64_t last) {
        V<T> x[kRows], sum[kRows];
        for (int r = 0; r < kRows; ++r) x[r] = load(x_.get() + at + r * width_), sum[r] = V<T>{};
        for (int64_t j = first; j <= last; ++j) {
            const V<T> y = load(y_.get() + j * width_ + c);
            V<T> total = V<T>{};
            for (int r = 0; r < kRows; ++r) {
                const V<T> factor = splat(factors[r * m_ + j]), difference = x[r] - y;
                sum[r] += factor * difference;
                total += factor * difference;
            }
            store(y_sum_.get() + j * width_ + c, load(y_sum_.get() + j * width_ + c) - total);
        }
        for (int r = 0; r < kRows; ++r) store(x_sum_.get() + at + r * width_, load(x_sum_.get() + at + r * width_) + sum[r]);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
