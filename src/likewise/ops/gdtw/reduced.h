// The Newton system of a stationary point, without the unknowns that active constraints fix.
//
// Knots joined by an active slope limit move as one, and those held by a bound, an end or a kink of y do not move, nor
// do the knots joined to them. What remains has one unknown for each group, and stays tridiagonal and of full rank.
#pragma once
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

class Reduced {
public:
    std::vector<double> slope;         // (m,): of the objective with respect to each knot
    std::vector<double> curvature;     // (m,): w L'', the Hessian's diagonal without the regulariser
    std::vector<int64_t> begin;        // (groups + 1,): the first knot of each group, and m
    std::vector<int64_t> anchor;       // (groups,): the knot that is held, or -1

    // holds (m, 2): segments and what holds each knot.
    void build(const Pair& pair, const double* warp, const int32_t* holds) {
        const int64_t m = pair.m;
        slope.resize(m);
        curvature.resize(m);
        for (int64_t i = 0; i < m; ++i) {
            const auto loss = pair.loss(i, holds[2 * i], warp[i]);
            slope[i] = pair.weight[i] * loss.slope;
            curvature[i] = pair.weight[i] * loss.curvature;
            if (i > 0) slope[i] += pair.pull(i - 1, warp[i] - warp[i - 1]);
            if (i + 1 < m) slope[i] -= pair.pull(i, warp[i + 1] - warp[i]);
        }
        begin.clear();
        anchor.clear();
        for (int64_t i = 0; i < m; ++i) {
            const bool held = (holds[2 * i + 1] & 3) != kFree;
            const bool tied = i > 0 && (holds[2 * i - 1] & (kTiedMin | kTiedMax));
            // A limit between two held groups is redundant: it would make the system singular.
            if (!tied || (held && anchor.back() >= 0)) {
                begin.push_back(i);
                anchor.push_back(-1);
            }
            if (held) anchor.back() = i;
        }
        begin.push_back(m);
    }

    // response = N (N'HN)^-1 N' force: how far each knot gives way. Where y is flat under every knot and nothing holds
    // the warp, it can slide freely; sliding is left out (the pseudoinverse).
    void solve(const Pair& pair, const double* force, double* response) {
        const int64_t groups = int64_t(anchor.size()), m = pair.m;
        diagonal_.resize(groups);
        right_.resize(groups);
        double stiffness = 0, total = 0, mean = 0;
        bool slides = true;
        for (int64_t g = 0; g < groups; ++g) {
            double sum = 0, pushed = 0;
            for (int64_t i = begin[g]; i < begin[g + 1]; ++i) {
                sum += curvature[i];
                pushed += force[i];
            }
            total += sum;
            mean += pushed / m;
            if (g > 0) sum += spring(pair, g);
            if (g + 1 < groups) sum += spring(pair, g + 1);
            stiffness = std::max(stiffness, sum);
            slides &= anchor[g] < 0;
            diagonal_[g] = sum;
            right_[g] = pushed;
        }
        slides &= total <= 1e-13 * stiffness;
        if (slides)
            for (int64_t g = 0; g < groups; ++g) right_[g] -= mean * (begin[g + 1] - begin[g]);
        for (int64_t g = 0; g < groups; ++g) {
            if (still(g, slides)) continue;
            if (g > 0 && !still(g - 1, slides)) {
                const double factor = spring(pair, g) / diagonal_[g - 1];
                diagonal_[g] -= factor * spring(pair, g);
                right_[g] += factor * right_[g - 1];
            }
        }
        double behind = 0, shift = 0;
        for (int64_t g = groups - 1; g >= 0; --g) {
            double moved = 0;
            if (!still(g, slides)) {
                if (g + 1 < groups) moved = spring(pair, g + 1) * behind;
                moved = (right_[g] + moved) / diagonal_[g];
            }
            behind = moved;
            shift += moved * (begin[g + 1] - begin[g]) / m;
            std::fill(response + begin[g], response + begin[g + 1], moved);
        }
        if (slides)
            for (int64_t i = 0; i < m; ++i) response[i] -= shift;
    }

    // rest = force - H response, whose sum over the part of a group beyond a limit is what the limit feels.
    void rest(const Pair& pair, const double* force, const double* response, double* out) const {
        for (int64_t i = 0; i < pair.m; ++i) {
            out[i] = force[i] - curvature[i] * response[i];
            if (i > 0) out[i] -= 2 * pair.reg / pair.step[i - 1] * (response[i] - response[i - 1]);
            if (i + 1 < pair.m) out[i] -= 2 * pair.reg / pair.step[i] * (response[i] - response[i + 1]);
        }
    }

private:
    std::vector<double> diagonal_, right_;

    // Between group g and the one before.
    double spring(const Pair& pair, int64_t g) const { return 2 * pair.reg / pair.step[begin[g] - 1]; }
    bool still(int64_t g, bool slides) const {
        return anchor[g] >= 0 || (slides && g + 1 == int64_t(anchor.size()));
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
