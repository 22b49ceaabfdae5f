// DTW of a few channels in lanes, abandoned early: a bound of DTW of all channels, never a value that is reported. Frames are
// rounded to whole numbers, and costs to multiples of a unit, of which the limit has tens of thousands: a vector holds twice
// as many cells as of float32, and three operations of eight remain to each.
#pragma once
#include "bounds.h"
#include "words.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int kLeads = 4;    // channels; LEADS in prepared.py
constexpr int kBeside = 16;  // items whose numbers lie side by side, in the memory of every instruction set; BESIDE in prepared.py
constexpr int kPairs = kLeads / 2;  // words of a frame
// The largest number of a frame; FINEST in prepared.py. Twice it has 16 bits with its sign, and squared distances have 32.
constexpr int kFinest = 16383;

// How far x is outside of [lower, upper], with either sign: one operation less than `outside`, and not on the units that
// compare.
INLINE Float beyond(Float x, Float upper, Float lower) { return subtract<float>(x, min(max(x, lower), upper)); }

// Words 0..count - 1 of each lane, side by side: to (count, kApart). count is a multiple of four.
template <int kApart> INLINE void lay_together(const float* const* from, int64_t count, float* to) {
    for (int64_t t = 0; t < count; t += 4) {
        Words words[4];
        load_four([&](int l) INLINE_LAMBDA { return from[l] + t; }, words);
        for (int w = 0; w < 4; ++w) store_words(to + (t + w) * kApart, words[w]);
    }
}

// A frame as whole numbers of a unit. What exceeds them is cut, as it is in all frames: that brings none further apart.
INLINE void round_frame(const float* x, int64_t apart, float inverse_unit, int16_t* to) {
    for (int c = 0; c < kLeads; ++c)
        to[c] = int16_t(__builtin_lrintf(min(max(x[c * apart] * inverse_unit, float(-kFinest)), float(kFinest))));
}
// A frame of a query: -2 times its numbers, two to a word, and the sum of their squares.
struct QueryFrame {
    int32_t words[kPairs];
    uint32_t norm;

    QueryFrame(const float* x, int64_t apart, float inverse_unit) : norm(0) {
        int16_t numbers[kLeads];
        round_frame(x, apart, inverse_unit, numbers);
        for (int16_t& number : numbers) {
            norm += uint32_t(int32_t(number) * number);
            number = int16_t(-2 * number);
        }
        std::memcpy(words, numbers, sizeof(words));
    }
};

// Costs in units: squared distances shifted by some bits, or their roots times a scale. Both are rounded down.
struct LeadUnits {
    int shift = 0;
    float scale = 0;
};
constexpr int kColumn = 2 * (kPairs + 1) * kWords;  // words of a column: of each half of the lanes its pairs, then its squares

// Costs of R frames of the query, which stay in registers, with a column of the items.
template <int R, bool kRoots, bool kFused> struct LeadCosts {
    const int32_t* y;
    const Naturals shift;
    const Float scale;
    Words x[R][kPairs], norms[R];

    LeadCosts(const QueryFrame* from, const int32_t* y, LeadUnits units)
        : y(y), shift(Naturals{} + uint32_t(units.shift)), scale(splat(units.scale)) {
        for (int r = 0; r < R; ++r) {
            for (int p = 0; p < kPairs; ++p) x[r][p] = splat_word(from[r].words[p]);
            norms[r] = splat_word(int32_t(from[r].norm));
        }
    }
    INLINE void operator()(int64_t j, Shorts (&costs)[R]) const {
        const int32_t* column = y + j * kColumn;
        Words pairs[2][kPairs], squares[2];
        each<2>([&](auto h) INLINE_LAMBDA {
            each<kPairs>([&](auto p) INLINE_LAMBDA { pairs[h][p] = load_words(column + (2 * p + h) * kWords); });
            squares[h] = load_words(column + (2 * kPairs + h) * kWords);
        });
        each<R>([&](auto r) INLINE_LAMBDA {
            Words sums[2];
            each<2>([&](auto h) INLINE_LAMBDA {
                sums[h] = norms[r] + squares[h];
                each<kPairs>([&](auto p) INLINE_LAMBDA { sums[h] = add_products<kFused>(sums[h], x[r][p], pairs[h][p]); });
                sums[h] = in_units(sums[h]);
            });
            costs[r] = pack(sums[0], sums[1]);
        });
    }
    INLINE Words in_units(Words squared) const {
        if (!kRoots) return (Words)((Naturals)squared >> shift);
        const Float root = square_root<float>(__builtin_convertvector((Words)((Naturals)squared >> 1), Float)) * scale;
        return __builtin_convertvector(min(root, splat(65535.0f)), Words);
    }
};

