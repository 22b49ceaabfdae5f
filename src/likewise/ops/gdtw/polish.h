// From a warp on a grid to a point of first-order optimality, with its active constraints.
//
// Between two times of y the objective is a convex quadratic. Each knot is confined to a stretch of y over which its
// loss is convex (a segment, and its neighbours where the kink between them points down), and the quadratic program is
// solved exactly, by dynamic programming once more: V_i(phi), the least cost of the knots up to i, is convex, so its
// derivative is a rising polyline. The edge to the next knot shifts each of its points by the move that the
// derivative there pays for, clipped to the slope limits; the next loss adds its own derivative. Knots that
// end where their stretch was cut, and are pulled further, are given the stretch beyond, until none is.
#pragma once
#include "reduced.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

class Polish {
public:
    // Improves a warp in place and writes its holds (m, 2). False if it did not settle.
    bool run(const Pair& pair, double* warp, int32_t* holds) {
        const int64_t m = pair.m;
        project(pair, warp);
        anchor_.resize(m);
        stretch_.resize(m);
        fresh_.resize(m);
        hold_.resize(m);
        excess_.resize(m);
        cut_.resize(m);
        begin_.resize(m + 1);
        for (int64_t i = 0; i < m; ++i) {
            anchor_[i] = pair.segment_of(warp[i]);
            stretch_[i].anchor = -1;
        }
        bool settled = false;
        double best = kInfinite;
        int idle = 0;
        const int64_t rounds = 200 + 2 * pair.n;  // each moves a knot by at most two segments, usually
        for (int64_t round = 0; round < rounds && !settled; ++round) {
            stop_if_asked();
            for (int64_t i = 0; i < m; ++i) confine(pair, i, warp[i]);
            pass_forward(pair);
            pass_backward(pair, warp);
            double moved = 0;
            if (!pair.squared()) moved = search_line(pair, warp);
            std::copy(fresh_.begin(), fresh_.end(), warp);
            const bool crossed = moved <= 1e-10 * pair.span && cross(pair);  // a model is only valid locally
            settled = !crossed && moved <= 1e-13 * pair.span;
            // No round raises the objective. If multipliers are not unique, or steps are below rounding, it stays.
            const double value = settled ? 0 : pair.objective(warp);
            idle = value < best * (1 - 1e-15) ? 0 : idle + 1;
            best = std::min(best, value);
            if (idle > 5) settled = true;
        }
        for (int64_t i = 0; i < m; ++i) {
            holds[2 * i] = int32_t(pair.segment_of(warp[i]));
            holds[2 * i + 1] = hold_[i];
        }
        for (int k = 0; k < 2; ++k) refine(pair, warp, holds);
        return settled;
    }

private:
    struct Piece {  // of a knot's loss: its weighted derivative rises from left at begin to right at end
        double begin, end, left, right;
    };
    struct Stretch {  // what a knot is confined to
        int64_t anchor = -1, first = 0, count = 0;  // first: segment of the first piece
        Piece pieces[3];
        double low() const { return pieces[0].begin; }
        double high() const { return pieces[count - 1].end; }
    };
    struct Point {  // of V' after a knot's loss (total) and before (edge)
        double at, total, edge;
    };
    struct Cut {  // whether V' was cut off where the stretch ends, rather than ended where no warp leads
        bool left, right;
    };

    std::vector<int64_t> anchor_, begin_;
    std::vector<Stretch> stretch_;
    std::vector<Point> points_, moved_, kept_;
    std::vector<Cut> cut_;
    std::vector<double> fresh_, excess_, response_, trial_;
    std::vector<int32_t> hold_;
    Reduced reduced_;

    // The nearest warp within the bounds, up to rounding: the grid's windows have some slack.
    void project(const Pair& pair, double* warp) {
        std::vector<double>&low = fresh_, &high = excess_;
        low = pair.lower;
        high = pair.upper;
        pair.envelope(low, high);
        for (int64_t i = 0; i < pair.m; ++i) {
            double from = low[i], to = high[i];
            if (i > 0) {
                from = std::max(from, warp[i - 1] + pair.least[i - 1]);
                to = std::min(to, warp[i - 1] + pair.most[i - 1]);
            }
            warp[i] = std::max(std::min(warp[i], to), from);
        }
    }

