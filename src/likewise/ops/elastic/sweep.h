// Tables of W pairs at once: each lane holds one pair, and a few rows stay in registers while the columns go by.
#pragma once
#include "../lanes.h"
#include "moves.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int kStrip = 4;  // rows in registers: enough that no cell waits for another

// The sequences and gaps of W pairs. x is one item that all lanes share (numbers), or W items (vectors).
template <class T> struct LaneData {
    const T *x, *x_gaps;
    bool shared;
    const T *y, *y_gaps;
    const int64_t *n, *m;

    INLINE V<T> of_x(const T* values, int64_t i) const { return shared ? splat(values[i]) : load(values + i * W<T>); }
};

template <class T> INLINE Plain<T> keep_cell(I<T> inside, Plain<T> cell, Plain<T> other) {
    return {inside ? cell.value : other.value};
}
template <class T> INLINE WithCost<T> keep_cell(I<T> inside, WithCost<T> cell, WithCost<T> other) {
    return {inside ? cell.value : other.value, inside ? cell.cost : other.cost};
}

template <class T> INLINE WithSum<T> keep_cell(I<T> inside, WithSum<T> cell, WithSum<T> other) {
    return {inside ? cell.value : other.value, inside ? cell.sum : other.sum};
}

// Costs of one channel, computed where they are needed.
template <class T, int R, bool kSquared> struct OneChannel {
    const T* y;
    V<T> x[R];
    INLINE V<T> operator()(int r, int64_t j) const {
        const V<T> difference = subtract<T>(load(y + j * W<T>), x[r]);
        return kSquared ? difference * difference : absolute<T>(difference);
    }
};

// The moves of a strip: of each cell, 0 diagonal, 1 from above, 2 from the left, a byte a lane.
template <class T> struct Moved {
    typedef int8_t Bytes __attribute__((vector_size(W<T>)));
    int8_t* to;  // of row 0, column 0
    int64_t columns;

    INLINE void operator()(int64_t i, int64_t j, const Ways<T>& ways) const {
        const I<T> gap = ways.left < ways.up ? I<T>{} + 2 : I<T>{} + 1;
        const I<T> move = min(ways.up, ways.left) < ways.diagonal ? gap : I<T>{};
        const Bytes bytes = __builtin_convertvector(move, Bytes);
        std::memcpy(to + (i * columns + j) * W<T>, &bytes, sizeof(bytes));
    }
};

