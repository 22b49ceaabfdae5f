// DTW of a few channels in lanes, abandoned early: a bound of DTW of all channels, never a value that is reported.
#pragma once
#include "../lanes.h"
#include "bounds.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int kLeads = 4;   // channels; LEADS in prepared.py
constexpr int kBeside = 16;  // items whose numbers lie side by side, in the memory of every instruction set; BESIDE in prepared.py

// How a cost is computed: from squares of differences; the same from products, |x|^2 + |y|^2 - 2xy, in two thirds of the
// operations, but with the rounding of large numbers; or the root of the first.
enum class LeadCost : int { differences, products, roots };

// Costs of R rows of x (leads, stride), which stay in registers, with a column of y (leads + 1, stride, kBeside), whose last
// plane holds |y|^2.
template <int R, LeadCost kCost> struct LeadCosts {
    const float* y;
    int64_t stride;
    Float x[R][kLeads], norms[R];

    LeadCosts(const float* from, const float* y, int64_t stride) : y(y), stride(stride) {
        for (int r = 0; r < R; ++r) {
            float squares = 0;
            for (int c = 0; c < kLeads; ++c) {
                const float value = from[c * stride + r];
                squares += value * value;
                x[r][c] = splat(kCost == LeadCost::products ? -2 * value : value);
            }
            norms[r] = splat(squares);
        }
    }
    INLINE void operator()(int64_t j, Float (&costs)[R]) const {
        Float column[kLeads];
        each<kLeads>([&](auto c) INLINE_LAMBDA { column[c] = load(y + (c * stride + j) * kBeside); });
        const Float norm = kCost == LeadCost::products ? load(y + (kLeads * stride + j) * kBeside) : Float{};
        each<R>([&](auto r) INLINE_LAMBDA {
            Float cost = norms[r] + norm;
            each<kLeads>([&](auto c) INLINE_LAMBDA {
                if (kCost == LeadCost::products) {
                    cost += x[r][c] * column[c];
                    return;
                }
                // Half of the differences on the units that multiply: the others are busy with minima.
                const Float far = c % 2 ? subtract<float>(x[r][c], column[c]) : x[r][c] - column[c];
                cost = c > 0 ? cost + far * far : far * far;
            });
            costs[r] = kCost == LeadCost::roots ? square_root<float>(cost) : cost;
        });
    }
};

// How far x is outside of [lower, upper], with either sign: one operation less than `outside`, and not on the units that
// compare.
INLINE Float beyond(Float x, Float upper, Float lower) { return subtract<float>(x, min(max(x, lower), upper)); }

// The transpose of a square of numbers.
INLINE Float zip(Float a, Float b, int from) {
#if defined(__clang__)
    Float result;
    for (int l = 0; l < kLanes; ++l) result[l] = (l % 2 ? b : a)[from + l / 2];
    return result;
#else
    const I<float> l = counting<float>();
    return __builtin_shuffle(a, b, from + (l >> 1) + (l & 1) * kLanes);
#endif
}
INLINE void transpose(Float (&rows)[kLanes]) {
#pragma GCC unroll 4
    for (int turn = 1; turn < kLanes; turn *= 2) {
        Float zipped[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes / 2; ++i) {
            zipped[2 * i] = zip(rows[i], rows[i + kLanes / 2], 0);
            zipped[2 * i + 1] = zip(rows[i], rows[i + kLanes / 2], kLanes / 2);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) rows[i] = zipped[i];
    }
}
// Numbers first..last - 1 of each lane, side by side: to (last, kApart). Both ends are multiples of the number of lanes.
template <int kApart> INLINE void lay_together(const float* const* from, int64_t first, int64_t last, float* to) {
    for (int64_t t = first; t < last; t += kLanes) {
        Float rows[kLanes];
        for (int l = 0; l < kLanes; ++l) rows[l] = load(from[l] + t);
        transpose(rows);
        for (int i = 0; i < kLanes; ++i) store(to + (t + i) * kApart, rows[i]);
    }
}
// And back, for the lanes that have a place to go to.
INLINE void lay_apart(const float* from, int64_t count, float* const* to) {
    for (int64_t t = 0; t < count; t += kLanes) {
        Float rows[kLanes];
        for (int i = 0; i < kLanes; ++i) rows[i] = load(from + (t + i) * kLanes);
        transpose(rows);
        for (int l = 0; l < kLanes; ++l)
            if (to[l]) store(to[l] + t, rows[l]);
    }
}
// The squares of frames, behind them: y (leads + 1, stride, kBeside).
INLINE void lay_squares(float* y, int64_t stride, int64_t first, int64_t last) {
    for (int64_t j = first; j <= last; ++j) {
        Float squares = Float{};
        for (int c = 0; c < kLeads; ++c) squares += load(y + (c * stride + j) * kBeside) * load(y + (c * stride + j) * kBeside);
        store(y + (kLeads * stride + j) * kBeside, squares);
    }
}
INLINE int64_t whole_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