    Piece piece(const Pair& pair, int64_t i, int64_t k, double time) const {
        Piece piece{std::max(pair.s[k], pair.lower[i]), std::min(pair.s[k + 1], pair.upper[i]), 0, 0};
        piece.end = std::max(piece.begin, piece.end);
        if (pair.squared()) time = piece.begin;
        const auto loss = pair.loss(i, k, time);  // beyond Huber's limit this is a model, good near time
        piece.left = pair.weight[i] * (loss.slope + loss.curvature * (piece.begin - time));
        piece.right = pair.weight[i] * (loss.slope + loss.curvature * (piece.end - time));
        return piece;
    }

    void confine(const Pair& pair, int64_t i, double time) {
        Stretch& stretch = stretch_[i];
        const int64_t k = anchor_[i];
        if (pair.squared() && stretch.anchor == k) return;
        stretch.anchor = stretch.first = k;
        stretch.count = 1;
        stretch.pieces[0] = piece(pair, i, k, time);
        if (!pair.squared()) return;
        if (k < pair.last_segment() && pair.s[k + 1] < pair.upper[i]) {
            const Piece beyond = piece(pair, i, k + 1, time);
            if (beyond.left >= stretch.pieces[0].right) stretch.pieces[stretch.count++] = beyond;
        }
        if (k > 0 && pair.s[k] > pair.lower[i]) {
            const Piece before = piece(pair, i, k - 1, time);
            if (before.right <= stretch.pieces[0].left) {
                for (int64_t c = stretch.count; c > 0; --c) stretch.pieces[c] = stretch.pieces[c - 1];
                stretch.pieces[0] = before;
                stretch.first = k - 1;
                ++stretch.count;
            }
        }
    }

    void pass_forward(const Pair& pair) {
        points_.clear();
        begin_[0] = 0;
        kept_.clear();
        kept_.push_back({stretch_[0].low(), 0, 0});
        if (stretch_[0].high() > stretch_[0].low()) kept_.push_back({stretch_[0].high(), 0, 0});
        cut_[0] = {true, true};
        add_loss(0);
        for (int64_t i = 1; i < pair.m; ++i) {
            shift(pair, i - 1);
            keep(i);
            add_loss(i);
        }
    }

    // V' beyond the edge from knot i: each point moves by what its derivative pays for.
    void shift(const Pair& pair, int64_t i) {
        const Point* points = &points_[begin_[i]];
        const int64_t count = begin_[i + 1] - begin_[i];
        const double least = pair.least[i], rate = pair.step[i] / (2 * pair.reg), rest = pair.stretch * pair.step[i];
        // Moves beyond the next stretch are ignored.
        const double far = stretch_[i + 1].high() - points[0].at + pair.span;
        const double most = std::max(least, std::min(pair.most[i], far));
        const double low = pair.pull(i, least), high = pair.pull(i, most);
        moved_.clear();
        double before_at = points[0].at, before = -kInfinite;
        for (int64_t k = 0; k <= count; ++k) {
            const double at = points[std::min(k, count - 1)].at, p = k < count ? points[k].total : kInfinite;
            for (const double bend : {low, high}) {
                if (!(before < bend && bend < p)) continue;
                const bool inside = before > -kInfinite && p < kInfinite;
                const double where = inside ? before_at + (bend - before) / (p - before) * (at - before_at) : at;
                moved_.push_back({where + (bend == low ? least : most), 0, bend});
            }
            if (k < count) moved_.push_back({at + (p <= low ? least : p >= high ? most : rest + p * rate), 0, p});
            before_at = at;
            before = p;
        }
    }

    // The part of it over the stretch of knot i.
    void keep(int64_t i) {
        const double low = stretch_[i].low(), high = stretch_[i].high();
        const int64_t count = int64_t(moved_.size());
        kept_.clear();
        if (moved_[count - 1].at <= low) {
            kept_.push_back({low, 0, moved_[count - 1].edge});
            cut_[i] = {true, false};
            return;
        }
        if (moved_[0].at >= high) {
            kept_.push_back({high, 0, moved_[0].edge});
            cut_[i] = {false, true};
            return;
        }
        cut_[i] = {moved_[0].at < low, moved_[count - 1].at > high};
        int64_t k = 0;
        if (cut_[i].left) {
            while (moved_[k].at < low) ++k;
            kept_.push_back(between(moved_[k - 1], moved_[k], low));
        }
        for (; k < count && moved_[k].at <= high; ++k) kept_.push_back(moved_[k]);
        if (k < count) kept_.push_back(between(moved_[k - 1], moved_[k], high));
    }

