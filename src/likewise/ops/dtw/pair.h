// DTW of one pair at a time: values, and paths in linear memory.
#pragma once
#include <type_traits>

#include "../problem.h"
#include "../simd.h"
#include "../stop.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Lanes are rows of a group, kVectors rows apart: row i is lane i / kVectors of vector i % kVectors, and on turn t it is
// at column t - i. Its left neighbour is where it is itself, one turn before; the upper one is the vector before it, or
// for the first one the last vector, shifted by a lane. Only the rows above and below a group go through memory.
//
// Without a window, cells beyond the ends of a row need no mask: before the first column they are infinite by themselves,
// and what is behind the last one is never read.
constexpr int kVectors = 6;
template <class T> constexpr int64_t kGroup = kVectors * W<T>;
template <class T> int64_t slot(int64_t i) { return i % kVectors * W<T> + i / kVectors; }

template <class T> struct Group {
    int64_t top, rows, begin, end;   // rows [top, top + rows), of which something is inside on turns [begin, end)
    int64_t inner_begin, inner_end;  // and everything on these
    int64_t bottom_first, bottom_last;  // turns on which the last row is inside
    alignas(kBytes) typename Lanes<T>::Bits first[kGroup<T>], last[kGroup<T>];  // those of each slot

    void build(int64_t top_, int64_t rows_, int64_t columns) {
        top = top_, rows = rows_;
        begin = inner_begin = 0, end = inner_end = columns + rows - 1;
    }
    void build_masked(const Window& window, int64_t n, int64_t m, int64_t top_, int64_t rows_, int64_t columns) {
        using Bits = typename Lanes<T>::Bits;
        top = top_, rows = rows_;
        for (int64_t i = 0; i < kGroup<T>; ++i) {
            int64_t lo = 0, hi = -1;
            if (i < rows) window_row(window, n, m, top + i, lo, hi);
            first[slot<T>(i)] = Bits(lo + i);
            last[slot<T>(i)] = Bits(min(hi, columns - 1) + i);
        }
        bottom_first = first[slot<T>(rows - 1)], bottom_last = last[slot<T>(rows - 1)];
        begin = first[0], end = bottom_last + 1;
        inner_begin = min(bottom_first, end);
        inner_end = max(inner_begin, min(int64_t(last[0]) + 1, end));
    }
    INLINE V<T> mask(V<T> value, int v, int64_t t) const {
        const I<T> turn = I<T>{} + static_cast<typename Lanes<T>::Bits>(t);
        const I<T> outside = (turn < load_bits(first + v * W<T>)) | (turn > load_bits(last + v * W<T>));
        return outside ? splat(kInfinity<T>) : value;
    }
    static INLINE I<T> load_bits(const typename Lanes<T>::Bits* from) { return *reinterpret_cast<const I<T>*>(from); }
};

// The sequences of a pair as groups read them: the rows of one in their slots, and all of y, once for every lane. Turn
// t of vector v finds at y[t - v] the columns that its lanes are at, with zeros around the ends.
template <class T> class Frames {
public:
    const T *x = nullptr, *y = nullptr;

    void select_y(const Problem& problem, int64_t item) {
        if (item == item_) return;
        item_ = item;
        const int64_t m = problem.y_lengths[item], apart = kVectors * problem.channels;  // numbers from lane to lane
        const int64_t numbers = m * problem.channels, size = numbers + kGroup<T> * problem.channels;
        T* to = y_.reserve((apart + size) * W<T>) + apart * W<T>;
        fill(y_.get(), apart * W<T>, T(0));
        const T* from = static_cast<const T*>(problem.y) + item * problem.y_steps * problem.channels;
        for (int64_t k = 0; k < size; ++k)
            store(to + k * W<T>, shift<T>(load(to + (k - apart) * W<T>), splat(k < numbers ? from[k] : T(0))));
        y = to;
    }
    void select_x(const Problem& problem, int64_t item, int64_t top, int64_t rows) {
        const int64_t channels = problem.channels;
        T* to = x_.reserve(kGroup<T> * channels);
        const T* from = static_cast<const T*>(problem.x) + (item * problem.x_steps + top) * channels;
        if (rows < kGroup<T>) fill(to, kGroup<T> * channels, T(0));
        for (int64_t i = 0, l = 0; i < rows; ++l)
            for (int64_t v = 0; v < kVectors && i < rows; ++v, ++i)
                for (int64_t k = 0; k < channels; ++k) to[(v * channels + k) * W<T> + l] = from[i * channels + k];
        x = to;
    }

private:
    int64_t item_ = -1;
    Buffer<T> x_, y_;
};

