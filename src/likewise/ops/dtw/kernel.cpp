// DTW: R(i, j) = cost(i, j) + min(R(i-1, j-1), R(i-1, j), R(i, j-1)); ties prefer the diagonal, then the row above.
//
// Many pairs: each lane holds one pair (lanes.h). Few, long pairs, and paths: lanes run along the antidiagonals of one.
#include "kernel.h"

#include <type_traits>

#include "../lanes.h"
#include "../wavefront.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// ---- Many pairs ------------------------------------------------------------------------------------------------

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
        if (!problem.open_end) return row[m - 1].value[l];
        int64_t lo, hi;
        window_row(problem.window, n, m, n - 1, lo, hi);
        T best = kInfinity<T>;
        for (int64_t j = lo; j <= hi; ++j) best = min(best, T(row[j].value[l]));
        return best;
    }
};

template <class T>
void blocks(const Problem& problem, const int64_t* order, int64_t count, T* values, int64_t begin, int64_t end) {
    LanePairs<T> lanes;
    LaneBlock<T, HardStep<T>> block(problem);
    for (int64_t b = begin; b < end; ++b) {
        lanes.select(problem, order, count, b);
        const HardStep<T> step{problem.open_begin};
        block.template run<false>(step, lanes.x.get(), lanes.n, lanes.y.get(), lanes.m, [&](int l, const auto* row) {
            if (l < lanes.used) values[lanes.pairs[l]] = HardStep<T>::value(problem, lanes.n[l], lanes.m[l], l, row);
        });
    }
}

template <class T>
void tile(const Problem& problem, const int64_t* row_order, const int64_t* column_order, bool symmetric, T* values,
          int64_t block, int64_t first, int64_t last) {
    const int64_t channels = problem.channels;
    int64_t items[W<T>], n[W<T>], m[W<T>];
    T result[W<T>];
    const int64_t used = lane_items<T>(column_order, problem.columns, block, items);
    const int64_t widest = lane_lengths<T>(problem.y_lengths, items, m);
    Buffer<T> y(widest * channels * W<T>);
    interleave(static_cast<const T*>(problem.y), problem.y_lengths, problem.y_steps, channels, items, widest, y.get());
    LaneBlock<T, HardStep<T>> lanes(problem);
    // Symmetric: rows and columns share one order, and the pairs below the diagonal are mirrored from above it.
    if (symmetric) last = min(last, block * W<T> + used);
    for (int64_t r = first; r < last; ++r) {
        const int64_t item = row_order[r];
        for (int l = 0; l < W<T>; ++l) n[l] = problem.x_lengths[item];
        const T* x = static_cast<const T*>(problem.x) + item * problem.x_steps * channels;
        lanes.template run<true>(HardStep<T>{problem.open_begin}, x, n, y.get(), m, [&](int l, const auto* row) {
            result[l] = HardStep<T>::value(problem, n[l], m[l], l, row);
        });
        for (int64_t l = 0; l < used; ++l) {
            if (symmetric && block * W<T> + l < r) continue;
            values[item * problem.columns + items[l]] = result[l];
            if (symmetric) values[items[l] * problem.columns + item] = result[l];
        }
    }
}

// ---- One pair at a time ----------------------------------------------------------------------------------------

// Lanes are rows: kVectors vectors hold an antidiagonal of a group of rows, so that nothing but the rows above and
// below a group goes through memory. On step t, local row i is at column t - i. Its left neighbour is the same lane
// one step before, the upper one the lane before it, and the diagonal one what was the upper one step before.
constexpr int kVectors = 5;
template <class T> constexpr int64_t kGroup = kVectors * W<T>;
static_assert(kVectors <= kPadVectors, "groups read beyond the ends of sequences");

