// The cells of DTW in lanes, with or without their moves.
#pragma once
#include "../lanes.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kKeptBytes = int64_t(1) << 21;  // moves of one block of lanes

template <class T> struct HardStep {
    struct Cell {
        V<T> value;
    };
    // What 16 (or, for AVX-512, 32) registers hold beside the costs.
    static constexpr int kRows = kBytes == 64 ? 8 : 6;
    static constexpr bool kCostsAhead = false;
    using Pending = V<T>;
    bool open_begin;

    static INLINE Cell unreachable() { return {splat(kInfinity<T>)}; }
    INLINE Cell origin() const { return {V<T>{}}; }
    INLINE Cell above() const { return open_begin ? origin() : unreachable(); }
    static INLINE Pending pend(Cell diagonal, Cell left) { return min(diagonal.value, left.value); }
    INLINE Cell operator()(Pending pending, Cell up, V<T> cost, int64_t, int64_t) const {
        return {min(pending, up.value) + cost};
    }
    template <class Inside> static INLINE Cell keep(Cell cell, Inside inside) {
        return {inside ? cell.value : splat(kInfinity<T>)};
    }

    // The value of lane l, from its last row.
    static T value(const Problem& problem, int64_t n, int64_t m, int l, const Cell* row) {
        return row[end(problem, n, m, l, row)].value[l];
    }
    // The column in which its path ends.
    static int64_t end(const Problem& problem, int64_t n, int64_t m, int l, const Cell* row) {
        if (!problem.open_end) return m - 1;
        int64_t best, last;
        window_row(problem.window, n, m, n - 1, best, last);
        for (int64_t j = best + 1; j <= last; ++j)
            if (row[j].value[l] < row[best].value[l]) best = j;
        return best;
    }
};

// As HardStep, and every move is kept: 0 by the diagonal, 1 from above, 2 from the left. Ties prefer the diagonal, then
// the row above.
template <class T> struct MovingStep : HardStep<T> {
    using Cell = typename HardStep<T>::Cell;
    struct Pending {
        V<T> diagonal, left;
    };
    int8_t* moves;
    int64_t width;

    static INLINE Pending pend(Cell diagonal, Cell left) { return {diagonal.value, left.value}; }
    INLINE Cell operator()(Pending pending, Cell up, V<T> cost, int64_t i, int64_t j) const {
        typedef int8_t Bytes __attribute__((vector_size(W<T>)));
        const V<T> straight = min(up.value, pending.left);
        const I<T> is_straight = straight < pending.diagonal, is_left = pending.left < up.value;
        const Bytes bytes = __builtin_convertvector(is_straight & (1 - is_left), Bytes);
        std::memcpy(moves + (i * width + j) * W<T>, &bytes, sizeof(bytes));
        return {min(pending.diagonal, straight) + cost};
    }
};

// Calls visit(i, j) on the cells of a lane's path, the last first. `moves` are those of the lane.
template <class T, class Visit> void walk_back(const int8_t* moves, int64_t width, int64_t i, int64_t j, Visit&& visit) {
    while (i >= 0) {
        visit(i, j);
        const int8_t move = moves[(i * width + j) * W<T>];
        i -= move != 2;
        j -= move != 1;
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