template <class T, bool kEuclidean, bool kOneChannel> struct FrameCosts {
    const T *x, *y;
    int64_t channels;
    INLINE V<T> operator()(int v, int64_t t) const {
        if constexpr (kOneChannel) {
            const V<T> difference = subtract<T>(load(y + (t - v) * W<T>), load(x + v * W<T>));
            return kEuclidean ? max(difference, -difference) : difference * difference;
        }
        const T *x_k = x + v * channels * W<T>, *y_k = y + (t - v) * channels * W<T>;
        V<T> even = V<T>{}, odd = V<T>{};
        for (int64_t k = 0; k < channels; ++k) {
            const V<T> difference = load(y_k + k * W<T>) - load(x_k + k * W<T>);
            odd += difference * difference;
            if (++k == channels) break;
            const V<T> next = load(y_k + k * W<T>) - load(x_k + k * W<T>);
            even += next * next;
        }
        return kEuclidean ? square_root<T>(even + odd) : even + odd;
    }
};
template <class T> struct GivenCosts {
    const T* turns;  // of turn 0
    INLINE V<T> operator()(int v, int64_t t) const { return load(turns + t * kGroup<T> + v * W<T>); }
};

// Values of a group between two turns: its cells, and the lesser of the diagonal and the left neighbour of the next.
template <class T> struct Front {
    V<T> cell[kVectors], pending[kVectors];
};

// What a sweep keeps beside the last row: its front every kMark turns, if marks is not null,
constexpr int64_t kMark = 64;
template <class T> struct Fronts {
    Front<T>* marks;
    int64_t begin;  // the turn of the first
    // Gets the front before turn t, and returns the turn before which it needs the next one.
    INLINE int64_t pause(int64_t t, const Front<T>& front, int64_t end) const {
        if (!marks) return end;
        if ((t - begin) % kMark == 0) marks[(t - begin) / kMark] = front;
        return min(end, t + kMark - (t - begin) % kMark);
    }
    INLINE void operator()(int64_t, int, V<T>) const {}
};
// or the cells of every turn.
template <class T> struct Turns {
    T* cells;  // of turn 0
    INLINE int64_t pause(int64_t, const Front<T>&, int64_t end) const { return end; }
    INLINE void operator()(int64_t t, int v, V<T> cell) const { store(cells + t * kGroup<T> + v * W<T>, cell); }
};

template <bool kMasked, bool kWhole, class T, class Costs, class Record>
INLINE void advance(const Group<T>& group, const Costs costs, const T* above, T* below, Front<T>& front, const Record record,
                    int64_t begin, int64_t end) {
    Front<T> now = front;
    const int64_t bottom = group.rows - 1;
    for (int64_t t = begin; t < end;) {
        for (const int64_t pause = record.pause(t, now, end); t < pause; ++t) {
            const V<T> first_up = shift<T>(now.cell[kVectors - 1], splat(above[t + 1]));
            each<kVectors>([&](auto k) INLINE_LAMBDA {
                constexpr int v = kVectors - 1 - k;
                const V<T> up = v > 0 ? now.cell[v > 0 ? v - 1 : 0] : first_up;
                now.cell[v] = min(now.pending[v], up) + costs(v, t);
                if constexpr (kMasked) now.cell[v] = group.mask(now.cell[v], v, t);
                now.pending[v] = min(up, now.cell[v]);
                record(t, v, now.cell[v]);
            });
            if (kMasked && (t < group.bottom_first || t > group.bottom_last)) continue;
            if constexpr (kWhole) below[t - bottom + 1] = now.cell[kVectors - 1][W<T> - 1];
            else below[t - bottom + 1] = now.cell[bottom % kVectors][bottom / kVectors];
        }
    }
    front = now;
}