template <class T> struct Group {
    int64_t top, rows, begin, end;   // rows [top, top + rows), of which something is inside on steps [begin, end)
    int64_t inner_begin, inner_end;  // and everything on these
    alignas(kBytes) typename Lanes<T>::Bits first[kGroup<T>], last[kGroup<T>];  // of each row, the steps inside

    void build(const Window& window, int64_t n, int64_t m, int64_t top_, int64_t rows_, int64_t columns) {
        using Bits = typename Lanes<T>::Bits;
        top = top_, rows = rows_;
        for (int64_t i = 0; i < kGroup<T>; ++i) {
            int64_t lo = 0, hi = -1;
            if (i < rows) window_row(window, n, m, top + i, lo, hi);
            first[i] = Bits(lo + i);
            last[i] = Bits(min(hi, columns - 1) + i);
        }
        begin = first[0], end = int64_t(last[rows - 1]) + 1;
        inner_begin = min(int64_t(first[rows - 1]), end);
        inner_end = max(inner_begin, min(int64_t(last[0]) + 1, end));
    }
    INLINE V<T> mask(V<T> value, int v, int64_t t) const {
        const I<T> step = I<T>{} + static_cast<typename Lanes<T>::Bits>(t);
        const I<T> outside = (step < load_bits(first + v * W<T>)) | (step > load_bits(last + v * W<T>));
        return outside ? splat(kInfinity<T>) : value;
    }
    static INLINE I<T> load_bits(const typename Lanes<T>::Bits* from) { return *reinterpret_cast<const I<T>*>(from); }
};

struct NoMoves {
    template <class X> INLINE void operator()(int64_t, int, X, X, X) const {}
};
// Which predecessor each cell took: a bit a cell for "not the diagonal one", and one for "the left one".
template <class T> struct Moves {
    using Word = typename std::conditional<(W<T> > 8), uint16_t, uint8_t>::type;
    Word* words;  // of step 0
    INLINE void operator()(int64_t t, int v, V<T> diagonal, V<T> up, V<T> left) const {
        Word* to = words + t * 2 * kVectors + v;
        to[0] = Word(bits_of<T>(min(up, left) < diagonal));
        to[kVectors] = Word(bits_of<T>(left < up));
    }
    // 0: diagonal, 1: the row above, 2: the column before.
    int at(int64_t i, int64_t t) const {
        const Word* from = words + t * 2 * kVectors + i / W<T>;
        const int lane = int(i % W<T>);
        return (from[0] >> lane & 1) ? 1 + (from[kVectors] >> lane & 1) : 0;
    }
};

template <class T> struct GroupCosts {
    const T* steps;  // of step 0
    INLINE V<T> operator()(int64_t i, int64_t t) const { return load(steps + t * kGroup<T> + i); }
};

// Values of a group between two steps.
template <class T> struct Front {
    V<T> value[kVectors], up[kVectors];
};

template <bool kMasked, bool kWhole, class T, class Costs, class Record>
INLINE void advance(const Group<T>& group, const Costs ground, const T* above, T* below, Front<T>& front,
                    const Record record, int64_t begin, int64_t end) {
    Front<T> now = front;
    const int64_t bottom = group.rows - 1;
    for (int64_t t = begin; t < end; ++t) {
        V<T> before = splat(above[t + 1]);
        for (int v = 0; v < kVectors; ++v) {
            const V<T> left = now.value[v], up = shift<T>(left, before), diagonal = now.up[v];
            record(t, v, diagonal, up, left);
            now.value[v] = min(min(up, left), diagonal) + ground(v * W<T>, t);
            if constexpr (kMasked) now.value[v] = group.mask(now.value[v], v, t);
            now.up[v] = up;
            before = left;
        }
        if (kMasked && (t < group.first[bottom] || t > group.last[bottom])) continue;
        below[t - bottom + 1] = kWhole ? now.value[kVectors - 1][W<T> - 1] : now.value[bottom / W<T>][bottom % W<T>];
    }
    front = now;
}

