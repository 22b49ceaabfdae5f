// DTW of a group of rows of one pair: the rows are in the lanes.
#pragma once
#include <type_traits>

#include "../costs.h"
#include "../problem.h"
#include "../simd.h"

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

// The sequences of a pair as groups read them: the rows of one in their slots, and y so that turn t of vector v finds at
// t - v the columns that its lanes are at, with zeros around the ends. Of one channel, there is a vector for each such
// place. Of several, that would overflow the cache: y is kept backwards, every kVectors-th column beside the last.
template <class T> class Frames {
public:
    const T *x = nullptr, *y = nullptr;

    void select_y(const Problem& problem, int64_t item) {
        if (item == item_) return;
        item_ = item;
        channels_ = problem.channels;
        const int64_t m = problem.y_lengths[item];
        const T* from = static_cast<const T*>(problem.y) + item * problem.y_steps * channels_;
        if (channels_ == 1) return replicate(from, m);
        last_ = (m + kGroup<T>) / kVectors + 1;
        stride_ = last_ + 2 + W<T>;
        stride_ += stride_ % 256 < 16 ? 16 : 0;  // channels in different sets of the cache
        T* to = y_.reserve(kVectors * channels_ * stride_);
        fill(to, kVectors * channels_ * stride_, T(0));
        for (int64_t j = 0; j < m; ++j)
            for (int64_t k = 0; k < channels_; ++k)
                to[(j % kVectors * channels_ + k) * stride_ + last_ - j / kVectors] = from[j * channels_ + k];
        y = to;
    }
    // Where place s, at least -kVectors, has its first channel; the others follow at stride().
    INLINE const T* place(int64_t s) const {
        const int64_t shifted = s + kVectors;
        return y + shifted % kVectors * channels_ * stride_ + last_ + 1 - shifted / kVectors;
    }
    int64_t stride() const { return stride_; }
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
    int64_t item_ = -1, channels_ = 0, last_ = 0, stride_ = 0;
    Buffer<T> x_, y_;

    void replicate(const T* from, int64_t m) {
        const int64_t size = m + kGroup<T>;
        T* to = y_.reserve((kVectors + size) * W<T>) + kVectors * W<T>;
        fill(y_.get(), kVectors * W<T>, T(0));
        for (int64_t j = 0; j < size; ++j)
            store(to + j * W<T>, shift<T>(load(to + (j - kVectors) * W<T>), splat(j < m ? from[j] : T(0))));
        y = to;
    }
};

// The costs of a group on its turns: of frames of one channel,
template <class T, bool kEuclidean> struct ChannelTurns {
    const T *x, *y;
    INLINE V<T> operator()(int v, int64_t t) const {
        const V<T> difference = subtract<T>(load(y + (t - v) * W<T>), load(x + v * W<T>));
        return kEuclidean ? max(difference, -difference) : difference * difference;
    }
};
// or computed ahead, those of the columns that vector v is at on turn t in row t - v.
template <class T> struct CostTurns {
    const T* rows;  // row 0
    INLINE V<T> operator()(int v, int64_t t) const { return load(rows + (t - v) * kGroup<T> + v * W<T>); }
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
__attribute__((noinline)) void advance(const Group<T>& group, const Costs costs, const T* above, T* below, Front<T>& front, const Record record,
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

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