// R over the turns [begin, end) of a group, given the row above it: R(., j) is above[j + 1], and infinity beyond the
// end. Writes the last row and, where nothing is masked, the infinities before its first column.
template <class T, class Costs, class Record>
void sweep(const Group<T>& group, const Costs costs, const T* above, T* below, Front<T>& front, const Record record,
           int64_t begin, int64_t end) {
    const auto turns = [&](auto masked, int64_t from, int64_t to) INLINE_LAMBDA {
        constexpr bool kMasked = decltype(masked)::value;
        from = max(from, begin), to = min(to, end);
        if (from >= to) return;
        if (group.rows == kGroup<T>) advance<kMasked, true>(group, costs, above, below, front, record, from, to);
        else advance<kMasked, false>(group, costs, above, below, front, record, from, to);
    };
    turns(std::true_type(), group.begin, group.inner_begin);
    turns(std::false_type(), group.inner_begin, group.inner_end);
    turns(std::true_type(), group.inner_end, group.end);
}

template <class T> class Aligner {
public:
    explicit Aligner(const Problem& problem) : problem_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        T* below = row_in(bottom_, m_);
        forward(0, n_, m_, above_.get(), below);
        return below[best_end(below) + 1];
    }

    // Trace the optimal path; cell k from the end is cells()[2k], cells()[2k + 1]. No cells: the value overflowed.
    int64_t path(int64_t pair) {
        begin(pair);
        cells_.reserve(2 * (n_ + m_ - 1));
        count_ = 0;
        finite_ = true;
        trace(0, n_, above_.get(), problem_.open_end ? -1 : m_ - 1);
        return finite_ ? count_ : 0;
    }
    const int64_t* cells() const { return cells_.get(); }