// R over one group, given the row above it: R(., j) is above[j + 1], and infinity beyond the end. Writes the last row.
template <class T, class Costs, class Record>
void sweep(const Group<T>& group, const Costs ground, const T* above, T* below, const Record record) {
    Front<T> front;
    for (int v = 0; v < kVectors; ++v) front.value[v] = front.up[v] = splat(kInfinity<T>);
    front.up[0][0] = above[group.begin];
    const auto steps = [&](auto masked, int64_t begin, int64_t end) INLINE_LAMBDA {
        constexpr bool kMasked = decltype(masked)::value;
        if (group.rows == kGroup<T>) advance<kMasked, true>(group, ground, above, below, front, record, begin, end);
        else advance<kMasked, false>(group, ground, above, below, front, record, begin, end);
    };
    steps(std::true_type(), group.begin, group.inner_begin);
    steps(std::false_type(), group.inner_begin, group.inner_end);
    steps(std::true_type(), group.inner_end, group.end);
}

template <class T> class Aligner {
public:
    explicit Aligner(const Problem& problem) : costs_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        T* below = bottom_.reserve(row_size(costs_.m));
        forward(0, costs_.n, costs_.m, above_.get(), below);
        return below[best_end(below) + 1];
    }

    // Trace the optimal path; cell k from the end is cells()[2k], cells()[2k + 1]. No cells: the value overflowed.
    int64_t path(int64_t pair) {
        begin(pair);
        cells_.reserve(2 * (costs_.n + costs_.m - 1));
        count_ = 0;
        finite_ = true;
        bottom_.reserve(row_size(costs_.m));
        trace(0, costs_.n, above_.get(), costs_.problem.open_end ? -1 : costs_.m - 1);
        return finite_ ? count_ : 0;
    }
    const int64_t* cells() const { return cells_.get(); }

