// Soft-DTW of many pairs, one in each lane: values, and the gradients of the sequences.
#pragma once
#include "../lanes.h"
#include "../scaled.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Shares of the predecessors above and left, kept for every cell.
template <class T> struct LaneShares {
    T* shares;
    int64_t columns;
    INLINE T* at(int64_t i, int64_t j) const { return shares + (i * columns + j) * 2 * W<T>; }
    INLINE void operator()(int64_t i, int64_t j, V<T> from_up, V<T> from_left, V<T> sum) const {
        const V<T> scale = T(1) / sum;
        store(at(i, j), from_up * scale);
        store(at(i, j) + W<T>, from_left * scale);
    }
};
template <class T> struct NoLaneShares {
    INLINE void operator()(int64_t, int64_t, V<T>, V<T>, V<T>) const {}
};

template <class T, class Record> struct SoftStep {
    using Cell = Scaled<T>;
    static constexpr int kRows = 4;
    static constexpr bool kCostsAhead = true;
    struct Pending {
        Cell diagonal, left;
    };
    T scale;  // of the costs: -1 / (gamma ln 2)
    bool open_begin;
    Record record;

    static INLINE Cell unreachable() { return {splat(T(1)), splat(Format<T>::unreachable)}; }
    // Open at the beginning, a path enters cell (0, j) once; it has two neighbours above, each with a half.
    INLINE Cell origin() const { return {splat(T(1)), splat(open_begin ? T(-1) : T(0))}; }
    INLINE Cell above() const { return open_begin ? origin() : unreachable(); }
    static INLINE Pending pend(Cell diagonal, Cell left) { return {diagonal, left}; }
    INLINE Cell operator()(Pending pending, Cell up, V<T> cost, int64_t i, int64_t j) const {
        const auto here = [&](V<T> from_up, V<T> from_left, V<T> sum) INLINE_LAMBDA { record(i, j, from_up, from_left, sum); };
        return next_cell<T>(pending.diagonal, up, pending.left, cost * scale, here);
    }
    template <class Inside> static INLINE Cell keep(Cell cell, Inside inside) {
        return {cell.mantissa, inside ? cell.exponent : splat(Format<T>::unreachable)};
    }
};

