// One pair without padding, and its objective
//   f(phi) = sum_i w_i L_i(phi_i) + lambda sum_i (slope_i - stretch)^2 Delta_i,  L_i(phi) = sum_c h(y_c(phi) - x_ic),
// where y(.) is linear between its times and h(u) = u^2, or 2 huber |u| - huber^2 beyond huber.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../stop.h"
#include "kernel.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Finding {
    Fault fault = Fault::none;
    int64_t step = 0;
};

class Pair {
public:
    int64_t n = 0, m = 0, channels = 0;
    double reg = 0, stretch = 1, huber = kInfinite, span = 0;  // span: y's duration
    double origin = 0;                                         // where y begins; inside, its times begin at 0
    std::vector<double> s;                                     // times of y
    const double* t = nullptr;                                 // the knots
    std::vector<double> x, y;                                  // (m, C), (n, C)
    std::vector<double> width, inverse_width, climb;           // segments (n-1,): duration, its inverse, |y_k+1 - y_k|^2
    std::vector<double> step, least, most;                     // (m-1,): Delta, slope limits times Delta
    std::vector<double> weight, lower, upper;                  // (m,)
    std::vector<int32_t> lower_hold, upper_hold;               // (m,): kinds of bounds

    Finding read(const WarpProblem& problem, int64_t b) {
        n = problem.y_lengths[b];
        m = problem.x_lengths[b];
        channels = problem.channels;
        huber = problem.huber;
        reg = problem.reg[b];
        s.assign(problem.y_times + b * problem.y_steps, problem.y_times + b * problem.y_steps + n);
        t = problem.x_times + b * problem.x_steps;
        if (m < 2) return {Fault::short_x, 0};
        if (n < 2) return {Fault::short_y, 0};
        if (int64_t at = copy(problem.x, b * problem.x_steps, m, problem.float64, x); at >= 0) return {Fault::value_x, at};
        if (int64_t at = copy(problem.y, b * problem.y_steps, n, problem.float64, y); at >= 0) return {Fault::value_y, at};
        if (int64_t at = not_increasing(t, m); at >= 0) return {Fault::times_x, at};
        if (int64_t at = not_increasing(s.data(), n); at >= 0) return {Fault::times_y, at};
        if (!(reg > 0 && reg < kInfinite)) return {Fault::reg, 0};
        origin = s[0];
        for (double& time : s) time -= origin;
        measure();
        span = s[n - 1];
        stretch = problem.subsequence ? 1 : span / (t[m - 1] - t[0]);
        return limit(problem, b);
    }

    bool squared() const { return huber == kInfinite; }
    int64_t last_segment() const { return n - 2; }

    // The segment that contains a time; in case of ties the one to the right.
    int64_t segment_of(double time) const {
        const int64_t k = std::upper_bound(s.begin(), s.end(), time) - s.begin() - 1;
        return std::clamp<int64_t>(k, 0, last_segment());
    }

    // L_i, and its first and second derivative, at a time in segment k.
    struct Loss {
        double value, slope, curvature;
    };
    Loss loss(int64_t i, int64_t k, double time) const {
        const double share = (time - s[k]) * inverse_width[k], inverse = inverse_width[k];
        const double *a = &y[k * channels], *b = a + channels, *q = &x[i * channels];
        double value = 0, slope = 0, curvature = 0;
        if (squared()) {
            for (int64_t c = 0; c < channels; ++c) {
                const double rise = b[c] - a[c], residual = a[c] + share * rise - q[c];
                value += residual * residual;
                slope += residual * rise;
            }
            return {value, 2 * slope * inverse, 2 * climb[k] * inverse * inverse};
        }
        for (int64_t c = 0; c < channels; ++c) {
            const double rise = b[c] - a[c], residual = a[c] + share * rise - q[c], size = std::fabs(residual);
            if (size <= huber) {
                value += residual * residual;
                slope += residual * rise;
                curvature += rise * rise;
            } else {
                value += huber * (2 * size - huber);
                slope += std::copysign(huber, residual) * rise;
            }
        }
        return {value, 2 * slope * inverse, 2 * curvature * inverse * inverse};
    }

    double objective(const double* warp) const {
        double losses = 0, bends = 0;
        for (int64_t i = 0; i < m; ++i) losses += weight[i] * loss(i, segment_of(warp[i]), warp[i]).value;
        for (int64_t i = 0; i + 1 < m; ++i) {
            const double excess = (warp[i + 1] - warp[i]) / step[i] - stretch;
            bends += excess * excess * step[i];
        }
        return losses + reg * bends;
    }

