// The best warp on a grid: Bellman's recursion over the knots, then again on a narrower grid around the solution.
//
//   V_i+1(k) = w L(k) + min_j V_i(j) + (lambda / Delta) (p_k - p_j - stretch Delta)^2,  slope limits on p_k - p_j.
//
// The minimum is the lower envelope of parabolas of one width, so a row costs O(nodes), not O(nodes^2).
#pragma once
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The lower envelope of curvature (y - c_j)^2 + v_j: inserted with increasing c, read at increasing y. Two parabolas
// cross once, and beyond that the later one is lower, so that a queue of those that still matter is enough.
class Envelope {
public:
    void reserve(int64_t nodes) {
        center_.resize(nodes);
        height_.resize(nodes);
        start_.resize(nodes);
        index_.resize(nodes);
    }
    // spacing: between the centres of neighbouring indices; inverse[d] = 1 / d.
    void reset(double curvature, double spacing, const double* inverse) {
        curvature_ = curvature;
        factor_ = 1 / (2 * curvature * spacing);
        inverse_ = inverse;
        front_ = size_ = 0;
    }
    void insert(int32_t index, double center, double height) {
        double start = -kInfinite;
        while (size_ > front_) {
            const int64_t back = size_ - 1;
            const int32_t apart = std::abs(index - index_[back]);
            start = 0.5 * (center + center_[back]) + (height - height_[back]) * factor_ * inverse_[apart];
            if (back == front_ || start > start_[back]) break;
            --size_;
        }
        center_[size_] = center;
        height_[size_] = height;
        start_[size_] = start;
        index_[size_] = index;
        ++size_;
    }
    bool empty() const { return size_ == front_; }
    // The least at y, and whose it is.
    double read(double y, int32_t& index) {
        while (front_ + 1 < size_ && start_[front_ + 1] <= y) ++front_;
        const double distance = y - center_[front_];
        index = index_[front_];
        return curvature_ * distance * distance + height_[front_];
    }

private:
    std::vector<double> center_, height_, start_;
    std::vector<int32_t> index_;
    const double* inverse_ = nullptr;
    double curvature_ = 0, factor_ = 0;
    int64_t front_ = 0, size_ = 0;
};

class Grid {
public:
    // Writes the best warp of all passes and returns its objective, which is not finite if the losses overflow.
    double search(const Pair& pair, int64_t nodes, int64_t refinements, double* warp) {
        constexpr double kShrink = 0.125;
        prepare(pair, nodes);
        low_ = pair.lower;
        high_ = pair.upper;
        double best = kInfinite;
        for (int64_t pass = 0; pass <= refinements; ++pass) {
            pair.envelope(low_, high_);
            run(pair);
            const double value = pair.objective(found_.data());
            if (value < best) {
                best = value;
                std::copy(found_.begin(), found_.end(), warp);
            }
            if (!std::isfinite(best)) return best;
            for (int64_t i = 0; i < pair.m; ++i) {
                const double half = kShrink / 2 * (high_[i] - low_[i]);
                low_[i] = std::max(warp[i] - half, pair.lower[i]);
                high_[i] = std::min(warp[i] + half, pair.upper[i]);
            }
        }
        return best;
    }

private:
    struct Row {  // the values of one knot: low + j spacing
        double low = 0, spacing = 0;
        int64_t count = 0;
        double at(int64_t j) const { return low + j * spacing; }
    };

    Row row(const Pair& pair, int64_t i) const {
        const double room = high_[i] - low_[i];
        if (room <= 1e-13 * pair.span) return {low_[i], 0, 1};
        return {low_[i], room / (nodes_ - 1), nodes_};
    }

    void prepare(const Pair& pair, int64_t nodes) {
        nodes_ = nodes;
        frames_.resize(pair.channels * pair.n);
        for (int64_t k = 0; k < pair.n; ++k)
            for (int64_t c = 0; c < pair.channels; ++c) frames_[c * pair.n + k] = pair.x[k * pair.channels + c];
        squares_.resize(pair.n);
        found_.resize(pair.m);
        value_.resize(nodes);
        next_.resize(nodes);
        first_.resize(nodes);
        last_.resize(nodes);
        from_.resize(pair.m * nodes);
        left_.reserve(nodes);
        right_.reserve(nodes);
        if (int64_t(inverse_.size()) < nodes + 1) {
            inverse_.resize(nodes + 1);
            for (int64_t d = 1; d <= nodes; ++d) inverse_[d] = 1.0 / d;
        }
    }

    void run(const Pair& pair) {
        Row here = row(pair, 0);
        add_losses(pair, 0, here, value_, false);
        for (int64_t i = 0; i + 1 < pair.m; ++i) {
            const Row there = row(pair, i + 1);
            advance(pair, i, here, there);
            add_losses(pair, i + 1, there, next_, true);
            value_.swap(next_);
            here = there;
        }
        int64_t j = std::min_element(value_.begin(), value_.begin() + here.count) - value_.begin();
        for (int64_t i = pair.m - 1;; --i) {
            found_[i] = std::min(row(pair, i).at(j), high_[i]);
            if (i == 0) break;
            j = from_[i * nodes_ + j];
        }
    }

