// DTW under rotations: the path and the rotation in turn, until the path does not change.
//
// Each lane holds one pair, and takes the next one when its own is done: lanes never wait for each other. Long pairs,
// whose moves do not fit in the cache, are traced one at a time.
#pragma once
#include "kernel.h"
#include "pair.h"
#include "polar.h"
#include "step.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The pair of a lane, and how far it has come.
template <class T> struct Turning {
    int64_t pair = -1, n = 1, m = 1, iterations = 0;
    const T *x = nullptr, *y = nullptr, *rotation = nullptr, *offset = nullptr;
    Buffer<double> x_mean, y_mean, moment, before;
};

template <class T> class Rotations {
public:
    explicit Rotations(const RotationProblem& given)
        : given_(given), x_channels_(given.problem.channels), y_channels_(given.y_channels),
          numbers_(x_channels_ * y_channels_), polar_(x_channels_, y_channels_), found_(numbers_), row_(y_channels_) {
        for (Turning<T>& lane : lanes_) {
            lane.x_mean.reserve(x_channels_), lane.y_mean.reserve(y_channels_);
            lane.moment.reserve(numbers_), lane.before.reserve(numbers_);
        }
    }

    void run() {
        const Problem& problem = given_.problem;
        bool alike = true;
        for (int64_t k = 1; k < problem.rows; ++k) alike &= problem.x_lengths[k] == problem.x_lengths[0];
        for (int64_t k = 1; k < problem.columns; ++k) alike &= problem.y_lengths[k] == problem.y_lengths[0];
        const bool fits = problem.x_steps * problem.y_steps * W<T> <= kKeptBytes;
        if (fits && (alike || problem.window.kind == WindowKind::none)) run_lanes();
        else run_alone();
    }

private:
    const RotationProblem& given_;
    const int64_t x_channels_, y_channels_, numbers_;
    Polar polar_;
    Buffer<double> found_, row_;
    Turning<T> lanes_[W<T>];

    // The next pair, with the first rotation. Returns whether there was one.
    bool take(Turning<T>& lane) {
        const Problem& problem = given_.problem;
        const int64_t place = __atomic_fetch_add(given_.next, 1, __ATOMIC_RELAXED);
        lane.pair = place < given_.count ? given_.order[place] : -1;
        if (lane.pair < 0) return false;
        const int64_t item = row_of(problem, lane.pair), other = column_of(problem, lane.pair);
        lane.n = problem.x_lengths[item], lane.m = problem.y_lengths[other];
        lane.x = static_cast<const T*>(problem.x) + item * problem.x_steps * x_channels_;
        lane.y = static_cast<const T*>(problem.y) + other * problem.y_steps * y_channels_;
        T* rotation = static_cast<T*>(given_.rotations) + lane.pair * numbers_;
        std::memcpy(rotation, given_.start, numbers_ * sizeof(T));
        lane.rotation = rotation, lane.offset = static_cast<T*>(given_.offsets) + lane.pair * x_channels_;
        lane.iterations = 0;
        mean(lane.x, lane.n, x_channels_, lane.x_mean.get());
        mean(lane.y, lane.m, y_channels_, lane.y_mean.get());
        fill(lane.moment.get(), numbers_, 0.0);
        return true;
    }
    // The mean frame, or without a bias zero.
    void mean(const T* frames, int64_t steps, int64_t channels, double* to) const {
        fill(to, channels, 0.0);
        if (!given_.bias) return;
        for (int64_t k = 0; k < steps * channels; ++k) to[k % channels] += double(frames[k]);
        for (int64_t c = 0; c < channels; ++c) to[c] /= double(steps);
    }

    // Adds a match to the moment: the product of both frames, about their means.
    void match(Turning<T>& lane, int64_t i, int64_t j) {
        const T *x = lane.x + i * x_channels_, *y = lane.y + j * y_channels_;
        for (int64_t c = 0; c < y_channels_; ++c) row_[c] = double(y[c]) - lane.y_mean[c];
        for (int64_t r = 0; r < x_channels_; ++r) {
            const double from = double(x[r]) - lane.x_mean[r];
            for (int64_t c = 0; c < y_channels_; ++c) lane.moment[r * y_channels_ + c] += from * row_[c];
        }
    }

    // After a path: the rotation of its moment. Returns whether the pair goes on, as it does unless the moment or the
    // rotation is the same as before. The last path is that of the last rotation.
    bool advance(Turning<T>& lane, double value) {
        static_cast<T*>(given_.values)[lane.pair] = T(value);
        if (!(value < kInfinity<double>)) return false;  // it overflowed: there is no path
        if (lane.iterations == given_.max_iter) return false;
        bool same = lane.iterations > 0;
        for (int64_t k = 0; k < numbers_; ++k) same &= lane.moment[k] == lane.before[k];
        given_.converged[lane.pair] = same;
        if (same) return false;
        polar_(lane.moment.get(), found_.get());
        same = true;  // unless the rotation changes
        T* rotation = static_cast<T*>(given_.rotations) + lane.pair * numbers_;
        T* offset = static_cast<T*>(given_.offsets) + lane.pair * x_channels_;
        for (int64_t k = 0; k < numbers_; ++k) {
            same &= rotation[k] == T(found_[k]);
            rotation[k] = T(found_[k]);
            lane.before[k] = lane.moment[k], lane.moment[k] = 0;
        }
        for (int64_t r = 0; r < x_channels_ && given_.bias; ++r) {
            double turned = 0;
            for (int64_t c = 0; c < y_channels_; ++c) turned += found_[r * y_channels_ + c] * lane.y_mean[c];
            same &= offset[r] == T(lane.x_mean[r] - turned);
            offset[r] = T(lane.x_mean[r] - turned);
        }
        given_.converged[lane.pair] = same;
        ++lane.iterations;
        return !same;
    }

    // Pairs in lanes.

    void run_lanes() {
        const Problem& problem = given_.problem;
        Buffer<T> x(problem.x_steps * x_channels_ * W<T>), y(problem.y_steps * y_channels_ * W<T>);
        Buffer<T> turned(problem.y_steps * x_channels_ * W<T>), rotation(numbers_ * W<T>), offset(x_channels_ * W<T>);
        Buffer<int8_t> moves(problem.x_steps * problem.y_steps * W<T>);
        LaneBlock<T, MovingStep<T>> block(problem);
        fill(x.get(), problem.x_steps * x_channels_ * W<T>, T(0));
        fill(y.get(), problem.y_steps * y_channels_ * W<T>, T(0));
        fill(rotation.get(), numbers_ * W<T>, T(0));
        fill(offset.get(), x_channels_ * W<T>, T(0));
        int64_t n[W<T>], m[W<T>], working = 0;
        const auto begin = [&](int l) {
            if (!take(lanes_[l])) return;
            ++working;
            scatter(lanes_[l].x, lanes_[l].n * x_channels_, problem.x_steps * x_channels_, x.get() + l);
            scatter(lanes_[l].y, lanes_[l].m * y_channels_, problem.y_steps * y_channels_, y.get() + l);
        };
        for (int l = 0; l < W<T>; ++l) begin(l);
        while (working > 0) {
            MovingStep<T> step;
            step.open_begin = problem.open_begin, step.moves = moves.get(), step.width = 0;
            int64_t any = 0;
            while (lanes_[any].pair < 0) ++any;
            for (int l = 0; l < W<T>; ++l) {
                const Turning<T>& lane = lanes_[l];
                const bool idle = lane.pair < 0;  // as long as another, and computed for nothing
                n[l] = lanes_[idle ? any : l].n, m[l] = lanes_[idle ? any : l].m;
                step.width = max(step.width, m[l]);
                if (idle) continue;
                for (int64_t k = 0; k < numbers_; ++k) rotation[k * W<T> + l] = lane.rotation[k];
                for (int64_t r = 0; r < x_channels_; ++r) offset[r * W<T> + l] = lane.offset[r];
            }
            turn(y.get(), rotation.get(), offset.get(), step.width, turned.get());
            int64_t ends[W<T>];
            T reached[W<T>];
            block.run(step, x.get(), false, n, turned.get(), m, [&](int l, const auto* row) {
                ends[l] = step.end(problem, n[l], m[l], l, row);
                reached[l] = row[ends[l]].value[l];
            });
            for (int l = 0; l < W<T>; ++l) {
                Turning<T>& lane = lanes_[l];
                if (lane.pair < 0) continue;
                if (reached[l] < kInfinity<T>)
                    walk_back<T>(step.moves + l, step.width, n[l] - 1, ends[l], [&](int64_t i, int64_t j) { match(lane, i, j); });
                if (advance(lane, reached[l])) continue;
                --working;
                begin(l);
            }
        }
    }

    // An item into its lane, followed by zeros.
    static void scatter(const T* from, int64_t count, int64_t room, T* to) {
        for (int64_t k = 0; k < count; ++k) to[k * W<T>] = from[k];
        for (int64_t k = count; k < room; ++k) to[k * W<T>] = 0;
    }

    // P y_j + b of every lane.
    void turn(const T* y, const T* rotation, const T* offset, int64_t steps, T* to) const {
        for (int64_t j = 0; j < steps; ++j, y += y_channels_ * W<T>)
            for (int64_t r = 0; r < x_channels_; ++r, to += W<T>) {
                V<T> total{};
                for (int64_t c = 0; c < y_channels_; ++c)
                    total += load(rotation + (r * y_channels_ + c) * W<T>) * load(y + c * W<T>);
                store(to, total + load(offset + r * W<T>));
            }
    }

    // Pairs one at a time.

    void run_alone() {
        Buffer<T> turned(given_.problem.y_steps * x_channels_);
        while (take(lanes_[0])) finish(lanes_[0], turned.get());
    }

    void finish(Turning<T>& lane, T* turned) {
        Problem one = given_.problem;
        one.rows = one.columns = 1, one.all_pairs = false;
        one.x = lane.x, one.y = turned;
        one.x_lengths = &lane.n, one.y_lengths = &lane.m;
        double value;
        do {
            for (int64_t j = 0; j < lane.m; ++j)
                for (int64_t r = 0; r < x_channels_; ++r) {
                    T total = 0;
                    for (int64_t c = 0; c < y_channels_; ++c)
                        total += lane.rotation[r * y_channels_ + c] * lane.y[j * y_channels_ + c];
                    turned[j * x_channels_ + r] = total + lane.offset[r];
                }
            Aligner<T> aligner(one);
            const int64_t steps = aligner.path(0);
            value = steps ? 0 : kInfinity<double>;
            for (int64_t k = 0; k < steps; ++k) {
                const int64_t i = aligner.cells()[2 * k], j = aligner.cells()[2 * k + 1];
                match(lane, i, j);
                for (int64_t r = 0; r < x_channels_; ++r) {
                    const double apart = double(lane.x[i * x_channels_ + r]) - turned[j * x_channels_ + r];
                    value += apart * apart;
                }
            }
        } while (advance(lane, value));
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
