// DTW: R(i, j) = cost(i, j) + min(R(i-1, j-1), R(i-1, j), R(i, j-1)); ties prefer the diagonal, then the row above.
//
// Many pairs: each lane holds one pair, and one sweep over the columns keeps several rows in registers.
// Few, long pairs, and paths: lanes run along the antidiagonals of one pair (wavefront.h).
#include "kernel.h"

#include <type_traits>

#include "../wavefront.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// ---- Many pairs ------------------------------------------------------------------------------------------------

// Rows kept in registers: what 16 (or, for AVX-512, 32) registers hold beside the costs.
constexpr int kRows = kBytes == 64 ? 8 : 4;

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
    for (int64_t t = 0; t < shortest; ++t)
        for (int l = 0; l < W<T>; ++l) to[t * W<T> + l] = from[l][t];
    for (int64_t t = shortest; t < longest * channels; ++t)
        for (int l = 0; l < W<T>; ++l) to[t * W<T> + l] = t < size[l] ? from[l][t] : T(0);
}

// The rows of one strip inside their windows, the same for every lane or lane by lane.
template <class T, int R> struct SharedWindow {
    int64_t lo[R], hi[R];
    INLINE bool anywhere() const { return false; }
    INLINE V<T> mask(V<T> value, int r, int64_t j) const { return j < lo[r] || j > hi[r] ? splat(kInfinity<T>) : value; }
};
template <class T, int R> struct LaneWindow {
    I<T> lo[R], hi[R];
    INLINE bool anywhere() const { return true; }
    INLINE V<T> mask(V<T> value, int r, int64_t j) const {
        const I<T> column = I<T>{} + static_cast<typename Lanes<T>::Bits>(j);
        return (column < lo[r]) | (column > hi[r]) ? splat(kInfinity<T>) : value;
    }
};

// x as one shared item (scalars) or as W interleaved ones (vectors).
template <class T, bool kShared> INLINE V<T> x_value(const T* x, int64_t index) {
    if constexpr (kShared) return splat(x[index]);
    else return load(x + index * W<T>);
}

// Advance `row` (the row above, one vector per column) by R rows over the columns first..last; between
// inner_first and inner_last every row is inside its window. `corner` is the value left of row[first].
template <class T, int R, bool kShared, bool kEuclidean, bool kOneChannel, class Window>
INLINE void sweep_rows(const T* x, const T* y, int64_t channels, const Window& window, int64_t first, int64_t last,
                       int64_t inner_first, int64_t inner_last, V<T> corner, V<T>* row) {
    V<T> left[R], x_only[R];
    for (int r = 0; r < R; ++r) {
        left[r] = splat(kInfinity<T>);
        if constexpr (kOneChannel) x_only[r] = x_value<T, kShared>(x, r);
    }
    auto column = [&](int64_t j, bool masked) INLINE_LAMBDA {
        V<T> cost[R];
        if constexpr (kOneChannel) {
            const V<T> y_only = load(y + j * W<T>);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const V<T> difference = y_only - x_only[r];
                if constexpr (kEuclidean) cost[r] = max(difference, -difference);
                else cost[r] = difference * difference;
            }
        } else {
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) cost[r] = V<T>{};
            for (int64_t k = 0; k < channels; ++k) {
                const V<T> y_k = load(y + (j * channels + k) * W<T>);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const V<T> difference = y_k - x_value<T, kShared>(x, r * channels + k);
                    cost[r] += difference * difference;
                }
            }
            if constexpr (kEuclidean)
                for (int r = 0; r < R; ++r) cost[r] = square_root<T>(cost[r]);
        }
        V<T> up = row[j], diagonal = corner;
        corner = up;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const V<T> best = min(min(diagonal, left[r]), up);
            diagonal = left[r];
            up = best + cost[r];
            if (masked) up = window.mask(up, r, j);
            left[r] = up;
        }
        row[j] = up;
    };
    if (window.anywhere() || inner_first > inner_last) {
        for (int64_t j = first; j <= last; ++j) column(j, true);
        return;
    }
    for (int64_t j = first; j < inner_first; ++j) column(j, true);
    for (int64_t j = inner_first; j <= inner_last; ++j) column(j, false);
    for (int64_t j = inner_last + 1; j <= last; ++j) column(j, true);
}

