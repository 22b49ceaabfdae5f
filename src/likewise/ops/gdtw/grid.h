// The best warp on a grid: Bellman's recursion over the knots, then again on a narrower grid around the solution.
//
//   V_i+1(k) = w L(k) + min_j V_i(j) + (lambda / Delta) (p_k - p_j - stretch Delta)^2,  slope limits on p_k - p_j.
//
// The minimum is the lower envelope of parabolas of one width, so a row costs O(nodes), not O(nodes^2).
#pragma once
#include <memory>

#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The lower envelope of curvature (p - c_j)^2 + v_j: inserted with increasing c, read at increasing p. Two parabolas
// cross once, and beyond that the later one is lower, so that a queue of those that still matter is enough.
class Envelope {
public:
    struct Parabola {
        double center, height, start;  // start: the point from which it is the lowest
        int64_t index;
    };
    // room: for all that are inserted; spacing: between the centres of neighbouring indices; inverse[d] = 1 / d.
    Envelope(Parabola* room, double curvature, double spacing, const double* inverse)
        : front_(room), end_(room), inverse_(inverse), curvature_(curvature), factor_(1 / (2 * curvature * spacing)) {}

    void insert(int64_t index, double center, double height) {
        double start = -kInfinite;
        while (end_ > front_) {
            const Parabola& back = end_[-1];
            start = 0.5 * (center + back.center) + (height - back.height) * factor_ * inverse_[std::abs(index - back.index)];
            if (end_ - 1 == front_ || start > back.start) break;
            --end_;
        }
        *end_++ = {center, height, start, index};
    }
    bool empty() const { return end_ == front_; }
    // The minimum at p, and its index.
    double read(double p, int32_t& index) {
        while (front_ + 1 < end_ && front_[1].start <= p) ++front_;
        const double distance = p - front_->center;
        index = int32_t(front_->index);
        return curvature_ * distance * distance + front_->height;
    }

private:
    Parabola *front_, *end_;
    const double* inverse_;
    double curvature_, factor_;
};

// As many as y has steps; three times as many where that is cheap.
inline int64_t default_nodes(int64_t steps) {
    return steps >= 64 ? steps : std::max<int64_t>(50, std::min<int64_t>(3 * steps, 128));
}