private:
    using Word = typename Moves<T>::Word;
    // Cells whose moves are kept at once; a longer strip of rows is cut into at most kPieces pieces, whose first rows
    // are kept instead, and each piece is then traced the same way: memory stays linear in the lengths.
    static constexpr int64_t kCellsAtOnce = int64_t(1) << 24, kPieces = 32;

    PairCosts<T> costs_;
    Group<T> group_;
    Buffer<T> above_, bottom_, rows_[2], steps_;
    Buffer<Word> words_;
    Buffer<int64_t> cells_;
    int64_t count_ = 0;
    bool finite_ = true;

    static int64_t row_size(int64_t columns) { return columns + 1 + kGroup<T>; }

    void begin(int64_t pair) {
        costs_.select(pair);
        T* above = above_.reserve(row_size(costs_.m));
        first_row(above, costs_.m, costs_.problem.open_begin, T(0), kInfinity<T>);
        fill(above + costs_.m + 1, kGroup<T>, kInfinity<T>);
    }
    int64_t best_end(const T* below) const {
        int64_t best = costs_.m - 1;
        if (costs_.problem.open_end)
            for (int64_t j = best = 0; j < costs_.m; ++j)
                if (below[j + 1] < below[best + 1]) best = j;
        return best;
    }

    // R over rows [top, top + rows), group by group; record(k) is told of the moves of group k.
    template <class F> void forward(int64_t top, int64_t rows, int64_t columns, const T* above, T* below, F&& record) {
        for (int64_t first = 0; first < rows; first += kGroup<T>) {
            const bool last = first + kGroup<T> >= rows;
            group_.build(costs_.problem.window, costs_.n, costs_.m, top + first, min(kGroup<T>, rows - first), columns);
            T* to = last ? below : rows_[first / kGroup<T> % 2].reserve(row_size(costs_.m));
            fill(to, row_size(columns), kInfinity<T>);
            sweep_group(above, to, record(first / kGroup<T>));
            above = to;
        }
    }
    void forward(int64_t top, int64_t rows, int64_t columns, const T* above, T* below) {
        forward(top, rows, columns, above, below, [](int64_t) { return NoMoves{}; });
    }
    template <class Record> void sweep_group(const T* above, T* below, const Record record) {
        const SquaredGround<T> squared(costs_.packed, group_.top);
        if (costs_.problem.ground == Ground::squared && costs_.problem.channels == 1)
            sweep(group_, OneChannelGround<T>(squared), above, below, record);
        else if (costs_.problem.ground == Ground::squared)
            sweep(group_, squared, above, below, record);
        else if (costs_.problem.ground == Ground::euclidean) sweep(group_, EuclideanGround<T>{squared}, above, below, record);
        else sweep(group_, lay_out_costs(), above, below, record);
    }
    // Given costs step by step, as the lanes want them.
    GroupCosts<T> lay_out_costs() {
        const GroupCosts<T> laid{steps_.reserve((group_.end - group_.begin) * kGroup<T>) - group_.begin * kGroup<T>};
        T* to = const_cast<T*>(laid.steps);
        for (int64_t i = 0; i < group_.rows; ++i) {
            const T* from = costs_.row(group_.top + i);
            for (int64_t t = group_.first[i]; t <= group_.last[i]; ++t) to[t * kGroup<T> + i] = from[t - i];
        }
        return laid;
    }

    void add(int64_t i, int64_t j) {
        cells_[2 * count_] = i;
        cells_[2 * count_ + 1] = j;
        ++count_;
    }

    // Trace rows [top, top + rows) backwards from column `end` of the last (the best one when end < 0).
    // Returns the column from which the row above is left.
    int64_t trace(int64_t top, int64_t rows, const T* above, int64_t end) {
        const int64_t columns = end < 0 ? costs_.m : end + 1;
        int64_t widest = 0;  // cells of a row, and those that a group adds at its ends
        for (int64_t i = 0; i < rows; ++i) {
            int64_t lo, hi;
            window_row(costs_.problem.window, costs_.n, costs_.m, top + i, lo, hi);
            widest = max(widest, min(hi, columns - 1) - lo + 1);
        }
        const int64_t cells = rows * (widest + kGroup<T>);
        if (cells <= kCellsAtOnce || rows == 1) return trace_at_once(top, rows, columns, above, end);
        const int64_t pieces = min(kPieces, cells / kCellsAtOnce + 1);
        const int64_t height = (rows + pieces - 1) / pieces, width = row_size(columns);
        Buffer<T> borders(pieces * width);  // the row above each piece but the first
        const T* border = above;
        int64_t piece = 0;
        for (; (piece + 1) * height < rows; ++piece) {
            forward(top + piece * height, height, columns, border, borders.get() + piece * width);
            border = borders.get() + piece * width;
        }
        for (; piece >= 0 && finite_; --piece) {
            const int64_t from = piece * height;
            end = trace(top + from, min(height, rows - from), piece ? borders.get() + (piece - 1) * width : above, end);
        }
        return end;
    }

    int64_t trace_at_once(int64_t top, int64_t rows, int64_t columns, const T* above, int64_t end) {
        const int64_t groups = (rows + kGroup<T> - 1) / kGroup<T>;
        Buffer<Moves<T>> moves(groups);
        int64_t size = 0;
        for (int64_t k = 0; k < groups; ++k) {
            group_.build(costs_.problem.window, costs_.n, costs_.m, top + k * kGroup<T>,
                         min(kGroup<T>, rows - k * kGroup<T>), columns);
            size += (group_.end - group_.begin) * 2 * kVectors;
        }
        Word* free = words_.reserve(size);
        forward(top, rows, columns, above, bottom_.get(), [&](int64_t k) {
            moves[k].words = free - group_.begin * 2 * kVectors;
            free += (group_.end - group_.begin) * 2 * kVectors;
            return moves[k];
        });
        int64_t i = rows - 1, j = end < 0 ? best_end(bottom_.get()) : end;
        // A finite value was reached through finite ones: every step back then stays inside.
        finite_ = bottom_[j + 1] - bottom_[j + 1] == 0;
        while (finite_) {
            add(top + i, j);
            const int64_t local = i % kGroup<T>;
            const int move = moves[i / kGroup<T>].at(local, local + j);
            if (move != 1) --j;
            if (move != 2 && --i < 0) return j;
        }
        return j;
    }
};