private:
    // Cells that are traced at once: the last row of each of their groups is kept, and its front every kMark turns, from
    // where the turns that the path goes through are computed again. A larger strip of rows is cut into at most kPieces
    // pieces, whose first rows are kept instead, and each piece is then traced the same way: memory stays linear in the
    // lengths.
    static constexpr int64_t kCellsAtOnce = int64_t(1) << 24, kPieces = 32;
    struct Kept {
        int64_t row, mark;  // where the number before its first column would be in kept_, and its first front in marks_
    };

    const Problem& problem_;
    int64_t n_ = 0, m_ = 0, x_item_ = 0;
    const T* matrix_ = nullptr;  // given costs
    Frames<T> frames_;
    Group<T> group_;
    Buffer<T> above_, bottom_, rows_[2], kept_, turns_, again_;
    Buffer<Front<T>> marks_;
    Buffer<int64_t> cells_;
    int64_t count_ = 0;
    bool finite_ = true;

    bool masked() const { return problem_.window.kind != WindowKind::none || problem_.ground == Ground::given; }

    // A row has room on either side for the columns before the first and behind the last, where other rows of its group
    // still are inside.
    static int64_t row_size(int64_t columns) { return kGroup<T> + columns + 1 + kGroup<T>; }
    static T* row_in(Buffer<T>& buffer, int64_t columns) { return buffer.reserve(row_size(columns)) + kGroup<T>; }

    void begin(int64_t pair) {
        const int64_t y_item = column_of(problem_, pair);
        x_item_ = row_of(problem_, pair);
        n_ = problem_.x_lengths[x_item_];
        m_ = problem_.y_lengths[y_item];
        if (problem_.ground == Ground::given)
            matrix_ = static_cast<const T*>(problem_.cost) + pair * problem_.x_steps * problem_.y_steps;
        else
            frames_.select_y(problem_, y_item);
        T* above = above_.reserve(row_size(m_));
        fill(above, row_size(m_), kInfinity<T>);
        if (problem_.open_begin) fill(above, m_ + 1, T(0));
        above[0] = T(0);
    }
    int64_t best_end(const T* below) const {
        if (!problem_.open_end) return m_ - 1;
        int64_t best, last;
        window_row(problem_.window, n_, m_, n_ - 1, best, last);
        for (int64_t j = best + 1; j <= last; ++j)
            if (below[j + 1] < below[best + 1]) best = j;
        return best;
    }

    void build_group(int64_t top, int64_t rows, int64_t columns, int64_t k) {
        top += k * kGroup<T>, rows = min(kGroup<T>, rows - k * kGroup<T>);
        if (masked()) group_.build_masked(problem_.window, n_, m_, top, rows, columns);
        else group_.build(top, rows, columns);
    }
    // Calls body(costs) with an object that computes the costs of the group on the turns [begin, end).
    template <class F> void with_costs(int64_t begin, int64_t end, F&& body) {
        const int64_t channels = problem_.channels;
        if (problem_.ground == Ground::given) return body(lay_out_costs(begin, end));
        frames_.select_x(problem_, x_item_, group_.top, group_.rows);
        const T *x = frames_.x, *y = frames_.y;
        const bool euclidean = problem_.ground == Ground::euclidean;
        if (channels == 1 && !euclidean) body(FrameCosts<T, false, true>{x, y, channels});
        else if (channels == 1) body(FrameCosts<T, true, true>{x, y, channels});
        else if (!euclidean) body(FrameCosts<T, false, false>{x, y, channels});
        else body(FrameCosts<T, true, false>{x, y, channels});
    }
    GivenCosts<T> lay_out_costs(int64_t begin, int64_t end) {
        T* to = turns_.reserve((end - begin) * kGroup<T>) - begin * kGroup<T>;
        for (int64_t i = 0; i < group_.rows; ++i) {
            const int64_t at = slot<T>(i);
            const T* from = matrix_ + (group_.top + i) * problem_.y_steps - i;
            const int64_t last = min(end - 1, int64_t(group_.last[at]));
            for (int64_t t = max(begin, int64_t(group_.first[at])); t <= last; ++t) to[t * kGroup<T> + at] = from[t];
        }
        return {to};
    }

    // The last row of the group, given the row above it. Its fronts go to marks, if not null.
    void sweep_group(const T* above, T* below, Front<T>* marks) {
        stop_if_asked();
        Front<T> front;
        for (int v = 0; v < kVectors; ++v) front.cell[v] = front.pending[v] = splat(kInfinity<T>);
        front.pending[0][0] = above[group_.begin];
        if (!masked()) {
            below[0] = kInfinity<T>;
            fill(below + group_.end - group_.rows + 2, kGroup<T> - 1, kInfinity<T>);
        }
        with_costs(group_.begin, group_.end, [&](const auto costs) {
            sweep(group_, costs, above, below, front, Fronts<T>{marks, group_.begin}, group_.begin, group_.end);
        });
    }
    // R over rows [top, top + rows), group by group.
    void forward(int64_t top, int64_t rows, int64_t columns, const T* above, T* below) {
        for (int64_t k = 0; k * kGroup<T> < rows; ++k) {
            build_group(top, rows, columns, k);
            T* to = (k + 1) * kGroup<T> >= rows ? below : row_in(rows_[k % 2], m_);
            if (masked()) fill(to, columns + 1 + kGroup<T>, kInfinity<T>);
            sweep_group(above, to, nullptr);
            above = to;
        }
    }

    int64_t widest(int64_t top, int64_t rows, int64_t columns) const {
        if (problem_.window.kind == WindowKind::none) return columns;
        int64_t found = 0, lo, hi;
        for (int64_t i = 0; i < rows; ++i) {
            window_row(problem_.window, n_, m_, top + i, lo, hi);
            found = max(found, min(hi, columns - 1) - lo + 1);
        }
        return found;
    }

    // Trace rows [top, top + rows) backwards from column `end` of the last (the best one when end < 0).
    // Returns the column from which the row above is left.
    int64_t trace(int64_t top, int64_t rows, const T* above, int64_t end) {
        const int64_t columns = end < 0 ? m_ : end + 1;
        const int64_t cells = rows * (widest(top, rows, columns) + kGroup<T>);  // and those that a group adds at its ends
        if (cells <= kCellsAtOnce || rows == 1) return trace_at_once(top, rows, columns, above, end);
        const int64_t pieces = min(kPieces, cells / kCellsAtOnce + 1);
        const int64_t height = (rows + pieces - 1) / pieces, width = row_size(columns);
        Buffer<T> borders(pieces * width);  // the row above each piece but the first
        const auto border = [&](int64_t piece) { return borders.get() + (piece - 1) * width + kGroup<T>; };
        int64_t piece = 0;
        for (; (piece + 1) * height < rows; ++piece)
            forward(top + piece * height, height, columns, piece ? border(piece) : above, border(piece + 1));
        for (; piece >= 0 && finite_; --piece) {
            const int64_t from = piece * height;
            end = trace(top + from, min(height, rows - from), piece ? border(piece) : above, end);
        }
        return end;
    }

    int64_t trace_at_once(int64_t top, int64_t rows, int64_t columns, const T* above, int64_t end) {
        const int64_t groups = (rows + kGroup<T> - 1) / kGroup<T>;
        Buffer<Kept> kept(groups);
        int64_t numbers = 0, fronts = 0;
        for (int64_t k = 0; k < groups; ++k) {
            build_group(top, rows, columns, k);
            if (k > 0) numbers = max(numbers, kept[k - 1].row + group_.end + 1);  // what this group reads of the last row
            numbers += kGroup<T>;
            kept[k] = {numbers - group_.begin, fronts};
            numbers += group_.end - group_.begin + 1;
            fronts += (group_.end - group_.begin + kMark - 1) / kMark;
        }
        kept_.reserve(numbers + kGroup<T>);
        if (masked()) fill(kept_.get(), numbers, kInfinity<T>);
        marks_.reserve(fronts);
        const auto row_above = [&](int64_t k) { return k > 0 ? kept_.get() + kept[k - 1].row : above; };
        for (int64_t k = 0; k < groups; ++k) {
            build_group(top, rows, columns, k);
            sweep_group(row_above(k), kept_.get() + kept[k].row, marks_.get() + kept[k].mark);
        }
        const T* bottom = kept_.get() + kept[groups - 1].row;
        int64_t j = end < 0 ? best_end(bottom) : end;
        // A finite value was reached through finite ones: every step back then stays inside.
        finite_ = bottom[j + 1] - bottom[j + 1] == 0;
        for (int64_t k = groups - 1; k >= 0 && finite_; --k) {
            build_group(top, rows, columns, k);
            j = trace_group(row_above(k), kept_.get() + kept[k].row, marks_.get() + kept[k].mark, j);
        }
        return j;
    }

    // Trace the group backwards from column j of its last row.
    int64_t trace_group(const T* above, T* below, const Front<T>* marks, int64_t j) {
        int64_t i = group_.rows - 1;
        while (i >= 0) {
            // A mark does not tell the diagonal neighbours of its turn: a step from there is found from the mark before.
            // Nothing is before the first one.
            const int64_t mark = max(int64_t(0), (i + j - group_.begin - 1) / kMark), begin = group_.begin + mark * kMark;
            const int64_t end = i + j + 1;
            T* cells = again_.reserve((kMark + 3) * kGroup<T>) - (begin - 2) * kGroup<T>;
            Front<T> front = marks[mark];
            for (int v = 0; v < kVectors; ++v) {
                store(cells + (begin - 2) * kGroup<T> + v * W<T>, splat(kInfinity<T>));
                store(cells + (begin - 1) * kGroup<T> + v * W<T>, front.cell[v]);
            }
            const Turns<T> turns{cells};
            with_costs(begin, end, [&](const auto costs) { sweep(group_, costs, above, below, front, turns, begin, end); });
            while (i >= 0 && (i + j > begin || mark == 0)) {
                cells_[2 * count_] = group_.top + i;
                cells_[2 * count_++ + 1] = j;
                const T *before = cells + (i + j - 1) * kGroup<T>, *earlier = before - kGroup<T>;
                const T left = before[slot<T>(i)];
                const T up = i > 0 ? before[slot<T>(i - 1)] : above[j + 1];
                const T diagonal = i > 0 ? earlier[slot<T>(i - 1)] : above[j];
                if (!(min(up, left) < diagonal)) --i, --j;
                else if (left < up) --j;
                else --i;
            }
        }
        return j;
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
