// Sums over optimal paths: what each frame of x is matched with, of which averages under DTW are made. Short pairs run
// in lanes, with every move kept for the walk back; the others are traced one at a time (pair.h).
#pragma once
#include "../lanes.h"
#include "pair.h"
#include "step.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The frames of one pair.
template <class T> class PairFrames {
public:
    explicit PairFrames(const Problem& problem) : problem_(problem) {}

    void select(int64_t pair) {
        row_ = row_of(problem_, pair) * problem_.x_steps;
        column_ = column_of(problem_, pair) * problem_.y_steps;
    }
    double cost(int64_t i, int64_t j) const {
        const double root = distance(i, j);
        return problem_.ground == Ground::euclidean ? root : root * root;
    }

protected:
    const Problem& problem_;
    int64_t row_ = 0, column_ = 0;

    const T* frame_of_y(int64_t j) const { return static_cast<const T*>(problem_.y) + (column_ + j) * problem_.channels; }
    double distance(int64_t i, int64_t j) const {
        const T *from = static_cast<const T*>(problem_.x) + (row_ + i) * problem_.channels, *to = frame_of_y(j);
        double squared = 0;
        for (int64_t c = 0; c < problem_.channels; ++c) squared += (double(from[c]) - to[c]) * (double(from[c]) - to[c]);
        return root(squared);
    }
};

// Adds frame j of y to what frame i of x is matched with. Under the Euclidean cost a match weighs the inverse of its
// distance: then the mean of the matches minimises a bound of the cost, which touches it at x.
template <class T> class Matcher : public PairFrames<T> {
public:
    Matcher(const Problem& problem, const double* weights, double* sums, double* counts)
        : PairFrames<T>(problem), weights_(weights), sums_(sums), counts_(counts) {}

    void select(int64_t pair) {
        PairFrames<T>::select(pair);
        weight_ = weights_[column_of(this->problem_, pair)];
    }
    void operator()(int64_t i, int64_t j) const {
        const int64_t channels = this->problem_.channels, at = this->row_ + i;
        const T* y = this->frame_of_y(j);
        double weight = weight_;
        if (this->problem_.ground == Ground::euclidean) weight /= max(this->distance(i, j), 1e-12);
        counts_[at] += weight;
        for (int64_t c = 0; c < channels; ++c) sums_[at * channels + c] += weight * double(y[c]);
    }

private:
    const double* weights_;
    double *sums_, *counts_, weight_ = 0;
};

// Calls visit.select(pair) and visit(i, j) on the cells of its path, for each pair of some blocks of lanes.
template <class T, class Visit>
void visit_paths(const Problem& problem, const int64_t* order, int64_t count, Visit visit, T* values, int64_t begin, int64_t end) {
    LanePairs<T> lanes;
    LaneBlock<T, MovingStep<T>> block(problem);
    Aligner<T> aligner(problem);
    static thread_local Buffer<int8_t> moves;  // fresh memory takes as long to touch as the sweep itself
    for (int64_t b = begin; b < end; ++b) {
        lanes.select(problem, order, count, b);
        bool alike = true;
        for (int l = 1; l < W<T>; ++l) alike &= lanes.n[l] == lanes.n[0] && lanes.m[l] == lanes.m[0];
        const int64_t kept = lanes.longest * lanes.widest * W<T>;
        const bool windowed = problem.window.kind != WindowKind::none;
        if (lanes.used == 1 || (windowed && !alike) || kept > kKeptBytes) {
            for (int64_t l = 0; l < lanes.used; ++l) {
                const int64_t steps = aligner.path(lanes.pairs[l]);
                visit.select(lanes.pairs[l]);
                double value = steps ? 0 : kInfinity<double>;
                for (int64_t k = 0; k < steps; ++k) {
                    const int64_t i = aligner.cells()[2 * k], j = aligner.cells()[2 * k + 1];
                    value += visit.cost(i, j);
                    visit(i, j);
                }
                values[column_of(problem, lanes.pairs[l])] = T(value);
            }
            continue;
        }
        MovingStep<T> step;
        step.open_begin = problem.open_begin;
        step.moves = moves.reserve(kept);
        step.width = lanes.widest;
        int64_t ends[W<T>];
        T reached[W<T>];
        block.run(step, lanes.x.get(), false, lanes.n, lanes.y.get(), lanes.m, [&](int l, const auto* row) {
            ends[l] = step.end(problem, lanes.n[l], lanes.m[l], l, row);
            reached[l] = row[ends[l]].value[l];
        });
        for (int l = 0; l < lanes.used; ++l) {
            values[column_of(problem, lanes.pairs[l])] = reached[l];
            if (!(reached[l] < kInfinity<T>)) continue;  // it overflowed: there is no path
            visit.select(lanes.pairs[l]);
            walk_back<T>(step.moves + l, lanes.widest, lanes.n[l] - 1, ends[l], visit);
        }
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