INLINE int64_t whole_fours(int64_t count) { return (count + 3) / 4 * 4; }

class Leading {
public:
    Leading(int64_t n, int64_t reach) : n_(n), reach_(min(reach, n)), fused_(has_fused_products()) {}

    // Frames first..last of the items, (frames, leads) each, one to a lane.
    __attribute__((noinline)) void lay(const int16_t* const* items, int64_t first, int64_t last) {
        constexpr int kFrames = 4 / kPairs;
        int32_t* to = y_.reserve((n_ + kFrames) * kColumn);
        for (int64_t t = first / kFrames * kFrames; t <= last; t += kFrames)
            each<2>([&](auto half) INLINE_LAMBDA {
                Words words[4];
                load_four([&](int l) INLINE_LAMBDA { return items[place_of(half, l)] + t * kLeads; }, words);
                each<kFrames>([&](auto f) INLINE_LAMBDA {
                    int32_t* column = to + (t + f) * kColumn + half * kWords;
                    Words squares = Words{};
                    each<kPairs>([&](auto p) INLINE_LAMBDA {
                        const Words pair = words[f * kPairs + p];
                        squares = add_products<false>(squares, pair, pair);
                        store_words(column + 2 * p * kWords, pair);
                    });
                    store_words(column + 2 * kPairs * kWords, squares);
                });
            });
    }
    // Rows from..to - 1 of the items that were laid against a query; the row above is in `row`. ahead (segments, lanes): what
    // the rows from the end of a segment on cost at least, with all other channels. Returns those of the lanes that may be
    // within the limit. Unless `to` is n, it is a multiple of a segment, as `from` is.
    uint32_t advance(bool roots, const QueryFrame* x, LeadUnits units, const uint16_t* ahead, int64_t segments, uint16_t limit,
                     int64_t from, int64_t to, uint32_t lanes) {
        row_.reserve(row_size());
        if (roots) return run<true, false>(x, units, ahead, segments, limit, from, to, lanes);
        return fused_ ? run<false, true>(x, units, ahead, segments, limit, from, to, lanes)
                      : run<false, false>(x, units, ahead, segments, limit, from, to, lanes);
    }
    // The columns that a row reads.
    int64_t first_column(int64_t i) const { return max(int64_t(0), i - reach_); }
    int64_t last_column(int64_t i) const { return min(n_ - 1, i + reach_); }
    // Words of a lane's state after some rows: what rows below read of the last.
    int64_t state_size() const { return whole_fours((min(n_, 2 * reach_ + 1) + 1) / 2); }
    // The state of all lanes after rows 0..i; and back.
    __attribute__((noinline)) void save(int64_t i, int32_t* const* to) {
        for (int64_t t = 0; t < state_size(); t += 4)
            each<2>([&](auto half) INLINE_LAMBDA {
                Words words[4];
                for (int w = 0; w < 4; ++w) {
                    const int64_t j = first_column(i) + 2 * (t + w);
                    words[w] = unpack<decltype(half)::value>(cell(j), cell(j + 1));
                }
                store_four(words, [&](int l) INLINE_LAMBDA { return to[place_of(half, l)] + t; });
            });
    }
    __attribute__((noinline)) void restore(int64_t i, const int32_t* const* from) {
        row_.reserve(row_size());
        for (int64_t t = 0; t < state_size(); t += 4) {
            Words words[2][4];
            each<2>([&](auto half) INLINE_LAMBDA {
                load_four([&](int l) INLINE_LAMBDA { return from[place_of(half, l)] + t; }, words[half]);
            });
            for (int w = 0; w < 4; ++w) {
                const int64_t j = first_column(i) + 2 * (t + w);
                store_words(row(j), pack(words[0][w] & 0xffff, words[1][w] & 0xffff));
                store_words(row(j + 1), pack((Words)((Naturals)words[0][w] >> 16), (Words)((Naturals)words[1][w] >> 16)));
            }
        }
    }
    // Cells since the last call.
    int64_t cells() {
        const int64_t count = cells_;
        cells_ = 0;
        return count;
    }

private:
    static constexpr int kRows = 2;
    const int64_t n_, reach_;
    const bool fused_;
    int64_t cells_ = 0;
    Buffer<int32_t> y_;     // (frames, kColumn)
    Buffer<uint16_t> row_;  // (n, lanes): the last row