class Grid {
public:
    // Writes the best warp of all passes and returns its objective, which is not finite if the losses overflow.
    double search(const Pair& pair, int64_t nodes, int64_t refinements, double* warp) {
        // The second grid is an eighth as wide as the first, but at least 10 steps of y: a narrower one holds too few of
        // the basins that the first could not tell apart. Each grid after it is a quarter as wide as the one before.
        const double narrow = std::min(std::max(10.0 / (pair.n - 1), 1.0 / 8), 1.0 / 2);
        constexpr int64_t kMostPasses = 40;
        prepare(pair, nodes);
        low_ = pair.lower;
        high_ = pair.upper;
        double best = kInfinite;
        // A grid that is coarser than y must always be refined: the polish would take long to cross its segments.
        const double coarse = 2 * (nodes - 1) * pair.span / (pair.n - 1);
        double share = 1;  // of the first grid's width
        wide_ = low_;
        for (int64_t pass = 0, level = 0; pass < kMostPasses; ++pass) {
            pair.envelope(low_, high_);
            if (pass == 0)
                for (int64_t i = 0; i < pair.m; ++i) wide_[i] = high_[i] - low_[i];
            run(pair);
            const double value = pair.objective(found_.data());
            const bool better = value < best;
            if (better) {
                best = value;
                std::copy(found_.begin(), found_.end(), warp);
            }
            if (!std::isfinite(best)) return best;
            // If the solution is at the edge of its grid, it may lie beyond: the next grid is centred there, and as
            // wide.
            if (!(better && level > 0 && touches_rim(pair))) {
                const double widest = share * *std::max_element(wide_.begin(), wide_.end());
                if (level >= refinements && widest <= coarse) break;
                share = level++ == 0 ? narrow : share / 4;
                nodes_ = std::min(nodes, std::max<int64_t>(nodes / 2, 50) | 1);  // half is as good, with the polish
            }
            for (int64_t i = 0; i < pair.m; ++i) {
                const double half = share * wide_[i] / 2;
                low_[i] = std::max(warp[i] - half, pair.lower[i]);
                high_[i] = std::min(warp[i] + half, pair.upper[i]);
            }
        }
        return best;
    }

private:
    bool touches_rim(const Pair& pair) const {
        for (int64_t i = 0; i < pair.m; ++i) {
            const double near = 1.5 * (high_[i] - low_[i]) / (nodes_ - 1);
            if (found_[i] < low_[i] + near && low_[i] > pair.lower[i]) return true;
            if (found_[i] > high_[i] - near && high_[i] < pair.upper[i]) return true;
        }
        return false;
    }

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
            for (int64_t c = 0; c < pair.channels; ++c) frames_[c * pair.n + k] = pair.y[k * pair.channels + c];
        squares_.resize(pair.n);
        found_.resize(pair.m);
        value_.resize(nodes);
        next_.resize(nodes);
        first_.resize(nodes);
        last_.resize(nodes);
        segment_.resize(nodes);
        share_.resize(nodes);
        sag_.resize(nodes);
        located_ = {};
        windows_count_ = 0;
        if (from_room_ < pair.m * nodes) {
            from_room_ = pair.m * nodes;
            from_.reset(new int32_t[from_room_]);
        }
        parabolas_.resize(nodes);
        if (int64_t(inverse_.size()) < nodes + 1) {
            inverse_.resize(nodes + 1);
            for (int64_t d = 1; d <= nodes; ++d) inverse_[d] = 1.0 / d;
        }
    }

    void run(const Pair& pair) {
        Row here = row(pair, 0);
        add_losses(pair, 0, here, value_, false);
        for (int64_t i = 0; i + 1 < pair.m; ++i) {
            if (i % 64 == 0) stop_if_asked();
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
        const double weight = pair.weight[i];
        double* out = values.data();
        if (!add) std::fill(out, out + row.count, 0.0);
        locate(pair, row);
        if (!pair.squared()) {
            for (int64_t j = 0; j < row.count; ++j) out[j] += weight * pair.loss(i, segment_[j], row.at(j)).value;
            return;
        }
        // |y(p) - x|^2 between two frames, from its values there and the square of the way between them.
        measure_row(pair, i, segment_[0], segment_[row.count - 1] + 1);
        const double *squares = squares_.data(), *share = share_.data(), *sag = sag_.data();
        const int32_t* segment = segment_.data();
        for (int64_t j = 0; j < row.count; ++j) {
            const double here = squares[segment[j]], there = squares[segment[j] + 1];
            out[j] += weight * (here + share[j] * (there - here) - sag[j]);
        }
    }

    // The positions in y of the nodes of a row. Without slope limits and bands all rows of the first pass are the same.
    void locate(const Pair& pair, const Row& row) {
        if (row.low == located_.low && row.spacing == located_.spacing && row.count == located_.count) return;
        located_ = row;
        const int64_t first = pair.segment_of(row.at(0)), last = pair.segment_of(row.at(row.count - 1));
        const double inverse = 1 / row.spacing;
        for (int64_t j = 0, k = first; k <= last; ++k) {
            int64_t end = row.count;
            if (k < last) end = std::clamp<int64_t>(int64_t((pair.s[k + 1] - row.low) * inverse) + 1, j, row.count);
            const double begin = (row.low - pair.s[k]) * pair.inverse_width[k], pace = row.spacing * pair.inverse_width[k];
            const double climb = pair.climb[k];
            for (; j < end; ++j) {
                const double share = begin + j * pace;
                segment_[j] = int32_t(k);
                share_[j] = share;
                sag_[j] = share * (1 - share) * climb;
            }
        }
    }

    void measure_row(const Pair& pair, int64_t i, int64_t first, int64_t last) {
        std::fill(squares_.begin() + first, squares_.begin() + last + 1, 0.0);
        double* out = squares_.data();
        for (int64_t c = 0; c < pair.channels; ++c) {
            const double q = pair.x[i * pair.channels + c];
            const double* frame = &frames_[c * pair.n];
            for (int64_t k = first; k <= last; ++k) out[k] += (frame[k] - q) * (frame[k] - q);
        }
    }

    // next_[k] = min_j value_[j] + edge. The columns from which row k may be reached form a window that moves to the right.
    // Rows are taken in blocks whose windows share a column: to its left columns only leave as k grows, to its right
    // they only join. Each half is an envelope, the left one read backwards.
    void advance(const Pair& pair, int64_t i, const Row& here, const Row& there) {
        const double curvature = pair.reg / pair.step[i], shift = pair.stretch * pair.step[i];
        const double* value = value_.data();
        double* next = next_.data();
        int32_t* from = &from_[(i + 1) * nodes_];
        set_windows(pair, i, here, there);
        for (int64_t k = 0; k < there.count;) {
            if (first_[k] > last_[k]) {
                next[k] = kInfinite;
                from[k++] = 0;
                continue;
            }
            const bool leave = first_[there.count - 1] > first_[k];  // otherwise one envelope is enough
            const int64_t pivot = leave ? last_[k] : first_[k] - 1;
            int64_t end = leave ? k + 1 : there.count;
            while (end < there.count && first_[end] <= pivot && first_[end] <= last_[end]) ++end;
            if (leave) {
                Envelope left(parabolas_.data(), curvature, here.spacing, inverse_.data());
                for (int64_t r = end - 1, j = pivot; r >= k; --r) {
                    for (; j >= first_[r]; --j)
                        if (value[j] < kInfinite) left.insert(j, -(here.at(j) + shift), value[j]);
                    from[r] = 0;
                    next[r] = left.empty() ? kInfinite : left.read(-there.at(r), from[r]);
                }
            }
            Envelope right(parabolas_.data(), curvature, here.spacing, inverse_.data());
            for (int64_t r = k, j = pivot + 1; r < end; ++r) {
                for (; j <= last_[r]; ++j)
                    if (value[j] < kInfinite) right.insert(j, here.at(j) + shift, value[j]);
                int32_t index = 0;
                const double least = right.empty() ? kInfinite : right.read(there.at(r), index);
                if (leave && next[r] <= least) continue;
                next[r] = least;
                from[r] = index;
            }
            k = end;
        }
    }

    void set_windows(const Pair& pair, int64_t i, const Row& here, const Row& there) {
        // Often the same as before: it depends on the grids and the limits only.
        const double key[] = {here.low, here.spacing, there.low, there.spacing, pair.least[i], pair.most[i]};
        if (windows_count_ == there.count && std::equal(key, key + 6, windows_key_)) return;
        std::copy(key, key + 6, windows_key_);
        windows_count_ = there.count;
        if (here.count == 1) {  // every value of the next envelope can be reached from it
            std::fill(first_.begin(), first_.begin() + there.count, 0);
            std::fill(last_.begin(), last_.begin() + there.count, 0);
            return;
        }
        // Mixtures of the envelope's ends run from node j to node j: rounding must not exclude them.
        constexpr double kSlack = 1e-7;
        const double inverse = 1 / here.spacing, pace = there.spacing * inverse, most = double(here.count - 1);
        const double low = (there.low - pair.most[i] - here.low) * inverse - kSlack;
        const double high = (there.low - pair.least[i] - here.low) * inverse + kSlack;
        int32_t *first = first_.data(), *last = last_.data();
        for (int64_t k = 0; k < there.count; ++k)
            last[k] = int32_t(std::floor(std::min(std::max(high + k * pace, -1.0), most)));
        if (pair.most[i] == kInfinite) {
            std::fill(first, first + there.count, 0);
            return;
        }
        for (int64_t k = 0; k < there.count; ++k)
            first[k] = int32_t(std::ceil(std::min(std::max(low + k * pace, 0.0), most + 1)));
    }

    int64_t nodes_ = 0;
    Row located_;
    double windows_key_[6] = {};
    int64_t windows_count_ = 0, from_room_ = 0;
    std::vector<double> low_, high_, wide_, found_, frames_, squares_, share_, sag_, value_, next_, inverse_;
    std::vector<int32_t> segment_, first_, last_;
    std::unique_ptr<int32_t[]> from_;  // (m, nodes), where each node was best reached from
    std::vector<Envelope::Parabola> parabolas_;
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