// W alignments of interleaved y's with one x, or with W interleaved x's. Lanes may differ in both lengths: a lane's
// value is read off its own last row and column, which nothing beyond them can reach.
template <class T> class LaneBlock {
public:
    explicit LaneBlock(const Problem& problem) : problem_(problem), row_(problem.y_steps) {}

    template <bool kShared>
    void run(const T* x, const int64_t* x_lengths, const T* y, const int64_t* y_lengths, T* values) {
        if (problem_.ground == Ground::euclidean) {
            if (problem_.channels == 1) rows<kShared, true, true>(x, x_lengths, y, y_lengths, values);
            else rows<kShared, true, false>(x, x_lengths, y, y_lengths, values);
        } else {
            if (problem_.channels == 1) rows<kShared, false, true>(x, x_lengths, y, y_lengths, values);
            else rows<kShared, false, false>(x, x_lengths, y, y_lengths, values);
        }
    }

private:
    const Problem& problem_;
    Buffer<V<T>> row_;
    int64_t before_first_ = 0, before_last_ = -1;  // the columns of the strip above

    template <bool kShared, bool kEuclidean, bool kOneChannel>
    void rows(const T* x, const int64_t* n, const T* y, const int64_t* m, T* values) {
        int64_t longest = 0, widest = 0;
        bool alike = true;
        for (int l = 0; l < W<T>; ++l) {
            longest = max(longest, n[l]);
            widest = max(widest, m[l]);
            alike &= n[l] == n[0] && m[l] == m[0];
        }
        fill(row_.get(), widest, splat(problem_.open_begin ? T(0) : kInfinity<T>));
        before_first_ = 0;
        before_last_ = -1;
        const bool windowed = problem_.window.kind != WindowKind::none;
        int64_t done = 0;
        while (done < longest) {
            int64_t until = longest;  // strips end where a lane ends
            for (int l = 0; l < W<T>; ++l)
                if (n[l] > done) until = min(until, n[l]);
            const T* x_strip = x + done * problem_.channels * (kShared ? 1 : W<T>);
            const bool whole = until - done >= kRows;
            if (windowed && !alike) {
                if (whole) strip<LaneWindow<T, kRows>, kRows, kShared, kEuclidean, kOneChannel>(x_strip, y, n, m, widest, done);
                else strip<LaneWindow<T, 1>, 1, kShared, kEuclidean, kOneChannel>(x_strip, y, n, m, widest, done);
            } else {
                if (whole) strip<SharedWindow<T, kRows>, kRows, kShared, kEuclidean, kOneChannel>(x_strip, y, n, m, widest, done);
                else strip<SharedWindow<T, 1>, 1, kShared, kEuclidean, kOneChannel>(x_strip, y, n, m, widest, done);
            }
            done += whole ? kRows : 1;
            for (int l = 0; l < W<T>; ++l)
                if (n[l] == done) values[l] = last_row(l, n[l], m[l]);
        }
    }

    template <class Window, int R, bool kShared, bool kEuclidean, bool kOneChannel>
    __attribute__((noinline)) void strip(const T* x, const T* y, const int64_t* n, const int64_t* m, int64_t widest, int64_t top) {
        Window window;
        int64_t first = 0, last = widest - 1, inner_first = 0, inner_last = widest - 1;
        set_window(window, n, m, widest, top, first, last, inner_first, inner_last);
        // Columns that the strip above did not reach are unreachable from there, but for the row above the first.
        if (top > 0) {
            V<T>* row = row_.get();
            for (int64_t j = before_last_ + 1; j <= last; ++j) row[j] = splat(kInfinity<T>);
        }
        V<T> corner = splat(top == 0 ? T(0) : kInfinity<T>);
        if (first > before_first_) corner = row_[first - 1];
        sweep_rows<T, R, kShared, kEuclidean, kOneChannel>(x, y, problem_.channels, window, first, last, inner_first,
                                                           inner_last, corner, row_.get());
        before_first_ = first;
        before_last_ = last;
    }

    template <int R>
    void set_window(SharedWindow<T, R>& window, const int64_t* n, const int64_t* m, int64_t widest, int64_t top,
                    int64_t& first, int64_t& last, int64_t& inner_first, int64_t& inner_last) const {
        for (int r = 0; r < R; ++r) {
            window.lo[r] = 0;
            window.hi[r] = widest - 1;
            if (problem_.window.kind != WindowKind::none)
                window_row(problem_.window, n[0], m[0], top + r, window.lo[r], window.hi[r]);
        }
        first = window.lo[0];
        last = window.hi[R - 1];
        inner_first = window.lo[R - 1];
        inner_last = window.hi[0];
    }
    template <int R>
    void set_window(LaneWindow<T, R>& window, const int64_t* n, const int64_t* m, int64_t widest, int64_t top,
                    int64_t& first, int64_t& last, int64_t&, int64_t&) const {
        first = widest;
        last = -1;
        for (int r = 0; r < R; ++r)
            for (int l = 0; l < W<T>; ++l) {
                int64_t lo = widest, hi = -1;  // a lane that has ended has no columns
                if (top + r < n[l]) window_row(problem_.window, n[l], m[l], top + r, lo, hi);
                window.lo[r][l] = static_cast<typename Lanes<T>::Bits>(lo);
                window.hi[r][l] = static_cast<typename Lanes<T>::Bits>(hi);
                first = min(first, lo);
                last = max(last, hi);
            }
    }

    T last_row(int l, int64_t n, int64_t m) const {
        if (!problem_.open_end) return row_[m - 1][l];
        int64_t lo, hi;
        window_row(problem_.window, n, m, n - 1, lo, hi);
        T best = kInfinity<T>;
        for (int64_t j = lo; j <= hi; ++j) best = min(best, T(row_[j][l]));
        return best;
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

template <class T>
void blocks(const Problem& problem, const int64_t* order, int64_t count, T* values, int64_t begin, int64_t end) {
    const int64_t channels = problem.channels;
    Buffer<T> x(problem.x_steps * channels * W<T>), y(problem.y_steps * channels * W<T>);
    LaneBlock<T> lanes(problem);
    for (int64_t block = begin; block < end; ++block) {
        int64_t pairs[W<T>], x_items[W<T>], y_items[W<T>], n[W<T>], m[W<T>];
        T result[W<T>];
        const int64_t used = lane_items<T>(order, count, block, pairs);
        for (int l = 0; l < W<T>; ++l) {
            x_items[l] = row_of(problem, pairs[l]);
            y_items[l] = column_of(problem, pairs[l]);
        }
        const int64_t longest = lane_lengths<T>(problem.x_lengths, x_items, n);
        const int64_t widest = lane_lengths<T>(problem.y_lengths, y_items, m);
        interleave(static_cast<const T*>(problem.x), problem.x_lengths, problem.x_steps, channels, x_items, longest, x.get());
        interleave(static_cast<const T*>(problem.y), problem.y_lengths, problem.y_steps, channels, y_items, widest, y.get());
        lanes.template run<false>(x.get(), n, y.get(), m, result);
        for (int64_t l = 0; l < used; ++l) values[pairs[l]] = result[l];
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
    LaneBlock<T> lanes(problem);
    // Symmetric: rows and columns share one order, and the pairs below the diagonal are mirrored from above it.
    if (symmetric) last = min(last, block * W<T> + used);
    for (int64_t r = first; r < last; ++r) {
        const int64_t item = row_order[r];
        for (int l = 0; l < W<T>; ++l) n[l] = problem.x_lengths[item];
        lanes.template run<true>(static_cast<const T*>(problem.x) + item * problem.x_steps * channels, n, y.get(), m, result);
        for (int64_t l = 0; l < used; ++l) {
            if (symmetric && block * W<T> + l < r) continue;
            values[item * problem.columns + items[l]] = result[l];
            if (symmetric) values[items[l] * problem.columns + item] = result[l];
        }
    }
}

// ---- One pair at a time ----------------------------------------------------------------------------------------

struct NoMoves {
    INLINE NoMoves along(int64_t, int64_t) const { return {}; }
    template <class X> INLINE void operator()(X, X, X) {}
};

// Which predecessor each cell took, two bits a cell: one word holds those of a vector.
template <class T> struct Moves {
    using Word = typename std::conditional<(W<T> > 8), uint32_t, uint16_t>::type;
    const Diagonals& diagonals;
    Word* words;
    struct Writer {
        Word* to;
        INLINE void operator()(V<T> diagonal, V<T> up, V<T> left) {
            const uint32_t straight = bits_of<T>(min(up, left) < diagonal), sideways = bits_of<T>(left < up);
            *to++ = Word(straight | sideways << W<T>);
        }
    };
    INLINE Writer along(int64_t d, int64_t first) const { return {words + (diagonals.origin()[d] + first) / W<T>}; }
    // 0: diagonal, 1: the row above, 2: the column before.
    int at(int64_t i, int64_t d) const {
        const int64_t cell = diagonals.origin()[d] + i, lane = cell % W<T>;
        const Word word = words[cell / W<T>];
        return (word >> lane & 1) ? 1 + (word >> (lane + W<T>) & 1) : 0;
    }
};

// R over one strip, given the row above it; writes the strip's last row to `below`: R(., j) is below[j + 1].
template <class T, class Costs, class Record>
INLINE void sweep(const Diagonals& diagonals, const Costs ground, const T* above, T* below, Buffer<T>& scratch, const Record record) {
    const int64_t rows = diagonals.rows, columns = diagonals.columns, size = antidiagonal_size<T>(rows);
    T* now = scratch.reserve(3 * size);  // cell (i, d) at now[i + 1], and its two predecessors' antidiagonals
    T *before = now + size, *earlier = before + size;
    fill(now, 3 * size, kInfinity<T>);
    fill(below, columns + 1, kInfinity<T>);
    before[0] = above[diagonals.begin + 1];
    earlier[0] = above[diagonals.begin];
    for (int64_t d = diagonals.begin; d < diagonals.end; ++d) {
        const int64_t first = diagonals.first(d), last = diagonals.last(d);
        auto writer = record.along(d, first);
        for (int64_t i = first; i <= last; i += W<T>) {
            const V<T> left = load(before + i + 1), up = load(before + i), diagonal = load(earlier + i);
            writer(diagonal, up, left);
            store(now + i + 1, min(min(up, left), diagonal) + ground(i, d));
        }
        now[last + 2] = kInfinity<T>;
        now[first] = first == 0 && d + 1 < columns ? above[d + 2] : kInfinity<T>;
        if (last == rows - 1 && first <= last) below[d - last + 1] = now[last + 1];
        T* spare = earlier;
        earlier = before;
        before = now;
        now = spare;
    }
}

template <class T> class Aligner {
public:
    explicit Aligner(const Problem& problem) : costs_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        T* below = bottom_.reserve(costs_.m + 1);
        forward(0, costs_.n, costs_.m, above_.get(), below);
        return below[best_end(below) + 1];
    }

    // Trace the optimal path; cell k from the end is cells()[2k], cells()[2k + 1]. No cells: the value overflowed.
    int64_t path(int64_t pair) {
        begin(pair);
        cells_.reserve(2 * (costs_.n + costs_.m - 1));
        count_ = 0;
        bottom_.reserve(costs_.m + 1);
        finite_ = true;
        trace(0, costs_.n, above_.get(), costs_.problem.open_end ? -1 : costs_.m - 1);
        return finite_ ? count_ : 0;
    }
    const int64_t* cells() const { return cells_.get(); }

private:
    // Cells whose moves are kept at once (two bits each); a longer strip is cut into at most kStrips pieces, whose
    // first rows are kept instead, and each piece is then traced the same way: memory stays linear in the lengths.
    static constexpr int64_t kCellsAtOnce = int64_t(1) << 24, kStrips = 32;

    PairCosts<T> costs_;
    Diagonals diagonals_;
    Buffer<T> above_, bottom_, scratch_;
    Buffer<typename Moves<T>::Word> words_;
    Buffer<int64_t> cells_;
    int64_t count_ = 0;
    bool finite_ = true;

    void begin(int64_t pair) {
        costs_.select(pair);
        first_row(above_.reserve(costs_.m + 1), costs_.m, costs_.problem.open_begin, T(0), kInfinity<T>);
    }
    int64_t best_end(const T* below) const {
        int64_t best = costs_.m - 1;
        if (costs_.problem.open_end)
            for (int64_t j = best = 0; j < costs_.m; ++j)
                if (below[j + 1] < below[best + 1]) best = j;
        return best;
    }
    void build(int64_t top, int64_t rows, int64_t columns) {
        diagonals_.build<T>(costs_.problem.window, costs_.n, costs_.m, top, rows, columns);
    }
    void forward(int64_t top, int64_t rows, int64_t columns, const T* above, T* below) {
        build(top, rows, columns);
        costs_.strip(diagonals_, top, [&](const auto& ground) {
            sweep<T>(diagonals_, ground, above, below, scratch_, NoMoves{});
        });
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
        build(top, rows, columns);
        if (diagonals_.storage <= kCellsAtOnce || rows == 1) return trace_at_once(top, rows, above, end);
        const int64_t pieces = min(kStrips, diagonals_.storage / kCellsAtOnce + 1);
        const int64_t height = (rows + pieces - 1) / pieces, width = columns + 1;
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

    int64_t trace_at_once(int64_t top, int64_t rows, const T* above, int64_t end) {
        const Moves<T> moves{diagonals_, words_.reserve(diagonals_.storage / W<T>)};
        costs_.strip(diagonals_, top, [&](const auto& ground) {
            sweep<T>(diagonals_, ground, above, bottom_.get(), scratch_, moves);
        });
        int64_t i = rows - 1, j = end < 0 ? best_end(bottom_.get()) : end;
        // A finite value was reached through finite ones: every step back then stays inside.
        finite_ = bottom_[j + 1] - bottom_[j + 1] == 0;
        while (finite_) {
            add(top + i, j);
            const int move = moves.at(i, i + j);
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
