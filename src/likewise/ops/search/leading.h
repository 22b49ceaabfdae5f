// DTW of a few channels in lanes, abandoned early: a bound of DTW of all channels, never a value that is reported.
#pragma once
#include "../lanes.h"
#include "bounds.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int kLeads = 4;  // channels; LEADS in prepared.py

// Costs of R rows of x (leads, stride), which stay in registers, with the columns of y (leads, stride, lanes).
template <int R, bool kEuclidean> struct LeadCosts {
    const float* y;
    int64_t stride;
    Float x[R][kLeads];

    LeadCosts(const float* from, const float* y, int64_t stride) : y(y), stride(stride) {
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < kLeads; ++c) x[r][c] = splat(from[c * stride + r]);
    }
    INLINE Float operator()(int r, int64_t j) const {
        Float squares = Float{};
        // Half of the differences on the units that multiply: the others are busy with minima.
        each<kLeads>([&](auto c) INLINE_LAMBDA {
            const Float at = load(y + (c * stride + j) * kLanes), far = c % 2 ? subtract<float>(x[r][c], at) : x[r][c] - at;
            squares = c > 0 ? squares + far * far : far * far;
        });
        return kEuclidean ? square_root<float>(squares) : squares;
    }
};
struct LeadStep {
    struct Cell {
        Float value;
    };
    using Pending = Float;
    static INLINE Cell unreachable() { return {splat(kInfinity<float>)}; }
    static INLINE Pending pend(Cell diagonal, Cell left) { return min(diagonal.value, left.value); }
    INLINE Cell operator()(Pending pending, Cell up, Float cost, int64_t, int64_t) const { return {min(pending, up.value) + cost}; }
};

// How far x is outside of [lower, upper], with either sign: one operation less than `outside`.
INLINE Float beyond(Float x, float upper, float lower) { return x - min(max(x, splat(lower)), splat(upper)); }

class Leading {
public:
    Leading(const Window& window, int64_t n, int64_t stride)
        : window_(window), n_(n), stride_(stride), reach_(reach_of(window, n, n)), row_(n + kRows), columns_((n + 1) * kLanes) {}

    // Items y (leads, stride, lanes) of n steps against a query x and its envelope, (leads, stride) each. rows (segments,
    // lanes): what the rows of a segment cost at least; it becomes what they and all that follow do. rest: what other
    // channels add. Infinite where all lanes were found to exceed the limit.
    template <bool kEuclidean>
    __attribute__((noinline)) Float run(const float* x, const float* y, const float* upper, const float* lower, float* rows, int64_t segments,
                                        Float rest, float limit) {
        const int64_t n = n_;
        Float ahead = rest;
        for (int64_t s = segments - 1; s >= 0; --s) store(rows + s * kLanes, ahead += load(rows + s * kLanes));
        const Float total = foresee<kEuclidean>(y, upper, lower, rest);
        Float bound = splat(kInfinity<float>);
        if (!at_most(max(total, ahead), limit)) return bound;
        before_first_ = 0, before_last_ = -1;
        for (int64_t done = 0; done < n;) {
            const int64_t before = done;
            if (n - done >= kRows) strip<kRows, kEuclidean>(x, y, done), done += kRows;
            else strip<1, kEuclidean>(x, y, done), ++done;
            cells_ += (done - before) * min(n, 2 * reach_ + 1);
            if (done == n) bound = row_[n - 1].value + rest;
            if (done == n || done % kSegment) continue;
            Float least = row_[before_first_].value, more = load(columns_.get() + done * kLanes);
            for (int64_t j = before_first_ + 1; j <= before_last_; ++j) least = min(least, row_[j].value);
            if (done / kSegment < segments) more = max(more, load(rows + done / kSegment * kLanes));
            if (!at_most(least + more, limit)) break;
        }
        return bound;
    }
    // Cells of a lane since the last call.
    int64_t cells() {
        const int64_t count = cells_;
        cells_ = 0;
        return count;
    }

private:
    static constexpr int kRows = 4;
    const Window window_;
    const int64_t n_, stride_, reach_;
    int64_t cells_ = 0, before_first_ = 0, before_last_ = -1;  // the columns of the strip above
    Buffer<LeadStep::Cell> row_;
    Buffer<float> columns_;

    // What the columns cost at least that rows before row i do not reach, for i = 0..n, and what all of them cost.
    template <bool kEuclidean> INLINE Float foresee(const float* y, const float* upper, const float* lower, Float total) {
        const int64_t n = n_;
        for (int64_t i = max(int64_t(0), n - reach_); i <= n; ++i) store(columns_.get() + i * kLanes, total);
        for (int64_t j = n - 1; j >= 0; --j) {
            Float squares = Float{};
            each<kLeads>([&](auto c) INLINE_LAMBDA {
                const Float far = beyond(load(y + (c * stride_ + j) * kLanes), upper[c * stride_ + j], lower[c * stride_ + j]);
                squares += far * far;
            });
            total += kEuclidean ? square_root<float>(squares) : squares;
            if (j >= reach_) store(columns_.get() + (j - reach_) * kLanes, total);
        }
        return total;
    }
    template <int R, bool kEuclidean> INLINE void strip(const float* x, const float* y, int64_t top) {
        SharedWindow<float, R> window;
        int64_t first, last, inner_first, inner_last;
        set_window(window_, window, &n_, &n_, n_, top, first, last, inner_first, inner_last);
        for (int64_t j = before_last_ + 1; j <= last; ++j) row_[j] = LeadStep::unreachable();
        LeadStep::Cell corner = top == 0 ? LeadStep::Cell{Float{}} : LeadStep::unreachable();
        if (first > before_first_) corner = row_[first - 1];
        if (inner_first > inner_last) inner_first = last + 1, inner_last = last;
        sweep_rows<float, R>(LeadStep(), LeadCosts<R, kEuclidean>(x + top, y, stride_), window, top, first, last, inner_first, inner_last, corner, row_.get());
        before_first_ = first, before_last_ = last;
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
