// The recurrences of elastic distances: D(i, j) is the least of three ways to get there.
//
// Each is a small struct. `ways` gives D by the diagonal, from above and from the left; `reach` makes the cell of the
// least. What a cell costs comes as Terms: c(i, j), the cost of matching frame i of x with frame j of y; u(i) and
// l(j), the gaps; t(|i - j|), a table; o(i, j), the cost in some of the channels. Sums are spread over the units that
// add and those that multiply.
#pragma once
#include "../simd.h"
#include "kernel.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// a + b, on the units that multiply.
template <class T> INLINE V<T> plus(V<T> a, V<T> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return _mm512_fmadd_ps(a, splat(T(1)), b);
    else return _mm512_fmadd_pd(a, splat(T(1)), b);
#elif defined(__FMA__)
    if constexpr (sizeof(T) == 4) return _mm256_fmadd_ps(a, splat(T(1)), b);
    else return _mm256_fmadd_pd(a, splat(T(1)), b);
#else
    return a + b;
#endif
}

// |a|, without the units that compare.
template <class T> INLINE V<T> absolute(V<T> a) {
    constexpr auto kSign = std::numeric_limits<typename Lanes<T>::Bits>::max();
    return reinterpret_cast<V<T>>(reinterpret_cast<I<T>>(a) & (I<T>{} + kSign));
}

template <class T> struct Terms {
    V<T> cost, x_gap, y_gap, table, own;
};
template <class T> struct Ways {
    V<T> diagonal, up, left;
};
enum class Table { none, factor, summand };

template <class T> struct Plain {
    V<T> value;
};
template <class T> struct WithSum {
    V<T> value, sum;  // D(i, j), and V(i, j)
};
template <class T> struct WithCost {
    V<T> value, cost;  // D(i, j), and c(i, j) or D(i, j) + c(i, j)
};

// Warp: D(i, j) = min(D(i-1, j-1), D(i-1, j) + p, D(i, j-1) + p) + t c(i, j), with the penalty p.
template <class T> struct Warp {
    using Cell = Plain<T>;
    static constexpr bool kSquared = true, kGaps = false;
    static constexpr Table kTable = Table::factor;
    V<T> penalty;

    explicit Warp(const ElasticProblem& given) : penalty(splat(T(given.penalty))) {}
    static Cell border(V<T> value) { return {value}; }
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>&) const {
        return {diagonal.value, up.value + penalty, left.value + penalty};
    }
    // What the cell costs is added before the neighbours are known: they wait for two minima and one sum.
    INLINE Cell next(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const V<T> matched = diagonal.value + terms.cost * terms.table, step = penalty + terms.cost * terms.table;
        return {min(matched, min(up.value, left.value) + step)};
    }
    INLINE V<T> result(Cell cell) const { return cell.value; }
};

// Edit: D(i, j) = min(D(i-1, j-1) + c(i, j), D(i-1, j) + u(i), D(i, j-1) + l(j)).
template <class T> struct Edit {
    using Cell = Plain<T>;
    static constexpr bool kSquared = false, kGaps = true;
    static constexpr Table kTable = Table::none;

    explicit Edit(const ElasticProblem&) {}
    static Cell border(V<T> value) { return {value}; }
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        return {plus<T>(diagonal.value, terms.cost), plus<T>(up.value, terms.x_gap), left.value + terms.y_gap};
    }
    INLINE V<T> least(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const Ways<T> ways_ = ways(diagonal, up, left, terms);
        return min(ways_.diagonal, min(ways_.up, ways_.left));
    }
    INLINE Cell reach(V<T> least, const Terms<T>&) const { return {least}; }
    INLINE V<T> result(Cell cell) const { return cell.value; }
};

// Carry: D(i, j) = min(D(i-1, j-1) + c(i-1, j-1) + c(i, j) + t, D(i-1, j) + u(i), D(i, j-1) + l(j)).
// The value may count the cost of the last cell once more.
template <class T> struct Carry {
    using Cell = WithCost<T>;  // D and D + c
    static constexpr bool kSquared = false, kGaps = true;
    static constexpr Table kTable = Table::summand;
    bool last_cost;

    explicit Carry(const ElasticProblem& given) : last_cost(given.last_cost) {}
    static Cell border(V<T> value) { return {splat(kInfinity<T>), value}; }  // a path begins with a match
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        return {plus<T>(diagonal.cost, plus<T>(terms.cost, terms.table)), plus<T>(up.value, terms.x_gap),
                left.value + terms.y_gap};
    }
    INLINE V<T> least(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const Ways<T> ways_ = ways(diagonal, up, left, terms);
        return min(ways_.diagonal, min(ways_.up, ways_.left));
    }
    INLINE Cell reach(V<T> least, const Terms<T>& terms) const { return {least, least + terms.cost}; }
    INLINE V<T> result(Cell cell) const { return last_cost ? cell.cost : cell.value; }
};

