// GDTW: the best warp on a grid (grid.h), polished to first-order optimality (polish.h), and its derivatives
// (reduced.h).
#include "kernel.h"

#include <numeric>

#include "grid.h"
#include "polish.h"

namespace likewise {
namespace LIKEWISE_ISA {

namespace {

// Without a search, warps hold the initial warp; NaN there means that the losses overflow.
void solve(const WarpProblem& problem, bool search, double* values, double* warps, int32_t* holds, int64_t* faults,
           int64_t begin, int64_t end) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    Pair pair;
    Grid grid;
    Polish polish;
    for (int64_t b = begin; b < end; ++b) {
        double* warp = warps + b * problem.x_steps;
        int32_t* hold = holds + 2 * b * problem.x_steps;
        const int64_t knots = search ? 0 : std::max<int64_t>(problem.x_lengths[b], 0);
        std::fill(warp + knots, warp + problem.x_steps, kUnknown);
        std::fill(hold, hold + 2 * problem.x_steps, 0);
        values[b] = kUnknown;
        Finding finding = pair.read(problem, b);
        if (finding.fault == Fault::none) {
            // An odd number, so that the middle of a refined grid is the previous solution.
            const int64_t nodes = (problem.nodes > 0 ? problem.nodes : default_nodes(pair.n)) | 1;
            for (int64_t i = 0; i < knots; ++i) warp[i] -= pair.origin;
            if (!std::isfinite(search ? grid.search(pair, nodes, problem.refinements, warp)
                                      : std::accumulate(warp, warp + pair.m, 0.0)))
                finding.fault = Fault::overflow;
            else if (!polish.run(pair, warp, hold))
                finding.fault = Fault::not_settled;
            else
                values[b] = pair.objective(warp);
            for (int64_t i = 0; i < pair.m; ++i) warp[i] += pair.origin;
        }
        faults[2 * b] = int64_t(finding.fault);
        faults[2 * b + 1] = finding.step;
    }
}

}  // namespace

void gdtw_solve(const WarpProblem& problem, double* values, double* warps, int32_t* holds, int64_t* faults, int64_t begin,
                int64_t end) {
    solve(problem, true, values, warps, holds, faults, begin, end);
}

void gdtw_polish(const WarpProblem& problem, double* values, double* warps, int32_t* holds, int64_t* faults, int64_t begin,
                 int64_t end) {
    solve(problem, false, values, warps, holds, faults, begin, end);
}

namespace {

// A loss's gradient with respect to one pair. With u the response to the loss's derivative with respect to the warp
// and g that of the objective: data z enter by value_grad df/dz - u dg/dz, limits by the rest of both forces.
template <class T> class Gradient {
public:
    void run(const WarpProblem& problem, const double* warps, const int32_t* holds, const WarpGradients& out, int64_t b) {
        if (pair_.read(problem, b).fault != Fault::none) return;
        const int64_t m = pair_.m;
        warp_.assign(warps + b * problem.x_steps, warps + b * problem.x_steps + m);
        for (double& time : warp_) time -= pair_.origin;
        holds_ = holds + 2 * b * problem.x_steps;
        value_grad_ = out.value[b];
        response_.resize(m);
        rest_.resize(m);
        reduced_.build(pair_, warp_.data(), holds_);
        const double* warp_grad = out.warp + b * problem.x_steps;
        reduced_.solve(pair_, warp_grad, response_.data());
        reduced_.rest(pair_, warp_grad, response_.data(), rest_.data());
        for (int64_t i = 0; i < m; ++i) rest_[i] += value_grad_ * reduced_.slope[i];
        add_data(static_cast<T*>(out.y) + b * problem.y_steps * pair_.channels,
                 static_cast<T*>(out.x) + b * problem.x_steps * pair_.channels);
        add_reg(out.reg[b]);
        add_limits(out.lower + b * problem.x_steps, out.upper + b * problem.x_steps,
                   out.slope_min + b * (problem.x_steps - 1), out.slope_max + b * (problem.x_steps - 1));
    }

private:
    Pair pair_;
    Reduced reduced_;
    std::vector<double> warp_, response_, rest_, y_grad_;
    const int32_t* holds_ = nullptr;
    double value_grad_ = 0;

    void add_data(T* y_grad, T* x_grad) {
        const int64_t channels = pair_.channels;
        y_grad_.assign(pair_.n * channels, 0);
        for (int64_t i = 0; i < pair_.m; ++i) {
            const int64_t k = holds_[2 * i];
            const double inverse = pair_.inverse_width[k], share = (warp_[i] - pair_.s[k]) * inverse;
            const double *a = &pair_.y[k * channels], *b = a + channels, *q = &pair_.x[i * channels];
            const double scale = 2 * pair_.weight[i], u = response_[i];
            for (int64_t c = 0; c < channels; ++c) {
                const double rise = (b[c] - a[c]) * inverse;
                const double residual = a[c] + share * (b[c] - a[c]) - q[c];
                const bool small = std::fabs(residual) <= pair_.huber;
                const double slope = scale * (small ? residual : std::copysign(pair_.huber, residual));  // w h'
                const double bend = small ? scale * rise : 0;                                            // w h'' r'
                const double both = value_grad_ * slope - u * bend, across = u * slope * inverse;
                y_grad_[k * channels + c] += (1 - share) * both + across;
                y_grad_[(k + 1) * channels + c] += share * both - across;
                x_grad[i * channels + c] += T(-both);
            }
        }
        for (int64_t c = 0; c < pair_.n * channels; ++c) y_grad[c] += T(y_grad_[c]);
    }

    void add_reg(double& reg_grad) {
        for (int64_t i = 0; i + 1 < pair_.m; ++i) {
            const double excess = (warp_[i + 1] - warp_[i]) / pair_.step[i] - pair_.stretch;
            reg_grad += value_grad_ * excess * excess * pair_.step[i];
            reg_grad -= 2 * excess * (response_[i + 1] - response_[i]);
        }
    }

    // A bound moves the group that it anchors; a slope limit moves the part of its group beyond it.
    void add_limits(double* lower, double* upper, double* slope_min, double* slope_max) {
        for (int64_t g = 0; g < int64_t(reduced_.anchor.size()); ++g) {
            const int64_t begin = reduced_.begin[g], end = reduced_.begin[g + 1];
            const int64_t anchor = reduced_.anchor[g] < 0 ? begin : reduced_.anchor[g];
            double after = 0, before = 0;
            for (int64_t i = end - 1; i > anchor; --i) {
                after += rest_[i];
                limit(i - 1, slope_min, slope_max) += after * pair_.step[i - 1];
            }
            for (int64_t i = begin; i < anchor; ++i) {
                before += rest_[i];
                limit(i, slope_min, slope_max) -= before * pair_.step[i];
            }
            const int32_t hold = holds_[2 * anchor + 1] & 3;
            const double whole = before + rest_[anchor] + after;
            if (hold == kLower) lower[anchor] += whole;
            if (hold == kUpper) upper[anchor] += whole;
        }
    }

    double& limit(int64_t i, double* slope_min, double* slope_max) const {
        return holds_[2 * i + 1] & kTiedMax ? slope_max[i] : slope_min[i];
    }
};

template <class T>
void gradients(const WarpProblem& problem, const double* warps, const int32_t* holds, const WarpGradients& out, int64_t begin,
               int64_t end) {
    Gradient<T> gradient;
    for (int64_t b = begin; b < end; ++b) gradient.run(problem, warps, holds, out, b);
}

}  // namespace

void gdtw_gradients(const WarpProblem& problem, const double* warps, const int32_t* holds, const WarpGradients& out,
                    int64_t begin, int64_t end) {
    (problem.float64 ? gradients<double> : gradients<float>)(problem, warps, holds, out, begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