template <class T, class Moves> class Block {
public:
    using Cell = typename Moves::Cell;
    // The last row that was computed, the columns it has, and what lies left of it.
    struct State {
        Buffer<Cell> row;
        int64_t first = 0, last = -1;
        V<T> border = V<T>{};
    };

    Block(const ElasticProblem& given, bool traced) : given_(given), traced_(traced) {}

    int64_t longest() const { return longest_; }
    int64_t widest() const { return widest_; }
    int64_t room() const { return widest_ + kStrip; }  // a sweep reads beyond the last column

    // The state above the first row.
    void begin(const LaneData<T>& lanes, State& state) {
        lanes_ = lanes;
        longest_ = widest_ = 0;
        bool alike = true, same_longest = true;
        for (int l = 0; l < W<T>; ++l) {
            longest_ = max(longest_, lanes.n[l]);
            widest_ = max(widest_, lanes.m[l]);
            alike &= lanes.n[l] == lanes.n[0] && lanes.m[l] == lanes.m[0];
            same_longest &= max(lanes.n[l], lanes.m[l]) == max(lanes.n[0], lanes.m[0]);
        }
        apart_ = (problem().window.kind != WindowKind::none && !alike) || (given_.weights && !same_longest);
        build_table();
        state.row.reserve(room());
        state.first = 0, state.last = -1;
        state.border = given_.border == Border::none ? splat(kInfinity<T>) : V<T>{};
        V<T> above = V<T>{};
        for (int64_t j = 0; j < widest_; ++j) {
            if (given_.border == Border::gaps) above += load(lanes.y_gaps + j * W<T>);
            const bool free = problem().open_begin || given_.border == Border::free;
            state.row[j] = free ? Moves::border(V<T>{}) : given_.border == Border::gaps ? Moves::border(above) : unreachable();
        }
    }

    // Computes the rows [from, to).
    void advance(const Moves& moves, State& state, int64_t from, int64_t to) {
        for (; from + kStrip <= to; from += kStrip)
            apart_ ? strip<kStrip, true>(moves, state, from, nullptr) : strip<kStrip, false>(moves, state, from, nullptr);
        for (; from < to; ++from)
            apart_ ? strip<1, true>(moves, state, from, nullptr) : strip<1, false>(moves, state, from, nullptr);
    }
    // The same, and keeps the moves, from those of row `from` on.
    void record(const Moves& moves, State& state, int64_t from, int64_t to, int8_t* moved) {
        const Moved<T> recorder{moved - from * widest_ * W<T>, widest_};
        for (; from + kStrip <= to; from += kStrip)
            apart_ ? strip<kStrip, true>(moves, state, from, &recorder) : strip<kStrip, false>(moves, state, from, &recorder);
        for (; from < to; ++from) strip<1, true>(moves, state, from, &recorder);  // one instance less to compile
    }

    // The value of lane l, and the column where it is read, given its last row.
    T value(const Moves& moves, const State& state, int l, int64_t& column) const {
        const int64_t n = lanes_.n[l], m = lanes_.m[l];
        column = m - 1;
        if (!problem().open_end) return moves.result(state.row[column])[l];
        T best = rank(moves, state.row[column])[l];
        int64_t lo, hi;
        window_row(problem().window, n, m, n - 1, lo, hi);
        for (int64_t j = hi; j >= lo; --j) {
            const T found = rank(moves, state.row[j])[l];
            if (found <= best) best = found, column = j;
        }
        return moves.result(state.row[column])[l];
    }

    // A bound from below on what any path through the last row can still come to.
    V<T> lowest(const State& state, int64_t done) const {
        V<T> found = state.first == 0 ? state.border : splat(kInfinity<T>);
        for (int64_t j = state.first; j <= state.last; ++j) found = min(found, reached(state.row[j]));
        if (given_.recurrence != Recurrence::count || given_.hit >= 0) return found;
        return found + splat(T(given_.hit * double(longest_ - done)));
    }

private:
    const ElasticProblem& given_;
    const bool traced_;  // moves are recorded
    LaneData<T> lanes_{};
    int64_t longest_ = 0, widest_ = 0, table_rows_ = -1, table_columns_ = -1;
    bool apart_ = false;
    Buffer<V<T>> costs_, lane_table_;
    Buffer<T> table_;

    const Problem& problem() const { return given_.problem; }
    static INLINE Cell unreachable() { return Moves::border(splat(kInfinity<T>)); }
    static INLINE V<T> reached(const Plain<T>& cell) { return cell.value; }
    static INLINE V<T> reached(const WithCost<T>& cell) { return cell.value; }
    static INLINE V<T> reached(const WithSum<T>& cell) { return cell.sum; }

    // o(i, j).
    INLINE V<T> own_cost(int64_t i, int64_t j) const {
        const int64_t channels = problem().channels;
        V<T> total{};
        for (int64_t c = given_.own_first; c < given_.own_first + given_.own_count; ++c) {
            const V<T> difference = subtract<T>(load(lanes_.y + (j * channels + c) * W<T>), lanes_.of_x(lanes_.x, i * channels + c));
            total += difference * difference;
        }
        return total;
    }

    // t(i - j) at i - j + widest - 1: a number, or a vector where lanes differ.
    void build_table() {
        if constexpr (Moves::kTable == Table::none) return;
        const int64_t size = longest_ + widest_;
        const auto entry = [&](int64_t distance, int64_t longest) -> T {
            if (Moves::kTable == Table::summand) return T(given_.slope * double(distance));
            if (!given_.weights) return T(1);
            const int64_t at = 2 * distance - longest + given_.longest;
            return static_cast<const T*>(given_.weights)[max(int64_t(0), min(at, 2 * given_.longest))];
        };
        if (apart_ || traced_) {
            V<T>* to = lane_table_.reserve(size);
            for (int64_t k = 0; k < size; ++k)
                for (int l = 0; l < W<T>; ++l) {
                    const int64_t offset = k - (widest_ - 1);
                    to[k][l] = entry(offset < 0 ? -offset : offset, max(lanes_.n[l], lanes_.m[l]));
                }
        }
        if (apart_) return;
        if (longest_ == table_rows_ && widest_ == table_columns_) return;
        table_rows_ = longest_, table_columns_ = widest_;
        T* to = table_.reserve(size);
        for (int64_t k = 0; k < size; ++k) {
            const int64_t offset = k - (widest_ - 1);
            to[k] = entry(offset < 0 ? -offset : offset, max(longest_, widest_));
        }
    }

    template <int R, bool kApart>
    __attribute__((noinline)) void strip(const Moves& moves, State& state, int64_t top, const Moved<T>* recorder) {
        using Columns = std::conditional_t<kApart, LaneWindow<T, R>, SharedWindow<T, R>>;
        Columns window;
        int64_t first = 0, last = widest_ - 1, inner_first = 0, inner_last = widest_ - 1;
        set_window(problem().window, window, lanes_.n, lanes_.m, widest_, top, first, last, inner_first, inner_last);
        if (inner_first > inner_last) inner_first = last + 1, inner_last = last;
        // Columns that the strip above did not reach are unreachable from there, but for the row above the first.
        if (top > 0)
            for (int64_t j = state.last + 1; j <= last; ++j) state.row[j] = unreachable();
        Strip<R> rows;
        rows.top = top, rows.first = first, rows.last = last, rows.inner_first = inner_first, rows.inner_last = inner_last;
        rows.corner = top == 0 ? Moves::border(V<T>{}) : first == 0 ? Moves::border(state.border) : unreachable();
        if (first > state.first) rows.corner = state.row[first - 1];
        for (int r = 0; r < R; ++r) {
            rows.x_gap[r] = Moves::kGaps ? lanes_.of_x(lanes_.x_gaps, top + r) : V<T>{};
            if (given_.border == Border::gaps) state.border += rows.x_gap[r];
            rows.border[r] = first == 0 ? Moves::border(state.border) : unreachable();
        }
        const bool euclidean = problem().ground == Ground::euclidean;
        // Costs are computed where they are needed in the common case, and ahead in all others: fewer instances.
        if constexpr (R == kStrip && !kApart) {
            if (!recorder && problem().channels == 1 && euclidean != Moves::kSquared) {
                OneChannel<T, R, Moves::kSquared> costs;
                costs.y = lanes_.y;
                for (int r = 0; r < R; ++r) costs.x[r] = lanes_.of_x(lanes_.x, top + r);
                sweep<R>(moves, costs, window, rows, state.row.get(), nullptr, Constant<false>());
                return done(state, rows);
            }
        }
        const int64_t channels = problem().channels;
        const T* x = lanes_.x + top * channels * (lanes_.shared ? 1 : W<T>);
        const auto costs = costs_ahead<T, R>(x, lanes_.shared, lanes_.y, channels, euclidean, first, last, costs_);
        if constexpr (kApart || R == kStrip) {
            if (recorder) {
                sweep<R>(moves, costs, window, rows, state.row.get(), recorder, Constant<true>());
                return done(state, rows);
            }
        }
        sweep<R>(moves, costs, window, rows, state.row.get(), nullptr, Constant<false>());
        done(state, rows);
    }

    template <int R> struct Strip {
        int64_t top, first, last, inner_first, inner_last;  // between the inner columns every row is inside its window
        Cell corner, border[R];                             // left of the row above, and of each row
        V<T> x_gap[R];
    };
    template <int R> static void done(State& state, const Strip<R>& rows) { state.first = rows.first, state.last = rows.last; }

    // Row r is r columns behind the first, so that no cell waits for another of its turn. `row` is read as far as they
    // are behind, beyond its end.
    template <int R, class Costs, class Window, class Recorded>
    INLINE void sweep(const Moves moves, const Costs& costs, const Window& window, const Strip<R>& rows, Cell* row,
                      const Moved<T>* recorder, Recorded) {
        constexpr bool kApart = Window::kLanesDiffer;
        Cell cell[R], diagonal[R];
        each<R>([&](auto r) INLINE_LAMBDA {
            cell[r] = rows.border[r];
            diagonal[r] = r > 0 ? rows.border[r > 0 ? r - 1 : 0] : rows.corner;
        });
        const int64_t middle = rows.top + widest_ - 1;  // where the tables have row 0 of the strip against column 0
        // On turn s, the rows from..to are at columns s - r.
        const auto turn = [&](int64_t s, auto from, auto to, auto masked) INLINE_LAMBDA {
            each<to - from + 1>([&](auto k) INLINE_LAMBDA {
                constexpr int r = to - k;
                const int64_t j = s - r;
                const Cell up = r > 0 ? cell[r > 0 ? r - 1 : 0] : row[s];
                Cell next = masked && j < 0 ? rows.border[r] : unreachable();
                if (!masked || (j >= window.lo[r] && j <= window.hi[r])) {
                    Terms<T> terms{costs(r, j), rows.x_gap[r], V<T>{}, V<T>{}, V<T>{}};
                    if constexpr (Moves::kGaps) terms.y_gap = load(lanes_.y_gaps + j * W<T>);
                    if constexpr (Moves::kTable != Table::none) {
                        if constexpr (kApart) terms.table = lane_table_[middle + r - j];
                        else terms.table = splat(table_[middle + r - j]);
                    }
                    if constexpr (std::is_same_v<Moves, Follow<T>>) terms.own = own_cost(rows.top + r, j);
                    if constexpr (Recorded::value) (*recorder)(rows.top + r, j, moves.ways(diagonal[r], up, cell[r], terms));
                    next = next_cell(moves, diagonal[r], up, cell[r], terms);
                    if constexpr (masked && kApart) {
                        const I<T> column = I<T>{} + static_cast<typename Lanes<T>::Bits>(j);
                        next = keep_cell<T>((column >= window.lane_lo[r]) & (column <= window.lane_hi[r]), next, unreachable());
                    }
                }
                diagonal[r] = up;
                cell[r] = next;
            });
            if (to == R - 1 && (!masked || s - (R - 1) >= rows.first)) row[s - (R - 1)] = cell[R - 1];
        };
        const Constant<0> begin;
        const Constant<R - 1> end;
        const Constant<false> whole;
        const Constant<true> masked;
        if constexpr (kApart) {
            for (int64_t s = rows.first; s < rows.last + R; ++s) turn(s, begin, end, masked);
            return;
        }
        // Rows that begin and end together need no mask: there are fewer of them on the first and last turns.
        const bool together = rows.inner_first == rows.first && rows.inner_last == rows.last && rows.last - rows.first >= R - 1;
        int64_t s = rows.first;
        if (together) each<R - 1>([&](auto r) INLINE_LAMBDA { turn(s++, begin, r, whole); });
        else for (; s < min(rows.inner_first + R - 1, rows.last + R); ++s) turn(s, begin, end, masked);
        for (; s <= rows.inner_last; ++s) turn(s, begin, end, whole);
        if (together) each<R - 1>([&](auto r) INLINE_LAMBDA { turn(s++, Constant<r + 1>(), end, whole); });
        else for (; s < rows.last + R; ++s) turn(s, begin, end, masked);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
