// One pair's costs, log-kernel L and potentials f, g: its plan is 2^(L_ij + f_i + g_j). Logarithms are to base 2.
#pragma once
#include "../simd.h"
#include "../scaled.h"
#include "../stop.h"
#include "kernel.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr double kLog2e = 1.4426950408889634, kNothing = -1e300;

// 2^z for z <= 0.
template <class T> INLINE V<T> exp2_of(V<T> z) {
    const Scaled<T> found = scaled_exp2<T>(max(z, splat(T(-Format<T>::bias))));
    return found.mantissa * power_of_two<T>(found.exponent);
}

struct TransportPair {
    int64_t n = 0, m = 0, stride = 0;  // rows are padded to whole vectors of floats
    double total = 1;                  // of the masses, which are scaled to sum to 1
    Buffer<double> cost, L, a, b, f, g;

    template <class T> void read(const Problem& problem, const TransportSettings& settings, int64_t pair) {
        const int64_t row = row_of(problem, pair), column = column_of(problem, pair);
        n = problem.x_lengths[row];
        m = problem.y_lengths[column];
        stride = (m + W<float> - 1) / W<float> * W<float>;
        cost.reserve(n * stride);
        L.reserve(n * stride);
        masses(settings.x_mass ? settings.x_mass + row * problem.x_steps : nullptr, n, n, a, f);
        masses(settings.y_mass ? settings.y_mass + column * problem.y_steps : nullptr, m, stride, b, g);
        scratch_.reserve(stride);
        top_.reserve(stride);
        if (problem.ground == Ground::given) {
            const T* from = static_cast<const T*>(problem.cost) + pair * problem.x_steps * problem.y_steps;
            for (int64_t i = 0; i < n; ++i)
                for (int64_t j = 0; j < stride; ++j) cost[i * stride + j] = j < m ? double(from[i * problem.y_steps + j]) : 0;
        } else {
            frames(static_cast<const T*>(problem.x) + row * problem.x_steps * problem.channels,
                   static_cast<const T*>(problem.y) + column * problem.y_steps * problem.channels, problem.channels,
                   problem.ground == Ground::euclidean);
        }
        log_kernel(settings);
    }

    // g so that the columns of 2^(share L + f + g) sum to b. S is the type that exponentials are computed in.
    template <class S> void balance_columns(double share) {
        double* top = top_.get();
        S *sum = typed<S>(sums_), *z = typed<S>(scratch_);
        fill(top, stride, kNothing);
        fill(sum, stride, S(0));
        for (int64_t i = 0; i < n; ++i) {
            const double *from = L.get() + i * stride, shift = f[i];
            for (int64_t j = 0; j < stride; ++j) top[j] = max(top[j], share * from[j] + shift);
        }
        for (int64_t i = 0; i < n; ++i) {
            const double *from = L.get() + i * stride, shift = f[i];
            for (int64_t j = 0; j < stride; ++j) z[j] = S(share * from[j] + shift - top[j]);
            for (int64_t j = 0; j < stride; j += W<S>) store(sum + j, load(sum + j) + exp2_of<S>(load(z + j)));
        }
        for (int64_t j = 0; j < m; ++j) g[j] = __builtin_log2(b[j]) - top[j] - __builtin_log2(double(sum[j]));
    }

    // f so that the rows sum to a, and that plan in K (n, stride), zero beyond m.
    template <class S> void balance_rows(double share, S* K) {
        double* row = top_.get();
        for (int64_t i = 0; i < n; ++i) {
            const double* from = L.get() + i * stride;
            S* to = K + i * stride;
            double top = kNothing;
            for (int64_t j = 0; j < stride; ++j) row[j] = share * from[j] + g[j];
            for (int64_t j = 0; j < m; ++j) top = max(top, row[j]);
            for (int64_t j = 0; j < stride; ++j) to[j] = S(row[j] - top);
            V<S> sums{};
            for (int64_t j = 0; j < stride; j += W<S>) {
                const V<S> value = exp2_of<S>(load(to + j));
                store(to + j, value);
                sums += value;
            }
            const S sum = sum_of<S>(sums), scale = S(a[i]) / sum;
            for (int64_t j = 0; j < stride; j += W<S>) store(to + j, load(to + j) * scale);
            f[i] = __builtin_log2(a[i]) - top - __builtin_log2(double(sum));
        }
    }

    // The largest and the smallest of L, and the largest size.
    void extent(double& spread, double& size) const {
        double most = kNothing, least = -kNothing;
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < m; ++j) {
                most = max(most, L[i * stride + j]);
                least = min(least, L[i * stride + j]);
            }
        spread = most - least;
        size = max(most, -least);
    }

private:
    Buffer<double> scratch_, sums_, top_, y_;

    // Memory for a row of either type.
    template <class S> S* typed(Buffer<double>& buffer) { return reinterpret_cast<S*>(buffer.reserve(stride)); }

    void masses(const double* given, int64_t count, int64_t room, Buffer<double>& mass, Buffer<double>& potential) {
        fill(mass.reserve(room), room, 0.0);
        fill(potential.reserve(room), room, 0.0);
        total = given ? 0 : 1;
        for (int64_t i = 0; given && i < count; ++i) total += given[i];
        for (int64_t i = 0; i < count; ++i) mass[i] = given ? given[i] / total : 1.0 / double(count);
    }

    // Four rows at a time: with many channels, accesses to y are far apart.
    template <class T> void frames(const T* x, const T* y, int64_t channels, bool root) {
        double* across = y_.reserve(channels * stride);  // y with its steps side by side
        for (int64_t k = 0; k < channels; ++k)
            for (int64_t j = 0; j < stride; ++j) across[k * stride + j] = j < m ? double(y[j * channels + k]) : 0;
        fill(cost.get(), n * stride, 0.0);
        for (int64_t first = 0; first < n; first += 4) {
            const int64_t last = min(first + 4, n);
            for (int64_t k = 0; k < channels; ++k)
                for (int64_t i = first; i < last; ++i) {
                    const double value = double(x[i * channels + k]), *from = across + k * stride;
                    double* to = cost.get() + i * stride;
                    for (int64_t j = 0; j < stride; ++j) to[j] += (value - from[j]) * (value - from[j]);
                }
        }
        for (int64_t c = 0; root && c < n * stride; ++c) cost[c] = __builtin_sqrt(cost[c]);
    }

    void log_kernel(const TransportSettings& settings) {
        const double rows = double(n), columns = double(m);
        const double prior = 1 / ((1 / (rows * rows) + 1 / (columns * columns)) * 2 * settings.delta * settings.delta);
        const double steep = kLog2e / settings.reg;
        for (int64_t i = 0; i < n; ++i) {
            const double *from = cost.get() + i * stride, here = double(i + 1) / rows;
            double* to = L.get() + i * stride;
            for (int64_t j = 0; j < m; ++j) {
                const double t = here - double(j + 1) / columns, far = __builtin_fabs(t);
                const double gain = settings.inverse_difference / (t * t + 1) - from[j] * (1 + settings.time_weight * far);
                to[j] = steep * gain - kLog2e * prior * t * t;
            }
            fill(to + m, stride - m, kNothing);
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