    // Weighted losses of a row, written or added.
    void add_losses(const Pair& pair, int64_t i, const Row& row, std::vector<double>& values, bool add) {
        const int64_t first = pair.segment_of(row.at(0)), last = pair.segment_of(row.at(row.count - 1));
        if (pair.squared()) measure_row(pair, i, first, last + 1);
        const double weight = pair.weight[i];
        if (!add) std::fill(values.begin(), values.begin() + row.count, 0.0);
        double* out = values.data();
        int64_t j = 0;
        for (int64_t k = first; k <= last; ++k) {
            int64_t end = row.count;
            if (k < last) end = std::clamp<int64_t>(int64_t((pair.s[k + 1] - row.low) / row.spacing) + 1, j, row.count);
            if (!pair.squared()) {
                for (; j < end; ++j) out[j] += weight * pair.loss(i, k, row.at(j)).value;
                continue;
            }
            // |x(p) - y|^2 between two frames, from its values there and the square of the way between them.
            const double begin = (row.low - pair.s[k]) * pair.inverse_width[k], pace = row.spacing * pair.inverse_width[k];
            const double here = squares_[k], rise = squares_[k + 1] - here, climb = pair.climb[k];
            for (; j < end; ++j) {
                const double share = begin + j * pace;
                out[j] += weight * (here + share * (rise - (1 - share) * climb));
            }
        }
    }

    void measure_row(const Pair& pair, int64_t i, int64_t first, int64_t last) {
        std::fill(squares_.begin() + first, squares_.begin() + last + 1, 0.0);
        double* out = squares_.data();
        for (int64_t c = 0; c < pair.channels; ++c) {
            const double q = pair.y[i * pair.channels + c];
            const double* frame = &frames_[c * pair.n];
            for (int64_t k = first; k <= last; ++k) out[k] += (frame[k] - q) * (frame[k] - q);
        }
    }

    // next_[k] = min_j value_[j] + edge. The columns that row k may come from form a window that slides to the right.
    // Rows are taken in blocks whose windows share a column: to its left columns only leave as k grows, to its right
    // they only join. Each half is an envelope, the left one read backwards.
    void advance(const Pair& pair, int64_t i, const Row& here, const Row& there) {
        const double curvature = pair.reg / pair.step[i], shift = pair.stretch * pair.step[i];
        int32_t* from = &from_[(i + 1) * nodes_];
        set_windows(pair, i, here, there);
        for (int64_t k = 0; k < there.count;) {
            if (first_[k] > last_[k]) {
                next_[k] = kInfinite;
                from[k++] = 0;
                continue;
            }
            const int64_t pivot = last_[k];
            int64_t end = k + 1;
            while (end < there.count && first_[end] <= pivot && first_[end] <= last_[end]) ++end;
            left_.reset(curvature, here.spacing, inverse_.data());
            for (int64_t r = end - 1, j = pivot; r >= k; --r) {
                for (; j >= first_[r]; --j)
                    if (value_[j] < kInfinite) left_.insert(j, -(here.at(j) + shift), value_[j]);
                from[r] = 0;
                next_[r] = left_.empty() ? kInfinite : left_.read(-there.at(r), from[r]);
            }
            right_.reset(curvature, here.spacing, inverse_.data());
            for (int64_t r = k, j = pivot + 1; r < end; ++r) {
                for (; j <= last_[r]; ++j)
                    if (value_[j] < kInfinite) right_.insert(j, here.at(j) + shift, value_[j]);
                if (right_.empty()) continue;
                int32_t index;
                const double value = right_.read(there.at(r), index);
                if (value < next_[r]) {
                    next_[r] = value;
                    from[r] = index;
                }
            }
            k = end;
        }
    }

    void set_windows(const Pair& pair, int64_t i, const Row& here, const Row& there) {
        if (here.count == 1) {  // every value of the next envelope can be reached from it
            std::fill(first_.begin(), first_.begin() + there.count, 0);
            std::fill(last_.begin(), last_.begin() + there.count, 0);
            return;
        }
        // Mixtures of the envelope's ends run from node j to node j: rounding must not cut them off.
        constexpr double kSlack = 1e-7;
        const double inverse = 1 / here.spacing, pace = there.spacing * inverse, most = double(here.count - 1);
        const double low = (there.low - pair.most[i] - here.low) * inverse - kSlack;
        const double high = (there.low - pair.least[i] - here.low) * inverse + kSlack;
        for (int64_t k = 0; k < there.count; ++k) {
            const double begin = low + k * pace, end = high + k * pace;
            first_[k] = begin <= 0 ? 0 : begin > most ? int32_t(here.count) : int32_t(std::ceil(begin));
            last_[k] = end < 0 ? -1 : end >= most ? int32_t(here.count - 1) : int32_t(end);
        }
    }

    int64_t nodes_ = 0;
    std::vector<double> low_, high_, found_, frames_, squares_, value_, next_, inverse_;
    std::vector<int32_t> first_, last_, from_;
    Envelope left_, right_;
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