class Leading {
public:
    Leading(int64_t n, int64_t reach, int64_t stride)
        : n_(n), stride_(stride), reach_(min(reach, n)), row_((n + reach_ + 2 * kLanes) * kLanes) {}

    // Rows from..to - 1 of items y of n steps against a query x (leads, stride); the row above is in `row`. ahead (segments,
    // lanes): what the rows from the end of a segment on cost at least, with all other channels. Returns those of the lanes
    // that may be within the limit. Unless `to` is n, it is a multiple of a segment, as `from` is.
    template <LeadCost kCost>
    __attribute__((noinline)) uint32_t advance(const float* x, const float* y, const float* ahead, int64_t segments, float limit,
                                               int64_t from, int64_t to, uint32_t lanes) {
        for (int64_t done = from; done < to && lanes;) {
            const int64_t before = done;
            if (to - done >= kRows) strip<kRows, kCost>(x, y, done), done += kRows;
            else strip<1, kCost>(x, y, done), ++done;
            cells_ += (done - before) * min(n_, 2 * reach_ + 1) * __builtin_popcount(lanes);
            if (done % kSegment && done < n_) continue;
            const Float least = done < n_ ? least_of(first_column(done - 1), last_column(done - 1)) : load(row(n_ - 1));
            lanes &= at_most(least + load(ahead + (min(done / kSegment, segments) - 1) * kLanes), limit);
        }
        return lanes;
    }
    // The columns that a row reads.
    int64_t first_column(int64_t i) const { return max(int64_t(0), i - reach_); }
    int64_t last_column(int64_t i) const { return min(n_ - 1, i + reach_); }
    // The last row, from a column on; and how much of it rows below read, from their first column on.
    float* row(int64_t j) { return row_.get() + j * kLanes; }
    int64_t row_size() const { return whole_lanes(min(n_, 2 * reach_ + 1)); }
    // Cells since the last call.
    int64_t cells() {
        const int64_t count = cells_;
        cells_ = 0;
        return count;
    }

private:
    static constexpr int kRows = 4;
    const int64_t n_, stride_, reach_;
    int64_t cells_ = 0;
    Buffer<float> row_;  // (n, lanes)

    // Four at a time: one after another, they would wait for each other.
    INLINE Float least_of(int64_t first, int64_t last) {
        Float least[4];
        each<4>([&](auto k) INLINE_LAMBDA { least[k] = load(row(min(first + k, last))); });
        for (int64_t j = first + 4; j <= last; j += 4)
            each<4>([&](auto k) INLINE_LAMBDA { least[k] = min(least[k], load(row(min(j + k, last)))); });
        return min(min(least[0], least[1]), min(least[2], least[3]));
    }
    // R rows from `top`, over all columns that any of them reads: a few more make the bound a little lower. Costs of a column
    // are computed for all rows at once; row r takes them r turns later, so that no cell depends on another in the same turn.
    template <int R, LeadCost kCost> INLINE void strip(const float* x, const float* y, int64_t top) {
        const int64_t first = first_column(top), last = last_column(top + R - 1);
        const Float unreachable = splat(kInfinity<float>);
        for (int64_t j = top > 0 ? last_column(top - 1) + 1 : 0; j <= last; ++j) store(row(j), unreachable);
        const LeadCosts<R, kCost> costs(x + top, y, stride_);
        Float cell[R], pending[R], waiting[R][R];
        each<R>([&](auto r) INLINE_LAMBDA {
            cell[r] = pending[r] = unreachable;
            each<R>([&](auto k) INLINE_LAMBDA { waiting[r][k] = unreachable; });
        });
        if (top == 0) pending[0] = Float{};
        else if (first > 0) pending[0] = load(row(first - 1));
        const auto turn = [&](int64_t j, auto inside, auto done) INLINE_LAMBDA {
            Float cost[R];
            each<R>([&](auto r) INLINE_LAMBDA { cost[r] = unreachable; });
            if (inside) costs(j, cost);
            each<R>([&](auto k) INLINE_LAMBDA {
                constexpr int r = R - 1 - k;
                const Float up = r > 0 ? cell[r > 0 ? r - 1 : 0] : inside ? load(row(j)) : unreachable;
                const Float next = min(pending[r], up) + (r > 0 ? waiting[r][0] : cost[0]);
                pending[r] = min(up, next), cell[r] = next;
            });
            each<R>([&](auto r) INLINE_LAMBDA {
                each<R - 1>([&](auto k) INLINE_LAMBDA { waiting[r][k] = k + 1 == r ? cost[r] : waiting[r][k + 1]; });
            });
            if (done) store(row(j - (R - 1)), cell[R - 1]);
        };
        constexpr Constant<0> no;
        constexpr Constant<1> yes;
        int64_t j = first;
        for (; j < first + R - 1; ++j) turn(j, yes, no);
        for (; j <= last; ++j) turn(j, yes, yes);
        for (; j < last + R; ++j) turn(j, no, yes);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