    static Point between(const Point& a, const Point& b, double at) {
        return {at, 0, a.edge + (at - a.at) / (b.at - a.at) * (b.edge - a.edge)};
    }

    void add_loss(int64_t i) {
        const Stretch& stretch = stretch_[i];
        int64_t c = 0;
        const auto emit = [&](double at, double edge, double slope) {
            if (int64_t(points_.size()) > begin_[i] && points_.back().at == at && points_.back().edge == edge &&
                points_.back().total >= edge + slope)
                return;
            points_.push_back({at, edge + slope, edge});
        };
        for (int64_t k = 0; k < int64_t(kept_.size()); ++k) {
            const Point point = kept_[k];
            for (; c + 1 < stretch.count && point.at >= stretch.pieces[c].end; ++c) {
                const double kink = stretch.pieces[c].end;
                const double edge = k > 0 && point.at > kink ? between(kept_[k - 1], point, kink).edge : point.edge;
                if (k == 0 && point.at > kink) continue;  // V' begins beyond this piece
                emit(kink, edge, stretch.pieces[c].right);
                emit(kink, edge, stretch.pieces[c + 1].left);
            }
            const Piece& piece = stretch.pieces[c];
            const double room = piece.end - piece.begin;
            const double share = room > 0 ? (point.at - piece.begin) / room : 0;
            emit(point.at, point.edge, piece.left + share * (piece.right - piece.left));
        }
        begin_[i + 1] = int64_t(points_.size());
    }

    // From the last knot, where the derivative is zero, to the first.
    void pass_backward(const Pair& pair, const double* warp) {
        double wanted = 0, expected = warp[pair.m - 1], rate = kInfinite;
        for (int64_t i = pair.m - 1; i >= 0; --i) {
            if (i == pair.m - 1) hold_[i] = kUntied;
            wanted = place(pair, i, wanted, expected, rate);
            if (i == 0) break;
            const double low = pair.pull(i - 1, pair.least[i - 1]), high = pair.pull(i - 1, pair.most[i - 1]);
            hold_[i - 1] = wanted < low ? kTiedMin : wanted > high ? kTiedMax : kUntied;
            rate = hold_[i - 1] == kUntied ? pair.step[i - 1] / (2 * pair.reg) : 0;
            expected = fresh_[i];
            if (hold_[i - 1] == kTiedMin) expected -= pair.least[i - 1];
            else if (hold_[i - 1] == kTiedMax) expected -= pair.most[i - 1];
            else expected -= pair.stretch * pair.step[i - 1] + wanted * rate;
        }
    }

    // Puts knot i where V' is as wanted, notes what holds it, and returns the derivative before its loss. The next knot
    // says as well where it is expected, which is off by at most rate times an error of wanted. Where V' is
    // flat this is the better guide, and the only one where it is level.
    double place(const Pair& pair, int64_t i, double wanted, double expected, double rate) {
        const Point* points = &points_[begin_[i]];
        const int64_t count = begin_[i + 1] - begin_[i];
        excess_[i] = 0;
        const Point &first = points[0], &last = points[count - 1];
        if (count == 1 || !(wanted >= first.total && wanted <= last.total)) {
            const bool left = wanted <= first.total;
            const Point& end = left ? first : last;
            fresh_[i] = end.at;
            if (!(left ? cut_[i].left : cut_[i].right)) return end.edge + (wanted - end.total);
            const bool bound = end.at == (left ? pair.lower[i] : pair.upper[i]);
            hold_[i] |= bound ? (left ? pair.lower_hold[i] : pair.upper_hold[i]) : kConstant;
            if (!bound) excess_[i] = wanted - end.total;
            return end.edge;
        }
        const auto below = [](double p, const Point& point) { return p < point.total; };
        int64_t k = std::clamp<int64_t>(std::upper_bound(points, points + count, wanted, below) - points, 1, count - 1);
        while (k > 1 && points[k - 1].total == wanted && points[k - 1].at > expected) --k;
        const Point &a = points[k - 1], &b = points[k];
        const double room = b.at - a.at, rise = b.total - a.total;
        double share = rise > 0 ? (wanted - a.total) / rise : 0;
        fresh_[i] = a.at + share * room;
        if (room == 0) {
            fresh_[i] = a.at;
            if (rise > 0 && a.edge == b.edge) hold_[i] |= kConstant;  // on a kink
        } else if (rise <= 0 || rise * rate < room) {
            fresh_[i] = std::clamp(expected, a.at, b.at);
            share = (fresh_[i] - a.at) / room;
        }
        return a.edge + share * (b.edge - a.edge);
    }