// Count: D(i, j) = min(D(i-1, j-1) + (c(i, j) < reach ? hit : miss), D(i-1, j) + u(i), D(i, j-1) + l(j)).
template <class T> struct Count {
    using Cell = Plain<T>;
    static constexpr bool kSquared = false, kGaps = true;
    static constexpr Table kTable = Table::none;
    V<T> within, hit, miss;

    explicit Count(const ElasticProblem& given)
        : within(splat(T(0))), hit(splat(T(given.hit))), miss(splat(T(given.miss))) {}
    static Cell border(V<T> value) { return {value}; }
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        return {plus<T>(diagonal.value, terms.cost < within ? hit : miss), plus<T>(up.value, terms.x_gap),
                left.value + terms.y_gap};
    }
    INLINE V<T> least(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const Ways<T> ways_ = ways(diagonal, up, left, terms);
        return min(ways_.diagonal, min(ways_.up, ways_.left));
    }
    INLINE Cell reach(V<T> least, const Terms<T>&) const { return {least}; }
    INLINE V<T> result(Cell cell) const { return cell.value; }
};

// Ball: D(i, j) = min(D(i-1, j-1) + c(i, j), D(i-1, j) + C(u(i), c(i, j), c(i-1, j)), D(i, j-1) + C(l(j), c(i, j),
// c(i, j-1))), with C(a, b, d) = p where a + b <= d, else p + min(a, b), for squared distances: where a frame lies in the
// ball around its two neighbours, whose distance is the diameter.
template <class T> struct Ball {
    using Cell = WithCost<T>;  // D and c
    static constexpr bool kSquared = true, kGaps = true;
    static constexpr Table kTable = Table::none;
    V<T> penalty;

    explicit Ball(const ElasticProblem& given) : penalty(splat(T(given.penalty))) {}
    static Cell border(V<T> value) { return {value, splat(-kInfinity<T>)}; }  // a path begins with a match
    INLINE V<T> split(V<T> gap, V<T> cost, V<T> diameter) const {
        return penalty + (gap + cost <= diameter ? V<T>{} : max(min(gap, cost), -diameter));
    }
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        return {diagonal.value + terms.cost, up.value + split(terms.x_gap, terms.cost, up.cost),
                left.value + split(terms.y_gap, terms.cost, left.cost)};
    }
    INLINE V<T> least(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const Ways<T> ways_ = ways(diagonal, up, left, terms);
        return min(ways_.diagonal, min(ways_.up, ways_.left));
    }
    INLINE Cell reach(V<T> least, const Terms<T>& terms) const { return {least, terms.cost}; }
    INLINE V<T> result(Cell cell) const { return cell.value; }
};

// Follow: D(i, j) = min(D(i-1, j-1), D(i-1, j), D(i, j-1)) + c(i, j), and the value is the sum of other costs over that
// path: V(i, j) = o(i, j) + V of the cell that D(i, j) came from.
template <class T> struct Follow {
    using Cell = WithSum<T>;
    static constexpr bool kSquared = true, kGaps = false;
    static constexpr Table kTable = Table::none;

    explicit Follow(const ElasticProblem&) {}
    static Cell border(V<T> value) { return {value, value}; }
    INLINE Ways<T> ways(Cell diagonal, Cell up, Cell left, const Terms<T>&) const {
        return {diagonal.value, up.value, left.value};
    }
    INLINE Cell next(Cell diagonal, Cell up, Cell left, const Terms<T>& terms) const {
        const auto by_left = left.value < up.value;
        const V<T> gap = by_left ? left.value : up.value, sum = by_left ? left.sum : up.sum;
        const auto by_gap = gap < diagonal.value;
        return {(by_gap ? gap : diagonal.value) + terms.cost, (by_gap ? sum : diagonal.sum) + terms.own};
    }
    INLINE V<T> result(Cell cell) const { return cell.sum; }
};

// The next cell, and what decides where an open end is.
template <class Moves, class Cell, class Terms> INLINE Cell next_cell(const Moves& moves, Cell diagonal, Cell up, Cell left,
                                                                      const Terms& terms) {
    return moves.reach(moves.least(diagonal, up, left, terms), terms);
}
template <class T> INLINE Plain<T> next_cell(const Warp<T>& moves, Plain<T> diagonal, Plain<T> up, Plain<T> left,
                                             const Terms<T>& terms) {
    return moves.next(diagonal, up, left, terms);
}
template <class T> INLINE WithSum<T> next_cell(const Follow<T>& moves, WithSum<T> diagonal, WithSum<T> up, WithSum<T> left,
                                               const Terms<T>& terms) {
    return moves.next(diagonal, up, left, terms);
}
template <class Moves, class Cell> INLINE auto rank(const Moves& moves, Cell cell) { return moves.result(cell); }
template <class T> INLINE V<T> rank(const Follow<T>&, WithSum<T> cell) { return cell.value; }

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