    // The derivative of the regulariser with respect to the move between knots i and i + 1.
    double pull(int64_t i, double move) const { return 2 * reg * (move / step[i] - stretch); }

    // The least and the greatest value that a warp within the bounds can take at each knot. Both are warps themselves,
    // and so is every convex combination of them. Returns the first knot that no warp passes, or -1.
    int64_t envelope(std::vector<double>& low, std::vector<double>& high) const {
        for (int64_t i = 0; i + 1 < m; ++i) {
            low[i + 1] = std::max(low[i + 1], low[i] + least[i]);
            high[i + 1] = std::min(high[i + 1], high[i] + most[i]);
        }
        for (int64_t i = m - 2; i >= 0; --i) {
            low[i] = std::max(low[i], low[i + 1] - most[i]);
            high[i] = std::min(high[i], high[i + 1] - least[i]);
        }
        const double slack = 1e-12 * (span + std::fabs(origin));
        for (int64_t i = 0; i < m; ++i) {
            if (low[i] > high[i] + slack) return i;
            if (low[i] > high[i]) low[i] = high[i];
        }
        return -1;
    }

private:
    int64_t copy(const void* values, int64_t row, int64_t rows, bool float64, std::vector<double>& into) {
        const int64_t count = rows * channels, first = row * channels;
        into.resize(count);
        bool finite = true;
        for (int64_t c = 0; c < count; ++c) {
            into[c] = float64 ? static_cast<const double*>(values)[first + c] : double(static_cast<const float*>(values)[first + c]);
            finite &= std::isfinite(into[c]);
        }
        if (finite) return -1;
        return std::find_if(into.begin(), into.end(), [](double v) { return !std::isfinite(v); }) - into.begin();
    }

    static int64_t not_increasing(const double* times, int64_t count) {
        for (int64_t k = 0; k < count; ++k)
            if (!std::isfinite(times[k]) || (k > 0 && times[k] <= times[k - 1])) return k;
        return -1;
    }

    void measure() {
        width.resize(n - 1);
        inverse_width.resize(n - 1);
        climb.assign(n - 1, 0);
        for (int64_t k = 0; k + 1 < n; ++k) {
            width[k] = s[k + 1] - s[k];
            inverse_width[k] = 1 / width[k];
            for (int64_t c = 0; c < channels; ++c) {
                const double rise = y[(k + 1) * channels + c] - y[k * channels + c];
                climb[k] += rise * rise;
            }
        }
        step.resize(m - 1);
        weight.assign(m, 0);
        for (int64_t i = 0; i + 1 < m; ++i) {
            step[i] = t[i + 1] - t[i];
            weight[i] += step[i] / 2;
            weight[i + 1] += step[i] / 2;
        }
    }

    Finding limit(const WarpProblem& problem, int64_t b) {
        least.resize(m - 1);
        most.resize(m - 1);
        for (int64_t i = 0; i + 1 < m; ++i) {
            const int64_t at = b * (problem.x_steps - 1) + i;
            const double low = problem.slope_min[at], high = problem.slope_max[at];
            if (!(low >= 0 && low <= high && low < kInfinite)) return {Fault::slope, i};
            least[i] = low * step[i];
            most[i] = high * step[i];
        }
        lower.resize(m);
        upper.resize(m);
        lower_hold.resize(m);
        upper_hold.resize(m);
        for (int64_t i = 0; i < m; ++i) {
            const double low = problem.lower[b * problem.x_steps + i] - origin;
            const double high = problem.upper[b * problem.x_steps + i] - origin;
            if (!(low <= high)) return {Fault::band, i};
            lower[i] = std::max(low, s[0]);
            upper[i] = std::min(high, s[n - 1]);
            lower_hold[i] = low > s[0] ? kLower : kConstant;
            upper_hold[i] = high < s[n - 1] ? kUpper : kConstant;
        }
        if (!problem.subsequence) {
            for (int64_t i : {int64_t(0), m - 1}) {
                const double end = i == 0 ? s[0] : s[n - 1];
                if (lower[i] > end || upper[i] < end) return {Fault::no_warp, i};
                lower[i] = upper[i] = end;
                lower_hold[i] = upper_hold[i] = kConstant;
            }
        }
        std::vector<double> low = lower, high = upper;
        const int64_t knot = envelope(low, high);
        return knot < 0 ? Finding{} : Finding{Fault::no_warp, knot};
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