template <class T> class SoftLanes {
public:
    explicit SoftLanes(const Problem& problem)
        : problem_(problem), scale_(T(-1.44269504088896340736 / problem.gamma)), values_(problem), recorded_(problem) {}

    void values(const int64_t* order, int64_t count, int64_t block, T* values) {
        lanes_.select(problem_, order, count, block);
        const SoftStep<T, NoLaneShares<T>> step{scale_, problem_.open_begin, {}};
        values_.run(step, lanes_.x.get(), false, lanes_.n, lanes_.y.get(), lanes_.m, [&](int l, const Scaled<T>* row) {
            if (l < lanes_.used) values[lanes_.pairs[l]] = finish(l, row, nullptr);
        });
    }

    // Values, if not null, and adds weights * d value to x_grad and y_grad.
    void gradients(const int64_t* order, int64_t count, int64_t block, const T* weights, T* values, T* x_grad, T* y_grad) {
        lanes_.select(problem_, order, count, block, kRows);  // the last rows come in a whole group
        const int64_t channels = problem_.channels;
        fill(seeds_.reserve(lanes_.widest * W<T>), lanes_.widest * W<T>, T(0));
        const LaneShares<T> shares{shares_.reserve(lanes_.longest * lanes_.widest * 2 * W<T>), lanes_.widest};
        const SoftStep<T, LaneShares<T>> step{scale_, problem_.open_begin, shares};
        recorded_.run(step, lanes_.x.get(), false, lanes_.n, lanes_.y.get(), lanes_.m, [&](int l, const Scaled<T>* row) {
            if (l >= lanes_.used) return;
            weight_ = weights[lanes_.pairs[l]];
            const T value = finish(l, row, seeds_.get() + l);
            if (values) values[lanes_.pairs[l]] = value;
        });
        walk_back(shares);
        T *to_x[W<T>], *to_y[W<T>];
        int64_t x_size[W<T>], y_size[W<T>];
        for (int l = 0; l < W<T>; ++l) {
            to_x[l] = x_grad + row_of(problem_, lanes_.pairs[l]) * problem_.x_steps * channels;
            to_y[l] = y_grad + column_of(problem_, lanes_.pairs[l]) * problem_.y_steps * channels;
            x_size[l] = l < lanes_.used ? lanes_.n[l] * channels : 0;
            y_size[l] = l < lanes_.used ? lanes_.m[l] * channels : 0;
        }
        add_apart(x_sum_.get(), x_size, to_x);
        add_apart(y_sum_.get(), y_size, to_y);
    }

private:
    static constexpr int64_t kRows = 4;  // whose gradients are summed at a time

    const Problem& problem_;
    const T scale_;
    LaneBlock<T, SoftStep<T, NoLaneShares<T>>> values_;
    LaneBlock<T, SoftStep<T, LaneShares<T>>> recorded_;
    LanePairs<T> lanes_;
    T weight_ = 0;
    Buffer<T> seeds_, shares_, x_sum_, y_sum_, expected_, flow_;

    // The value of lane l, from its last row; seeds, if not null, get how weight * d value enters its cells.
    T finish(int l, const Scaled<T>* row, T* seeds) const {
        const int64_t m = lanes_.m[l];
        if (!problem_.open_end) {
            if (seeds) seeds[(m - 1) * W<T>] = weight_;
            return negative_log(T(row[m - 1].mantissa[l]), T(row[m - 1].exponent[l]), problem_.gamma);
        }
        int64_t lo, hi;
        window_row(problem_.window, lanes_.n[l], m, lanes_.n[l] - 1, lo, hi);
        T top = row[lo].exponent[l];
        for (int64_t j = lo; j <= hi; ++j) top = max(top, T(row[j].exponent[l]));
        const auto share = [&](int64_t j) { return row[j].mantissa[l] * std::exp2(double(row[j].exponent[l] - top)); };
        double sum = 0;
        for (int64_t j = lo; j <= hi; ++j) sum += share(j);
        if (seeds)
            for (int64_t j = lo; j <= hi; ++j) seeds[j * W<T>] = T(weight_ * share(j) / sum);
        return negative_log(T(sum), top, problem_.gamma);
    }

    // The expected alignment E, row by row from the last; every kRows rows go into the gradients.
    void walk_back(const LaneShares<T>& shares) {
        const int64_t channels = problem_.channels, x_size = (lanes_.longest + kRows) * channels * W<T>;
        fill(x_sum_.reserve(x_size), x_size, T(0));
        fill(y_sum_.reserve(lanes_.widest * channels * W<T>), lanes_.widest * channels * W<T>, T(0));
        fill(expected_.reserve(kRows * lanes_.widest * W<T>), kRows * lanes_.widest * W<T>, T(0));
        fill(flow_.reserve(lanes_.widest * W<T>), lanes_.widest * W<T>, T(0));  // what enters the row's cells from below
        int64_t group_first = lanes_.widest, group_last = -1;
        for (int64_t i = lanes_.longest - 1; i >= 0; --i) {
            if (i % 16 == 0) stop_if_asked();
            for (int l = 0; l < W<T>; ++l)
                if (lanes_.n[l] == i + 1)
                    for (int64_t j = 0; j < lanes_.m[l]; ++j) flow_[j * W<T> + l] += seeds_[j * W<T> + l];
            int64_t first = 0, last = lanes_.widest - 1;
            T* expected = expected_.get() + i % kRows * lanes_.widest * W<T>;
            if (problem_.window.kind != WindowKind::none) {
                union_row<T>(problem_.window, lanes_.n, lanes_.m, i, first, last);
                fill(expected, lanes_.widest * W<T>, T(0));
            }
            walk_row(shares.at(i, 0), first, last, expected);
            if (problem_.ground == Ground::euclidean) divide_by_distances(i, first, last, expected);
            group_first = min(group_first, first);
            group_last = max(group_last, last);
            if (i % kRows == 0) {
                int64_t k = 0;
                for (; k + 2 <= channels; k += 2) add_gradients<2>(i, k, group_first, group_last);
                for (; k < channels; ++k) add_gradients<1>(i, k, group_first, group_last);
                group_first = lanes_.widest, group_last = -1;
            }
        }
    }

    // E of one row, doubled: the derivative of a squared distance is twice the difference.
    void walk_row(const T* shares, int64_t first, int64_t last, T* expected) {
        T* flow = flow_.get();
        V<T> here = {}, left = {}, diagonal = {};
        for (int64_t j = last; j >= first; --j) {
            here = here * left + load(flow + j * W<T>);  // from the right and from below
            const V<T> up = load(shares + j * 2 * W<T>);
            left = load(shares + j * 2 * W<T> + W<T>);
            store(flow + j * W<T>, here * up + diagonal);
            diagonal = here * max(T(1) - up - left, V<T>{});
            store(expected + j * W<T>, here + here);
        }
        if (first > 0) store(flow + (first - 1) * W<T>, diagonal);
    }

    void divide_by_distances(int64_t i, int64_t first, int64_t last, T* expected) {
        const int64_t channels = problem_.channels;
        for (int64_t j = first; j <= last; ++j) {
            V<T> squared = {};
            for (int64_t k = 0; k < channels; ++k) {
                const V<T> difference = load(lanes_.x.get() + (i * channels + k) * W<T>) - load(lanes_.y.get() + (j * channels + k) * W<T>);
                squared += difference * difference;
            }
            const V<T> distance = square_root<T>(squared), half = load(expected + j * W<T>) * T(0.5);
            store(expected + j * W<T>, distance > V<T>{} ? half / distance : V<T>{});
        }
    }

    // Rows top..top + kRows - 1 and channels k..k + K - 1: 2 E (x - y) to x's sums, less the same to y's.
    template <int K> void add_gradients(int64_t top, int64_t k, int64_t first, int64_t last) {
        const int64_t channels = problem_.channels, row = lanes_.widest * W<T>;
        const T *x = lanes_.x.get() + (top * channels + k) * W<T>, *expected = expected_.get();
        T* x_sum = x_sum_.get() + (top * channels + k) * W<T>;
        V<T> sum[kRows][K] = {};
        for (int64_t j = first; j <= last; ++j) {
            const T* y = lanes_.y.get() + (j * channels + k) * W<T>;
            T* y_sum = y_sum_.get() + (j * channels + k) * W<T>;
            V<T> factor[kRows];
            for (int r = 0; r < kRows; ++r) factor[r] = load(expected + r * row + j * W<T>);
            for (int c = 0; c < K; ++c) {
                const V<T> y_c = load(y + c * W<T>);
                V<T> total = load(y_sum + c * W<T>);
                for (int r = 0; r < kRows; ++r) {
                    const V<T> difference = load(x + (r * channels + c) * W<T>) - y_c;
                    sum[r][c] += factor[r] * difference;
                    total -= factor[r] * difference;
                }
                store(y_sum + c * W<T>, total);
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int c = 0; c < K; ++c) store(x_sum + (r * channels + c) * W<T>, sum[r][c]);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
