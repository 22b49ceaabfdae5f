// Many alignments at once: each lane holds one pair, and one sweep over the columns keeps several rows in registers.
// A Step defines the computation at a cell:
//     Step::Cell                      what a lane keeps of a cell; Step::unreachable(), step.origin(), step.above()
//     Step::pend(diagonal, left)      the contribution of two neighbours to the next cell of a row, a Step::Pending
//     step(pending, up, cost, i, j)   the next cell
//     Step::keep(cell, inside)        the cell where it is inside its window, unreachable elsewhere
//     Step::kRows, Step::kCostsAhead  rows kept in registers, and whether there is room for costs beside them
#pragma once
#include <type_traits>

#include "problem.h"
#include "simd.h"
#include "stop.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// A square tile: kTile numbers of each of kTile rows, 16 bytes per row.
template <class T> constexpr int kTile = 16 / int(sizeof(T));
template <class T> struct Tile {
    typedef T Row __attribute__((vector_size(16)));
    typedef T Unaligned __attribute__((vector_size(16), aligned(sizeof(T))));
    Row rows[kTile<T>];

    INLINE void transpose() {
        const Tile from = *this;
        for (int i = 0; i < kTile<T>; ++i)
            for (int j = 0; j < kTile<T>; ++j) rows[i][j] = from.rows[j][i];
    }
};
#if defined(__clang__) || __GNUC__ >= 12
template <> INLINE void Tile<float>::transpose() {
    const Row a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5), b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const Row c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7), d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    rows[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    rows[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    rows[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}
#endif
template <class T> INLINE typename Tile<T>::Row load_row(const T* from) {
    return *reinterpret_cast<const typename Tile<T>::Unaligned*>(from);
}
template <class T> INLINE void store_row(T* to, typename Tile<T>::Row row) {
    *reinterpret_cast<typename Tile<T>::Unaligned*>(to) = row;
}

// W items side by side: element (step, channel) of lane l at [(step * channels + channel) * W + l], zeros as padding.
template <class T>
void interleave(const T* values, const int64_t* lengths, int64_t steps, int64_t channels, const int64_t* items,
                int64_t longest, T* to) {
    const T* from[W<T>];
    int64_t size[W<T>];
    for (int l = 0; l < W<T>; ++l) {
        from[l] = values + items[l] * steps * channels;
        size[l] = lengths[items[l]] * channels;
    }
    int64_t shortest = longest * channels;
    for (int l = 0; l < W<T>; ++l) shortest = min(shortest, size[l]);
    int64_t t = 0;
    for (; t + kTile<T> <= shortest; t += kTile<T>)
        for (int l = 0; l < W<T>; l += kTile<T>) {
            Tile<T> tile;
            for (int i = 0; i < kTile<T>; ++i) tile.rows[i] = load_row(from[l + i] + t);
            tile.transpose();
            for (int i = 0; i < kTile<T>; ++i) store_row(to + (t + i) * W<T> + l, tile.rows[i]);
        }
    for (; t < longest * channels; ++t)
        for (int l = 0; l < W<T>; ++l) to[t * W<T> + l] = t < size[l] ? from[l][t] : T(0);
}

// And back: adds sums, laid out like that, to the first size[l] numbers of each to[l].
template <class T> void add_apart(const T* sums, const int64_t* size, T* const* to) {
    for (int l = 0; l < W<T>; l += kTile<T>) {
        int64_t shortest = size[l], t = 0;
        for (int i = 1; i < kTile<T>; ++i) shortest = min(shortest, size[l + i]);
        for (; t + kTile<T> <= shortest; t += kTile<T>) {
            Tile<T> tile;
            for (int i = 0; i < kTile<T>; ++i) tile.rows[i] = load_row(sums + (t + i) * W<T> + l);
            tile.transpose();
            for (int i = 0; i < kTile<T>; ++i) store_row(to[l + i] + t, load_row(to[l + i] + t) + tile.rows[i]);
        }
        for (int i = 0; i < kTile<T>; ++i)
            for (int64_t s = t; s < size[l + i]; ++s) to[l + i][s] += sums[s * W<T> + l + i];
    }
}

// The columns lo..hi of each row of one strip that are inside the window of any lane, and which lanes those are: all,
// or those that have the column inside their own window.
template <class T, int R> struct SharedWindow {
    static constexpr bool kLanesDiffer = false;
    int64_t lo[R], hi[R];
    template <class Step> INLINE typename Step::Cell keep(typename Step::Cell cell, int, int64_t) const { return cell; }
};
template <class T, int R> struct LaneWindow {
    static constexpr bool kLanesDiffer = true;
    int64_t lo[R], hi[R];
    I<T> lane_lo[R], lane_hi[R];
    template <class Step> INLINE typename Step::Cell keep(typename Step::Cell cell, int r, int64_t j) const {
        const I<T> column = I<T>{} + static_cast<typename Lanes<T>::Bits>(j);
        return Step::keep(cell, (column >= lane_lo[r]) & (column <= lane_hi[r]));
    }
};

// Costs of R rows and of the columns j..j + N - 1: of a single channel...
template <class T, int R, bool kEuclidean> struct ChannelCosts {
    const T* y;
    V<T> x[R];

    // x is one item that all lanes share, or W interleaved ones.
    ChannelCosts(const T* from, bool shared, const T* y) : y(y) {
        for (int r = 0; r < R; ++r) x[r] = shared ? splat(from[r]) : load(from + r * W<T>);
    }
    INLINE V<T> operator()(int r, int64_t j) const {
        const V<T> difference = subtract<T>(load(y + j * W<T>), x[r]);
        return kEuclidean ? max(difference, -difference) : difference * difference;
    }
    template <int N> INLINE void operator()(int64_t j, V<T> (&cost)[N][R]) const {
#pragma GCC unroll 16
        for (int r = 0; r < N * R; ++r) cost[r / R][r % R] = (*this)(r % R, j + r / R);
    }
};
// ...and squared, of several, whose sums are computed together and share the loads of x and y.
template <class T, int R, bool kShared> struct BlockCosts {
    const T *x, *y;
    int64_t channels;

    template <int N> INLINE void operator()(int64_t j, V<T> (&cost)[N][R]) const {
#pragma GCC unroll 16
        for (int r = 0; r < N * R; ++r) cost[r / R][r % R] = V<T>{};
        for (int64_t k = 0; k < channels; ++k) {
            V<T> y_k[N];
            for (int c = 0; c < N; ++c) y_k[c] = load(y + ((j + c) * channels + k) * W<T>);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const int64_t at = r * channels + k;
                const V<T> x_k = kShared ? splat(x[at]) : load(x + at * W<T>);
#pragma GCC unroll 2
                for (int c = 0; c < N; ++c) cost[c][r] += (y_k[c] - x_k) * (y_k[c] - x_k);
            }
        }
    }
};

// Costs computed ahead for the columns first..last, and kept in `scratch`.
template <class T, int R> struct CostsAhead {
    const V<T>* costs;

    template <class Costs> CostsAhead(const Costs& block, int64_t first, int64_t last, Buffer<V<T>>& scratch) {
        V<T>* to = scratch.reserve((last - first + 1) * R) - first * R;
        costs = to;
        const auto columns = [&](int64_t j, auto count) INLINE_LAMBDA {
            V<T> cost[count][R];
            block(j, cost);
            for (int r = 0; r < R * count; ++r) to[j * R + r] = cost[r / R][r % R];
        };
        int64_t j = first;
        for (; j < last; j += 2) columns(j, Constant<2>());
        for (; j <= last; ++j) columns(j, Constant<1>());
    }
    INLINE V<T> operator()(int r, int64_t j) const { return costs[j * R + r]; }
};

// Of R rows of x and any number of channels. One function for every step and window: fewer instances to compile.
template <class T, int R>
__attribute__((noinline)) CostsAhead<T, R> costs_ahead(const T* x, bool shared, const T* y, int64_t channels, bool euclidean,
                                                       int64_t first, int64_t last, Buffer<V<T>>& scratch) {
    if (channels == 1 && euclidean) return {ChannelCosts<T, R, true>(x, shared, y), first, last, scratch};
    if (channels == 1) return {ChannelCosts<T, R, false>(x, shared, y), first, last, scratch};
    const CostsAhead<T, R> ahead = shared ? CostsAhead<T, R>(BlockCosts<T, R, true>{x, y, channels}, first, last, scratch)
                                          : CostsAhead<T, R>(BlockCosts<T, R, false>{x, y, channels}, first, last, scratch);
    if (euclidean)
        for (int64_t k = 0; k < (last - first + 1) * R; ++k) scratch[k] = square_root<T>(scratch[k]);
    return ahead;
}

// Advance `row` (the row above, one cell per column) by R rows, of which the first is `top`, over the columns
// first..last; between inner_first and inner_last every row is inside its window. `corner` is left of row[first].
// Row r is r columns behind the first, so that no cell depends on another in the same turn; `row` is read as far as they are
// behind, beyond its end.
template <class T, int R, class Step, class Window, class Costs>
INLINE void sweep_rows(const Step step, const Costs& costs, const Window& window, int64_t top, int64_t first, int64_t last,
                       int64_t inner_first, int64_t inner_last, typename Step::Cell corner, typename Step::Cell* row) {
    using Cell = typename Step::Cell;
    Cell cell[R];
    typename Step::Pending pending[R];
    each<R>([&](auto r) INLINE_LAMBDA {
        cell[r] = Step::unreachable();
        pending[r] = Step::pend(r > 0 ? Step::unreachable() : corner, Step::unreachable());
    });
    // On turn s, the rows from..to are at columns s - r.
    const auto turn = [&](int64_t s, auto from, auto to, auto masked) INLINE_LAMBDA {
        each<to - from + 1>([&](auto k) INLINE_LAMBDA {
            constexpr int r = to - k;
            const int64_t j = s - r;
            const Cell up = r > 0 ? cell[r > 0 ? r - 1 : 0] : row[s];
            Cell next = Step::unreachable();
            if (!masked || (j >= window.lo[r] && j <= window.hi[r])) {
                next = step(pending[r], up, costs(r, j), top + r, j);
                if (masked) next = window.template keep<Step>(next, r, j);
            }
            pending[r] = Step::pend(up, next);
            cell[r] = next;
        });
        if (to == R - 1 && (!masked || s - (R - 1) >= first)) row[s - (R - 1)] = cell[R - 1];
    };
    const Constant<0> begin;
    const Constant<R - 1> end;
    const Constant<false> whole;
    const Constant<true> masked;
    if constexpr (Window::kLanesDiffer) {
        for (int64_t s = first; s < last + R; ++s) turn(s, begin, end, masked);
        return;
    }
    // Rows that begin and end together need no mask: there are fewer of them on the first and last turns.
    const bool together = inner_first == first && inner_last == last && last - first >= R - 1;
    int64_t s = first;
    if (together) each<R - 1>([&](auto r) INLINE_LAMBDA { turn(s++, begin, r, whole); });
    else for (; s < min(inner_first + R - 1, last + R); ++s) turn(s, begin, end, masked);
    for (; s <= inner_last; ++s) turn(s, begin, end, whole);
    if (together) each<R - 1>([&](auto r) INLINE_LAMBDA { turn(s++, Constant<r + 1>(), end, whole); });
    else for (; s < last + R; ++s) turn(s, begin, end, masked);
}

// The columns of a strip of R rows from `top` that are inside any lane's window, and those where every row is.
template <class T, int R>
void set_window(const Window& rule, SharedWindow<T, R>& window, const int64_t* n, const int64_t* m, int64_t widest,
                int64_t top, int64_t& first, int64_t& last, int64_t& inner_first, int64_t& inner_last) {
    for (int r = 0; r < R; ++r) {
        window.lo[r] = 0;
        window.hi[r] = widest - 1;
        if (rule.kind != WindowKind::none)
            window_row(rule, n[0], m[0], top + r, window.lo[r], window.hi[r]);
    }
    first = window.lo[0];
    last = window.hi[R - 1];
    inner_first = window.lo[R - 1];
    inner_last = window.hi[0];
}
template <class T, int R>
void set_window(const Window& rule, LaneWindow<T, R>& window, const int64_t* n, const int64_t* m, int64_t widest,
                int64_t top, int64_t& first, int64_t& last, int64_t&, int64_t&) {
    for (int r = 0; r < R; ++r) {
        window.lo[r] = widest;
        window.hi[r] = -1;
        for (int l = 0; l < W<T>; ++l) {
            int64_t lo = widest, hi = -1;  // a lane that has ended has no columns
            if (top + r < n[l]) window_row(rule, n[l], m[l], top + r, lo, hi);
            window.lane_lo[r][l] = static_cast<typename Lanes<T>::Bits>(lo);
            window.lane_hi[r][l] = static_cast<typename Lanes<T>::Bits>(hi);
            window.lo[r] = min(window.lo[r], lo);
            window.hi[r] = max(window.hi[r], hi);
        }
    }
    first = window.lo[0];
    last = window.hi[0];
    for (int r = 1; r < R; ++r) {
        first = min(first, window.lo[r]);
        last = max(last, window.hi[r]);
    }
}

// The columns of row i inside the window of any lane.
template <class T> void union_row(const Window& window, const int64_t* n, const int64_t* m, int64_t i, int64_t& first, int64_t& last) {
    first = int64_t(1) << 62;
    last = -1;
    for (int l = 0; l < W<T>; ++l) {
        if (i >= n[l]) continue;  // a lane that has ended has no columns
        int64_t lo, hi;
        window_row(window, n[l], m[l], i, lo, hi);
        first = min(first, lo);
        last = max(last, hi);
    }
}

// An alignment that is never abandoned.
struct Always {
    template <class Cell> INLINE bool operator()(int64_t, const Cell*, int64_t, int64_t) const { return true; }
};

// The rows of an alignment that are to be computed, from..to - 1, and the row above them, of lanes of equal lengths: what
// an earlier run left of its last row. Without it, all rows.
template <class Cell> struct Part {
    int64_t from = 0, to = int64_t(1) << 62;
    const Cell* above = nullptr;
};

// W alignments of interleaved y's with one x, or with W interleaved x's. Lanes may differ in both lengths: a lane's
// value is read off its own last row and column, which nothing beyond them can reach.
template <class T, class Step> class LaneBlock {
public:
    using Cell = typename Step::Cell;
    explicit LaneBlock(const Problem& problem) : problem_(problem), row_(problem.y_steps + Step::kRows) {}

    // x is one item that all lanes share, or W interleaved ones. Calls ended(l, row) when row holds the last row of lane
    // l. After each strip of rows, calls going(rows done, row, first column, last column), and stops if it is false.
    template <class Ended, class Going = Always>
    void run(const Step step, const T* x, bool shared, const int64_t* n, const T* y, const int64_t* m, const Ended& ended,
             const Going& going = Going(), const Part<Cell>& part = {}) {
        constexpr int kRows = Step::kRows;
        int64_t longest = 0;
        begin(step, n, m, longest);
        longest = min(longest, part.to);
        int64_t done = part.from;
        if (part.above) {
            before_last_ = widest_ - 1;
            if (problem_.window.kind != WindowKind::none) window_row(problem_.window, n[0], m[0], done - 1, before_first_, before_last_);
            for (int64_t j = before_first_; j <= before_last_; ++j) row_[j] = part.above[j];
        }
        while (done < longest) {
            stop_if_asked();
            int64_t until = longest;  // strips end where a lane ends
            for (int l = 0; l < W<T>; ++l)
                if (n[l] > done) until = min(until, n[l]);
            const T* from = x + done * problem_.channels * (shared ? 1 : W<T>);
            const auto sweep = [&](auto count) {
                constexpr int R = decltype(count)::value;
                if (apart_) strip<R, LaneWindow<T, R>>(step, from, shared, y, n, m, done);
                else strip<R, SharedWindow<T, R>>(step, from, shared, y, n, m, done);
                done += R;
            };
            // A single row takes as long as several: its cells wait for each other.
            if (until - done >= kRows) sweep(std::integral_constant<int, kRows>());
            else if (until - done >= kRows / 2) sweep(std::integral_constant<int, kRows / 2>());
            else sweep(std::integral_constant<int, 1>());
            for (int l = 0; l < W<T>; ++l)
                if (n[l] == done) ended(l, row_.get());
            if (!going(done, row_.get(), before_first_, before_last_)) return;
        }
    }

    // The last row that was computed.
    const Cell* row() const { return row_.get(); }

private:
    const Problem& problem_;
    Buffer<Cell> row_;
    Buffer<V<T>> costs_;
    int64_t widest_ = 0, before_first_ = 0, before_last_ = -1;  // the columns of the strip above
    bool apart_ = false;  // lanes have windows of their own

    void begin(const Step& step, const int64_t* n, const int64_t* m, int64_t& longest) {
        bool alike = true;
        widest_ = 0;
        for (int l = 0; l < W<T>; ++l) {
            longest = max(longest, n[l]);
            widest_ = max(widest_, m[l]);
            alike &= n[l] == n[0] && m[l] == m[0];
        }
        fill(row_.get(), widest_, step.above());
        before_first_ = 0;
        before_last_ = -1;
        apart_ = problem_.window.kind != WindowKind::none && !alike;
    }

    template <int R, class Columns>
    __attribute__((noinline)) void strip(const Step step, const T* x, bool shared, const T* y, const int64_t* n,
                                         const int64_t* m, int64_t top) {
        Columns window;
        int64_t first = 0, last = widest_ - 1, inner_first = 0, inner_last = widest_ - 1;
        set_window(problem_.window, window, n, m, widest_, top, first, last, inner_first, inner_last);
        // Columns that the strip above did not reach are unreachable from there, but for the row above the first.
        if (top > 0)
            for (int64_t j = before_last_ + 1; j <= last; ++j) row_[j] = Step::unreachable();
        Cell corner = top == 0 ? step.origin() : Step::unreachable();
        if (first > before_first_) corner = row_[first - 1];
        if (inner_first > inner_last) inner_first = last + 1, inner_last = last;
        const auto sweep = [&](const auto& costs) INLINE_LAMBDA {
            sweep_rows<T, R>(step, costs, window, top, first, last, inner_first, inner_last, corner, row_.get());
        };
        const bool euclidean = problem_.ground == Ground::euclidean;
        // Squares of one channel are always computed where they are needed: a square and its sum with a cell are then
        // rounded once, and a value does not depend on the lanes beside it. Distances are computed ahead except in the
        // common case, which needs fewer instances.
        constexpr bool kCommon = !Columns::kLanesDiffer && R > 1;
        const bool ahead = Step::kCostsAhead || problem_.channels > 1 || (euclidean && !kCommon);
        if constexpr (!Step::kCostsAhead) {
            if (!ahead && !euclidean) sweep(ChannelCosts<T, R, false>(x, shared, y));
            if constexpr (kCommon)
                if (!ahead && euclidean) sweep(ChannelCosts<T, R, true>(x, shared, y));
        }
        if (ahead) sweep(costs_ahead<T, R>(x, shared, y, problem_.channels, euclidean, first, last, costs_));
        before_first_ = first;
        before_last_ = last;
    }
};

// Fill the lanes beyond `count` with the last item: they are computed and not written.
template <class T> int64_t lane_items(const int64_t* order, int64_t count, int64_t block, int64_t* items) {
    const int64_t begin = block * W<T>, used = min(int64_t(W<T>), count - begin);
    for (int l = 0; l < W<T>; ++l) items[l] = order[begin + min(int64_t(l), used - 1)];
    return used;
}

template <class T> int64_t lane_lengths(const int64_t* lengths, const int64_t* items, int64_t* to) {
    int64_t longest = 0;
    for (int l = 0; l < W<T>; ++l) {
        to[l] = lengths[items[l]];
        longest = max(longest, to[l]);
    }
    return longest;
}

// The pairs of one block of lanes, with their sequences side by side.
template <class T> struct LanePairs {
    int64_t used = 0;  // lanes that hold a pair of their own
    int64_t pairs[W<T>], n[W<T>], m[W<T>], longest = 0, widest = 0;
    Buffer<T> x, y;

    // `more` rows of zeros follow the longest x.
    void select(const Problem& problem, const int64_t* order, int64_t count, int64_t block, int64_t more = 0) {
        int64_t x_items[W<T>], y_items[W<T>];
        const int64_t channels = problem.channels;
        used = lane_items<T>(order, count, block, pairs);
        for (int l = 0; l < W<T>; ++l) {
            x_items[l] = row_of(problem, pairs[l]);
            y_items[l] = column_of(problem, pairs[l]);
        }
        longest = lane_lengths<T>(problem.x_lengths, x_items, n);
        widest = lane_lengths<T>(problem.y_lengths, y_items, m);
        x.reserve((longest + more) * channels * W<T>);
        y.reserve(widest * channels * W<T>);
        interleave(static_cast<const T*>(problem.x), problem.x_lengths, problem.x_steps, channels, x_items, longest, x.get());
        interleave(static_cast<const T*>(problem.y), problem.y_lengths, problem.y_steps, channels, y_items, widest, y.get());
        fill(x.get() + longest * channels * W<T>, more * channels * W<T>, T(0));
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