    int64_t row_size() const { return (n_ + 2 * state_size() + 2) * kWide; }
    uint16_t* row(int64_t j) { return row_.get() + j * kWide; }
    Shorts cell(int64_t j) { return (Shorts)load_words(row(j)); }

    template <bool kRoots, bool kFused>
    __attribute__((noinline)) uint32_t run(const QueryFrame* x, LeadUnits units, const uint16_t* ahead, int64_t segments,
                                           uint16_t limit, int64_t from, int64_t to, uint32_t lanes) {
        for (int64_t done = from; done < to && lanes;) {
            const int64_t before = done;
            if (to - done >= kRows) strip<kRows, kRoots, kFused>(x, units, done), done += kRows;
            else strip<1, kRoots, kFused>(x, units, done), ++done;
            cells_ += (done - before) * min(n_, 2 * reach_ + 1) * __builtin_popcount(lanes);
            if (done % kSegment && done < n_) continue;
            const Shorts best = done < n_ ? least_of(first_column(done - 1), last_column(done - 1)) : cell(n_ - 1);
            const uint16_t* rest = ahead + (min(done / kSegment, segments) - 1) * kWide;
            lanes &= at_most(add(best, (Shorts)load_words(rest)), limit);
        }
        return lanes;
    }
    // Four at a time: one after another, they would wait for each other.
    INLINE Shorts least_of(int64_t first, int64_t last) {
        Shorts best[4];
        each<4>([&](auto k) INLINE_LAMBDA { best[k] = cell(min(first + k, last)); });
        for (int64_t j = first + 4; j <= last; j += 4)
            each<4>([&](auto k) INLINE_LAMBDA { best[k] = least(best[k], cell(min(j + k, last))); });
        return least(least(best[0], best[1]), least(best[2], best[3]));
    }
    // R rows from `top`, over all columns that any of them reads: a few more make the bound a little lower. Costs of a column
    // are computed for all rows at once; row r takes them r turns later, so that no cell depends on another in the same turn.
    template <int R, bool kRoots, bool kFused> INLINE void strip(const QueryFrame* x, LeadUnits units, int64_t top) {
        const int64_t first = first_column(top), last = last_column(top + R - 1);
        const Shorts unreachable = splat_short(65535);
        for (int64_t j = top > 0 ? last_column(top - 1) + 1 : 0; j <= last; ++j) store_words(row(j), unreachable);
        const LeadCosts<R, kRoots, kFused> costs(x + top, y_.get(), units);
        Shorts cells[R], pending[R], waiting[R][R];
        each<R>([&](auto r) INLINE_LAMBDA {
            cells[r] = pending[r] = unreachable;
            each<R>([&](auto k) INLINE_LAMBDA { waiting[r][k] = unreachable; });
        });
        if (top == 0) pending[0] = Shorts{};
        else if (first > 0) pending[0] = cell(first - 1);
        const auto turn = [&](int64_t j, auto inside, auto done) INLINE_LAMBDA {
            Shorts cost[R];
            each<R>([&](auto r) INLINE_LAMBDA { cost[r] = unreachable; });
            if (inside) costs(j, cost);
            each<R>([&](auto k) INLINE_LAMBDA {
                constexpr int r = R - 1 - k;
                const Shorts up = r > 0 ? cells[r > 0 ? r - 1 : 0] : inside ? cell(j) : unreachable;
                const Shorts next = add(least(pending[r], up), r > 0 ? waiting[r][0] : cost[0]);
                pending[r] = least(up, next), cells[r] = next;
            });
            each<R>([&](auto r) INLINE_LAMBDA {
                each<R - 1>([&](auto k) INLINE_LAMBDA { waiting[r][k] = k + 1 == r ? cost[r] : waiting[r][k + 1]; });
            });
            if (done) store_words(row(j - (R - 1)), cells[R - 1]);
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