template <class T> void gradients(const Problem& problem, const T* weights, T* x_grad, T* y_grad, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    const int64_t channels = problem.channels;
    for (int64_t pair = begin; pair < end; ++pair) {
        const T weight = weights[pair];
        if (weight == T(0)) continue;
        const int64_t steps = aligner.path(pair);
        const int64_t* cells = aligner.cells();
        if (problem.ground == Ground::given) {
            T* plan = x_grad + pair * problem.x_steps * problem.y_steps;
            for (int64_t k = 0; k < steps; ++k) plan[cells[2 * k] * problem.y_steps + cells[2 * k + 1]] += weight;
            continue;
        }
        const int64_t row = row_of(problem, pair) * problem.x_steps, column = column_of(problem, pair) * problem.y_steps;
        for (int64_t k = 0; k < steps; ++k) {
            const int64_t at_x = (row + cells[2 * k]) * channels, at_y = (column + cells[2 * k + 1]) * channels;
            const T *x = static_cast<const T*>(problem.x) + at_x, *y = static_cast<const T*>(problem.y) + at_y;
            T factor = 2 * weight;
            if (problem.ground == Ground::euclidean) {
                T squared = 0;
                for (int64_t c = 0; c < channels; ++c) squared += (x[c] - y[c]) * (x[c] - y[c]);
                factor = squared > 0 ? weight / root(squared) : T(0);
            }
            for (int64_t c = 0; c < channels; ++c) {
                const T step = factor * (x[c] - y[c]);
                x_grad[at_x + c] += step;
                y_grad[at_y + c] -= step;
            }
        }
    }
}

template <class T> void values_of(const Problem& problem, T* values, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    for (int64_t pair = begin; pair < end; ++pair) values[pair] = aligner.value(pair);
}

template <class T> void paths_of(const Problem& problem, int64_t* paths, int64_t* steps, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    const int64_t longest = problem.x_steps + problem.y_steps - 1;
    for (int64_t pair = begin; pair < end; ++pair) {
        steps[pair] = aligner.path(pair);
        if (!paths) continue;
        int64_t* to = paths + pair * longest * 2;
        for (int64_t k = 0; k < steps[pair]; ++k) {
            to[2 * k] = aligner.cells()[2 * (steps[pair] - 1 - k)];
            to[2 * k + 1] = aligner.cells()[2 * (steps[pair] - 1 - k) + 1];
        }
    }
}

}  // namespace

int64_t dtw_lanes(bool float64) { return float64 ? W<double> : W<float>; }

void dtw_blocks(const Problem& problem, const int64_t* order, int64_t count, void* values, int64_t begin, int64_t end) {
    if (problem.float64) blocks(problem, order, count, static_cast<double*>(values), begin, end);
    else blocks(problem, order, count, static_cast<float*>(values), begin, end);
}

void dtw_tile(const Problem& problem, const int64_t* row_order, const int64_t* column_order, bool symmetric, void* values,
              int64_t block, int64_t first, int64_t last) {
    if (problem.float64) tile(problem, row_order, column_order, symmetric, static_cast<double*>(values), block, first, last);
    else tile(problem, row_order, column_order, symmetric, static_cast<float*>(values), block, first, last);
}

void dtw_values(const Problem& problem, void* values, int64_t begin, int64_t end) {
    if (problem.float64) values_of(problem, static_cast<double*>(values), begin, end);
    else values_of(problem, static_cast<float*>(values), begin, end);
}

void dtw_paths(const Problem& problem, int64_t* paths, int64_t* steps, int64_t begin, int64_t end) {
    if (problem.float64) paths_of<double>(problem, paths, steps, begin, end);
    else paths_of<float>(problem, paths, steps, begin, end);
}

void dtw_gradients(const Problem& problem, const void* weights, void* x_grad, void* y_grad, int64_t begin, int64_t end) {
    if (problem.float64)
        gradients(problem, static_cast<const double*>(weights), static_cast<double*>(x_grad), static_cast<double*>(y_grad), begin, end);
    else
        gradients(problem, static_cast<const float*>(weights), static_cast<float*>(x_grad), static_cast<float*>(y_grad), begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
