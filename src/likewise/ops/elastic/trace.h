// Optimal paths of W pairs at once, in bounded memory, and what the derivative along them is.
#pragma once
#include "sweep.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

enum Move : int { kDiagonal = 0, kUp = 1, kLeft = 2 };

// Walks back from the last cell of every lane. Moves of at most kMovesAtOnce cells are kept at once: a larger table is cut
// into at most kPieces pieces, whose first rows are kept instead, and each piece is then traced the same way.
template <class T, class Moves> class Tracer {
public:
    explicit Tracer(const ElasticProblem& given) : given_(given), block_(given, true) {}

    // Calls visit(l, i, j, move) for every move of every lane, the last first. In border cells i or j is -1.
    // found(l) then says where lane l ended, or -1 if its value overflowed; value(l) is that value.
    template <class Visit> void run(const Moves& moves, const LaneData<T>& lanes, const Visit& visit) {
        State state;
        block_.begin(lanes, state);
        for (int l = 0; l < W<T>; ++l) i_[l] = lanes.n[l] - 1, j_[l] = end_[l] = -1;
        trace(moves, lanes, state, 0, block_.longest(), visit);
    }
    int64_t found(int l) const { return end_[l]; }
    T value(int l) const { return value_[l]; }

private:
    using State = typename Block<T, Moves>::State;
    static constexpr int64_t kMovesAtOnce = int64_t(1) << 25, kPieces = 32;
    const ElasticProblem& given_;
    Block<T, Moves> block_;
    Buffer<int8_t> moved_;
    int64_t i_[W<T>], j_[W<T>], end_[W<T>];
    T value_[W<T>];

    void copy(const State& from, State& to) const {
        to.row.reserve(block_.room());
        std::memcpy(static_cast<void*>(to.row.get()), from.row.get(), block_.widest() * sizeof(typename Moves::Cell));
        to.first = from.first, to.last = from.last, to.border = from.border;
    }

    // Traces rows [top, top + rows); `state` is the one above them, and is lost.
    template <class Visit>
    void trace(const Moves& moves, const LaneData<T>& lanes, State& state, int64_t top, int64_t rows, const Visit& visit) {
        const int64_t each_row = block_.widest() * W<T>;
        if (rows * each_row <= kMovesAtOnce || rows == 1) return trace_at_once(moves, lanes, state, top, rows, visit);
        const int64_t pieces = min(kPieces, min(rows, rows * each_row / kMovesAtOnce + 1));
        const int64_t height = (rows + pieces - 1) / pieces;
        Buffer<uint8_t> storage(pieces * int64_t(sizeof(State)));
        State* above = reinterpret_cast<State*>(storage.get());
        int64_t count = 0;
        for (int64_t from = 0; from < rows; from += height) {
            copy(state, *new (above + count++) State());
            if (from + height < rows) block_.advance(moves, state, top + from, top + from + height);
        }
        for (int64_t piece = count - 1; piece >= 0; --piece) {
            const int64_t from = piece * height;
            trace(moves, lanes, above[piece], top + from, min(height, rows - from), visit);
            above[piece].~State();
        }
    }

    template <class Visit>
    void trace_at_once(const Moves& moves, const LaneData<T>& lanes, State& state, int64_t top, int64_t rows, const Visit& visit) {
        const int64_t columns = block_.widest();
        int8_t* moved = moved_.reserve(rows * columns * W<T>);
        for (int64_t from = top; from < top + rows;) {
            int64_t until = top + rows;  // stop where a lane ends, to read its value
            for (int l = 0; l < W<T>; ++l)
                if (lanes.n[l] > from) until = min(until, lanes.n[l]);
            block_.record(moves, state, from, until, moved + (from - top) * columns * W<T>);
            from = until;
            for (int l = 0; l < W<T>; ++l) {
                if (lanes.n[l] != from) continue;
                int64_t column;
                const T value = value_[l] = block_.value(moves, state, l, column);
                if (value - value == 0) end_[l] = j_[l] = column;
                else i_[l] = -1;
            }
        }
        for (int l = 0; l < W<T>; ++l) {
            int64_t i = i_[l], j = j_[l];
            while (i >= top && i < top + rows && j >= 0) {
                const int move = moved[((i - top) * columns + j) * W<T> + l];
                visit(l, i, j, move);
                i -= move != kLeft, j -= move != kUp;
            }
            if (i >= 0 && j < 0 && end_[l] >= 0) {  // along the left border, which only gaps lead through
                for (; i >= 0 && given_.border == Border::gaps; --i) visit(l, i, int64_t(-1), kUp);
                i = -1;
            }
            if (i < 0 && given_.border == Border::gaps && !given_.problem.open_begin)
                for (; j >= 0; --j) visit(l, int64_t(-1), j, kLeft);
            if (i < 0) j = -1;
            i_[l] = i, j_[l] = j;
        }
    }
};

// Derivatives of one pair's value, added up along its path.
template <class T> struct Slopes {
    const ElasticProblem& given;
    const T *x, *y, *x_gaps, *y_gaps;
    T *x_grad, *y_grad, *x_gaps_grad, *y_gaps_grad;  // of this pair's items
    int64_t n, m;
    T weight;

    T cost(int64_t i, int64_t j) const {
        const int64_t channels = given.problem.channels;
        T squared = 0;
        for (int64_t c = 0; c < channels; ++c) {
            const T difference = x[i * channels + c] - y[j * channels + c];
            squared += difference * difference;
        }
        return given.problem.ground == Ground::euclidean ? root(squared) : squared;
    }
    void add_cost(int64_t i, int64_t j, T share) const {
        const int64_t channels = given.problem.channels;
        T factor = 2 * weight * share;
        if (given.problem.ground == Ground::euclidean) {
            const T distance = cost(i, j);
            factor = distance > 0 ? weight * share / distance : T(0);
        }
        const bool follows = given.recurrence == Recurrence::follow;
        const int64_t first = follows ? given.own_first : 0, last = follows ? first + given.own_count : channels;
        for (int64_t c = first; c < last; ++c) {
            const T step = factor * (x[i * channels + c] - y[j * channels + c]);
            x_grad[i * channels + c] += step;
            y_grad[j * channels + c] -= step;
        }
    }
    void add_gap(int64_t i, int64_t j, int move) const {
        if (move == kUp) x_gaps_grad[i] += weight;
        else y_gaps_grad[j] += weight;
    }
    void operator()(int64_t i, int64_t j, int move) const {
        switch (given.recurrence) {
            case Recurrence::warp: {
                const int64_t distance = i < j ? j - i : i - j, at = 2 * distance - max(n, m) + given.longest;
                return add_cost(i, j, given.weights ? static_cast<const T*>(given.weights)[at] : T(1));
            }
            case Recurrence::edit: return move == kDiagonal ? add_cost(i, j, T(1)) : add_gap(i, j, move);
            case Recurrence::carry:
                if (move != kDiagonal) return add_gap(i, j, move);
                if (i > 0 && j > 0) add_cost(i - 1, j - 1, T(1));
                return add_cost(i, j, T(1));
            case Recurrence::follow: return add_cost(i, j, T(1));
            case Recurrence::count: return;  // constant almost everywhere
            case Recurrence::ball: {
                if (move == kDiagonal) return add_cost(i, j, T(1));
                const T here = cost(i, j), gap = move == kUp ? x_gaps[i] : y_gaps[j];
                if (gap + here <= (move == kUp ? cost(i - 1, j) : cost(i, j - 1))) return;
                return gap < here ? add_gap(i, j, move) : add_cost(i, j, T(1));
            }
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