    // Moves knots on that are held where their stretch was cut, if the segment beyond does not hold them.
    bool cross(const Pair& pair) {
        bool crossed = false;
        for (int64_t i = 0; i < pair.m; ++i) {
            if (excess_[i] == 0) continue;
            const Stretch& stretch = stretch_[i];
            const bool right = excess_[i] > 0;
            const int64_t k = right ? stretch.first + stretch.count : stretch.first - 1;
            const double here = right ? stretch.pieces[stretch.count - 1].right : stretch.pieces[0].left;
            const double there = pair.weight[i] * pair.loss(i, k, fresh_[i]).slope;
            const double jump = right ? there - here : here - there;
            if (std::fabs(excess_[i]) <= jump + 1e-13 * (std::fabs(here) + std::fabs(there))) continue;
            anchor_[i] = k;
            crossed = true;
        }
        return crossed;
    }

    // Huber's curvature changes along the way: goes as far as the objective, which is convex there, falls.
    double search_line(const Pair& pair, const double* warp) {
        const int64_t m = pair.m;
        double farthest = 0;
        for (int64_t i = 0; i < m; ++i) farthest = std::max(farthest, std::fabs(fresh_[i] - warp[i]));
        const auto rises = [&](double share) {
            double slope = 0;
            for (int64_t i = 0; i < m; ++i) {
                const double way = fresh_[i] - warp[i], at = warp[i] + share * way;
                slope += pair.weight[i] * pair.loss(i, anchor_[i], at).slope * way;
                if (i + 1 == m) break;
                const double further = fresh_[i + 1] - warp[i + 1];
                slope += pair.pull(i, warp[i + 1] + share * further - at) * (further - way);
            }
            return slope > 0;
        };
        if (farthest <= 1e-13 * pair.span || !rises(1)) return farthest;
        double from = 0, to = 1;
        for (int k = 0; k < 40; ++k) (rises((from + to) / 2) ? to : from) = (from + to) / 2;
        for (int64_t i = 0; i < m; ++i) {
            if (fresh_[i] == warp[i]) continue;
            fresh_[i] = warp[i] + from * (fresh_[i] - warp[i]);
            excess_[i] = 0;
        }
        return farthest;
    }

    // A Newton step on the active set, which removes rounding errors.
    void refine(const Pair& pair, double* warp, const int32_t* holds) {
        const int64_t m = pair.m;
        reduced_.build(pair, warp, holds);
        response_.resize(m);
        reduced_.solve(pair, reduced_.slope.data(), response_.data());
        trial_.assign(warp, warp + m);
        for (int64_t g = 0; g < int64_t(reduced_.anchor.size()); ++g) {
            const int64_t begin = reduced_.begin[g], end = reduced_.begin[g + 1];
            const int64_t anchor = reduced_.anchor[g] < 0 ? begin : reduced_.anchor[g];
            trial_[anchor] -= response_[anchor];
            for (int64_t i = anchor; i + 1 < end; ++i) trial_[i + 1] = trial_[i] + tied(pair, holds, i);
            for (int64_t i = anchor; i > begin; --i) trial_[i - 1] = trial_[i] - tied(pair, holds, i - 1);
        }
        for (int64_t i = 0; i < m; ++i) {
            const int64_t k = holds[2 * i];
            const bool moved = trial_[i] != warp[i];
            if (moved && (trial_[i] < std::max(pair.s[k], pair.lower[i]) || trial_[i] > std::min(pair.s[k + 1], pair.upper[i]))) return;
            if (std::fabs(trial_[i] - warp[i]) > 1e-6 * pair.span) return;
            if (i + 1 == m) continue;
            const double move = trial_[i + 1] - trial_[i], slack = 1e-15 * pair.span;
            if (move < pair.least[i] - slack || move > pair.most[i] + slack) return;
        }
        std::copy(trial_.begin(), trial_.end(), warp);
    }

    static double tied(const Pair& pair, const int32_t* holds, int64_t i) {
        return holds[2 * i + 1] & kTiedMax ? pair.most[i] : pair.least[i];
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
