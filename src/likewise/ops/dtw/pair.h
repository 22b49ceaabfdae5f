// DTW of one pair at a time: values, and paths in linear memory.
#pragma once
#include <sched.h>

#include "../stop.h"
#include "group.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// When the row above a group is there as far as the turns before `turn` read it: now,
struct Now {
    INLINE void operator()(int64_t) const {}
};
// or once another thread has come that far with the group above. Tells the thread behind how far this one has come.
template <class T> struct Behind {
    static constexpr int64_t kAll = int64_t(1) << 62;
    const int64_t* above;  // turns done of the group above; null for the first group
    int64_t* here;
    const int64_t* failed;  // set when another thread gave up
    mutable int64_t done = 0;

    void operator()(int64_t turn) const {
        __atomic_store_n(here, done, __ATOMIC_RELEASE);
        done = turn;
        // The last row of the group above is kGroup - 1 columns behind its first.
        for (int64_t k = 1; above && __atomic_load_n(above, __ATOMIC_ACQUIRE) < turn + kGroup<T> - 1; ++k) {
            if (k % 256) continue;
            sched_yield();
            stop_if_asked();
            if (__atomic_load_n(failed, __ATOMIC_RELAXED)) throw Stopped{};
        }
    }
};

template <class T> class Aligner {
public:
    explicit Aligner(const Problem& problem) : problem_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        T* below = row_in(bottom_, m_);
        forward(0, n_, m_, above_.get(), below);
        return value_in(below);
    }

    // Group k of a pair's rows, where several threads share the pair. Returns whether it was the last.
    bool group(int64_t pair, int64_t k, const T* above, T* below, const Behind<T>& ready) {
        if (pair != pair_) begin(pair);
        pair_ = pair;
        build_group(0, n_, m_, k);
        if (masked()) fill(below, m_ + 1 + kGroup<T>, kInfinity<T>);
        sweep_group(k > 0 ? above : above_.get(), below, nullptr, ready);
        return (k + 1) * kGroup<T> >= n_;
    }
    T value_in(const T* below) const { return below[best_end(below) + 1]; }
    static int64_t row_size(int64_t columns) { return kGroup<T> + columns + 1 + kGroup<T>; }

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
    // Turns at once: those whose costs stay in the cache where they are computed ahead.
    static constexpr int64_t kAhead = 96, kTurns = 256;
    struct Kept {
        int64_t row, mark;  // where the number before its first column would be in kept_, and its first front in marks_
    };

    const Problem& problem_;
    int64_t n_ = 0, m_ = 0, x_item_ = 0, pair_ = -1;
    const T* matrix_ = nullptr;  // given costs
    Frames<T> frames_;
    Group<T> group_;
    Buffer<T> above_, bottom_, rows_[2], kept_, costs_, again_;
    Buffer<Front<T>> marks_;
    Buffer<int64_t> cells_;
    int64_t count_ = 0;
    bool finite_ = true;

    bool masked() const { return problem_.window.kind != WindowKind::none || problem_.ground == Ground::given; }

    // A row has room on either side for the columns before the first and behind the last, where other rows of its group
    // still are inside.
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
    // Sweeps the turns [begin, end) of the group, given the row above it. `ready(turn)` returns once that row is there
    // as far as the turns before `turn` read it.
    template <class Record, class Ready>
    void sweep_turns(const T* above, T* below, Front<T>& front, const Record record, int64_t begin, int64_t end, const Ready& ready) {
        const int64_t channels = problem_.channels;
        const bool euclidean = problem_.ground == Ground::euclidean, given = problem_.ground == Ground::given;
        const auto turns = [&](const auto costs, int64_t from, int64_t to) {
            ready(to);
            if constexpr (!std::is_same_v<Ready, Now>)  // another core has it
                for (int64_t j = from; j <= to; j += 64 / int64_t(sizeof(T))) __builtin_prefetch(above + j);
            sweep(group_, costs, above, below, front, record, from, to);
        };
        if (!given) frames_.select_x(problem_, x_item_, group_.top, group_.rows);
        const int64_t step = given || channels > 1 ? kAhead : kTurns;
        for (int64_t t = begin; t < end; t += step) {
            const int64_t until = min(t + step, end);
            if (given) turns(lay_out_costs(t, until), t, until);
            else if (channels > 1) turns(frame_costs(t, until), t, until);
            else if (euclidean) turns(ChannelTurns<T, true>{frames_.x, frames_.y}, t, until);
            else turns(ChannelTurns<T, false>{frames_.x, frames_.y}, t, until);
        }
    }
    // Room for the costs of the turns [begin, end): where row 0 would be.
    T* costs_room(int64_t begin, int64_t end) {
        const int64_t first = begin - (kVectors - 1);
        return costs_.reserve((end - first) * kGroup<T>) - first * kGroup<T>;
    }
    CostTurns<T> frame_costs(int64_t begin, int64_t end) {
        T* to = costs_room(begin, end);
        const auto keep = [&](int v, int64_t s, V<T> cost) INLINE_LAMBDA { store(to + s * kGroup<T> + v * W<T>, cost); };
        const bool euclidean = problem_.ground == Ground::euclidean;
        const int64_t channels = problem_.channels;
        const Vectors<T> x{frames_.x, channels * W<T>, W<T>};
        const auto y = [&](int64_t s) INLINE_LAMBDA { return frames_.place(s); };
        blocked_costs<kVectors>(x, y, frames_.stride(), channels, euclidean, begin - (kVectors - 1), end, keep);
        return {to};
    }
    CostTurns<T> lay_out_costs(int64_t begin, int64_t end) {
        T* to = costs_room(begin, end);
        for (int64_t i = 0; i < group_.rows; ++i) {
            const int64_t at = slot<T>(i), v = i % kVectors;
            const T* from = matrix_ + (group_.top + i) * problem_.y_steps - i;
            const int64_t last = min(end - 1, int64_t(group_.last[at]));
            for (int64_t t = max(begin, int64_t(group_.first[at])); t <= last; ++t) to[(t - v) * kGroup<T> + at] = from[t];
        }
        return {to};
    }

    // The last row of the group, given the row above it. Its fronts go to marks, if not null.
    template <class Ready> void sweep_group(const T* above, T* below, Front<T>* marks, const Ready& ready) {
        stop_if_asked();
        ready(group_.begin);
        Front<T> front;
        for (int v = 0; v < kVectors; ++v) front.cell[v] = front.pending[v] = splat(kInfinity<T>);
        front.pending[0][0] = above[group_.begin];
        if (!masked()) {
            below[0] = kInfinity<T>;
            fill(below + group_.end - group_.rows + 2, kGroup<T> - 1, kInfinity<T>);
        }
        sweep_turns(above, below, front, Fronts<T>{marks, group_.begin}, group_.begin, group_.end, ready);
    }
    // R over rows [top, top + rows), group by group.
    void forward(int64_t top, int64_t rows, int64_t columns, const T* above, T* below) {
        for (int64_t k = 0; k * kGroup<T> < rows; ++k) {
            build_group(top, rows, columns, k);
            T* to = (k + 1) * kGroup<T> >= rows ? below : row_in(rows_[k % 2], m_);
            if (masked()) fill(to, columns + 1 + kGroup<T>, kInfinity<T>);
            sweep_group(above, to, nullptr, Now());
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
            sweep_group(row_above(k), kept_.get() + kept[k].row, marks_.get() + kept[k].mark, Now());
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
            // A mark does not hold the diagonal neighbours of its turn: a step from there needs the mark before it.
            // Nothing is before the first one.
            const int64_t mark = max(int64_t(0), (i + j - group_.begin - 1) / kMark), begin = group_.begin + mark * kMark;
            const int64_t end = i + j + 1;
            T* cells = again_.reserve((kMark + 3) * kGroup<T>) - (begin - 2) * kGroup<T>;
            Front<T> front = marks[mark];
            for (int v = 0; v < kVectors; ++v) {
                store(cells + (begin - 2) * kGroup<T> + v * W<T>, splat(kInfinity<T>));
                store(cells + (begin - 1) * kGroup<T> + v * W<T>, front.cell[v]);
            }
            sweep_turns(above, below, front, Turns<T>{cells}, begin, end, Now());
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
