// What each frame of x is matched with: the sums that averages under DTW are made of. Short pairs run in lanes, with
// every cell kept for the walk back; the others are traced one at a time (pair.h).
#pragma once
#include "../lanes.h"
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kKeptBytes = int64_t(1) << 23;  // cells of one block of lanes

// As HardStep, and every cell is kept.
template <class T, class Step> struct KeepingStep : Step {
    using Cell = typename Step::Cell;
    using Pending = typename Step::Pending;
    T* cells;
    int64_t width;

    INLINE Cell operator()(Pending pending, Cell up, V<T> cost, int64_t i, int64_t j) const {
        const Cell cell = Step::operator()(pending, up, cost, i, j);
        store(cells + (i * width + j) * W<T>, cell.value);
        return cell;
    }
};

// Calls visit(i, j) on the cells of lane l's path, the last first. Ties prefer the diagonal, then the row above.
template <class T, class Visit>
void walk_back(const T* cells, int64_t width, int l, int64_t i, int64_t j, bool open_begin, Visit&& visit) {
    const auto at = [&](int64_t r, int64_t c) { return cells[(r * width + c) * W<T> + l]; };
    while (i >= 0) {
        visit(i, j);
        const T border = open_begin ? T(0) : kInfinity<T>;
        const T left = j > 0 ? at(i, j - 1) : kInfinity<T>;
        const T up = i > 0 ? at(i - 1, j) : border;
        const T diagonal = i == 0 ? (j == 0 ? T(0) : border) : j > 0 ? at(i - 1, j - 1) : kInfinity<T>;
        if (!(min(up, left) < diagonal)) --i, --j;
        else if (left < up) --j;
        else --i;
    }
}

template <class T> class Matcher {
public:
    Matcher(const Problem& problem, const double* weights, double* sums, double* counts)
        : problem_(problem), weights_(weights), sums_(sums), counts_(counts) {}

    void select(int64_t pair) {
        row_ = row_of(problem_, pair) * problem_.x_steps;
        column_ = column_of(problem_, pair) * problem_.y_steps;
        weight_ = weights_[column_of(problem_, pair)];
    }
    // Adds frame j of y to what frame i of x is matched with. Under the Euclidean cost a match weighs the inverse of its
    // distance: then the mean of the matches minimises a bound of the cost, which touches it at x.
    void operator()(int64_t i, int64_t j) const {
        const int64_t channels = problem_.channels, at = row_ + i;
        const T *x = static_cast<const T*>(problem_.x) + at * channels, *y = static_cast<const T*>(problem_.y) + (column_ + j) * channels;
        double weight = weight_;
        if (problem_.ground == Ground::euclidean) weight /= max(distance(x, y), 1e-12);
        counts_[at] += weight;
        for (int64_t c = 0; c < channels; ++c) sums_[at * channels + c] += weight * double(y[c]);
    }
    double cost(int64_t i, int64_t j) const {
        const int64_t channels = problem_.channels;
        const double root = distance(static_cast<const T*>(problem_.x) + (row_ + i) * channels,
                                     static_cast<const T*>(problem_.y) + (column_ + j) * channels);
        return problem_.ground == Ground::euclidean ? root : root * root;
    }

private:
    const Problem& problem_;
    const double* weights_;
    double *sums_, *counts_, weight_ = 0;
    int64_t row_ = 0, column_ = 0;

    double distance(const T* x, const T* y) const {
        double squared = 0;
        for (int64_t c = 0; c < problem_.channels; ++c) squared += (double(x[c]) - y[c]) * (double(x[c]) - y[c]);
        return root(squared);
    }
};

template <class T, class Step>
void matched(const Problem& problem, const int64_t* order, int64_t count, const double* weights, double* sums, double* counts,
             T* values, int64_t begin, int64_t end) {
    LanePairs<T> lanes;
    LaneBlock<T, KeepingStep<T, Step>> block(problem);
    Aligner<T> aligner(problem);
    Buffer<T> cells;
    Matcher<T> match(problem, weights, sums, counts);
    for (int64_t b = begin; b < end; ++b) {
        lanes.select(problem, order, count, b);
        bool alike = true;
        for (int l = 1; l < W<T>; ++l) alike &= lanes.n[l] == lanes.n[0] && lanes.m[l] == lanes.m[0];
        const int64_t kept = lanes.longest * lanes.widest * W<T>;
        const bool windowed = problem.window.kind != WindowKind::none;
        if (lanes.used == 1 || (windowed && !alike) || kept * int64_t(sizeof(T)) > kKeptBytes) {
            for (int64_t l = 0; l < lanes.used; ++l) {
                const int64_t steps = aligner.path(lanes.pairs[l]);
                match.select(lanes.pairs[l]);
                double value = steps ? 0 : kInfinity<double>;
                for (int64_t k = 0; k < steps; ++k) {
                    const int64_t i = aligner.cells()[2 * k], j = aligner.cells()[2 * k + 1];
                    value += match.cost(i, j);
                    match(i, j);
                }
                values[column_of(problem, lanes.pairs[l])] = T(value);
            }
            continue;
        }
        cells.reserve(kept);
        if (windowed) fill(cells.get(), kept, kInfinity<T>);
        KeepingStep<T, Step> step;
        step.open_begin = problem.open_begin;
        step.cells = cells.get();
        step.width = lanes.widest;
        block.run(step, lanes.x.get(), false, lanes.n, lanes.y.get(), lanes.m, [](int, const auto*) {});
        for (int l = 0; l < lanes.used; ++l) {
            const int64_t i = lanes.n[l] - 1;
            int64_t j = lanes.m[l] - 1, first, last;
            const T* bottom = cells.get() + i * lanes.widest * W<T> + l;
            if (problem.open_end) {
                window_row(problem.window, lanes.n[l], lanes.m[l], i, first, last);
                for (j = first++; first <= last; ++first)
                    if (bottom[first * W<T>] < bottom[j * W<T>]) j = first;
            }
            const T value = bottom[j * W<T>];
            values[column_of(problem, lanes.pairs[l])] = value;
            if (!(value < kInfinity<T>)) continue;  // it overflowed: there is no path
            match.select(lanes.pairs[l]);
            walk_back(cells.get(), lanes.widest, l, i, j, problem.open_begin, match);
        }
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
