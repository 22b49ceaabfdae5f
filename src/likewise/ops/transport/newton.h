// Newton steps on the semi-dual, for kernels so sharp that Sinkhorn's iterations are slow. reference.py's converge() is
// the readable version, and explains why each step ascends.
#pragma once
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr double kStage = 4, kFirstSpread = 16;

INLINE double dot(const double* a, const double* b, int64_t count) {
    V<double> sums{};
    int64_t k = 0;
    for (; k + W<double> <= count; k += W<double>) sums += load(a + k) * load(b + k);
    double total = sum_of<double>(sums);
    for (; k < count; ++k) total += a[k] * b[k];
    return total;
}

class Newton {
public:
    // Goes on from the pair's f until the column sums of its plan, left in `plan`, are right. Returns their error.
    // `error` is what f gives now: if every step's mass is about in place, no stage is needed.
    double run(TransportPair& pair, Buffer<double>& plan, double error, const TransportSettings& settings) {
        double spread, size, share = 1;
        pair.extent(spread, size);
        const double rounding = 2 * std::numeric_limits<double>::epsilon() * size / kLog2e;
        const double small = 0.5 * min(smallest(pair.a, pair.n), smallest(pair.b, pair.m));
        plan.reserve(pair.n * pair.stride);
        columns_.reserve(pair.stride);
        step_.reserve(pair.stride);
        if (!(error <= small) && spread > kFirstSpread * kLog2e) {
            share = kFirstSpread * kLog2e / spread;
            fill(pair.f.get(), pair.n, 0.0);
        }
        for (int64_t step = 0; step < settings.max_iter; ++step) {
            stop_if_asked();
            pair.balance_columns<double>(share);
            pair.balance_rows<double>(share, plan.get());
            error = column_error(pair, plan.get());
            if (share >= 1 && error <= settings.tolerance + rounding) return error;
            advance(pair, plan.get());
            if (share < 1 && error <= small) {
                const double sharper = min(1.0, kStage * share);
                for (int64_t j = 0; j < pair.m; ++j) pair.g[j] *= sharper / share;
                share = sharper;
            }
            pair.balance_rows<double>(share, plan.get());
        }
        pair.balance_columns<double>(1);
        pair.balance_rows<double>(1, plan.get());
        return column_error(pair, plan.get());
    }

private:
    Buffer<double> columns_, step_, system_;

    static double smallest(const Buffer<double>& mass, int64_t count) {
        double least = 1;
        for (int64_t i = 0; i < count; ++i) least = min(least, mass[i]);
        return least;
    }

    double column_error(const TransportPair& pair, const double* plan) {
        fill(columns_.get(), pair.stride, 0.0);
        for (int64_t i = 0; i < pair.n; ++i)
            for (int64_t j = 0; j < pair.stride; ++j) columns_[j] += plan[i * pair.stride + j];
        double error = 0;
        for (int64_t j = 0; j < pair.m; ++j) error += __builtin_fabs(columns_[j] - pair.b[j]);
        return error;
    }

    // g += a share of d, where (diag(T'1) - T' diag(1/a) T + b b') d = b - T'1.
    void advance(TransportPair& pair, const double* plan) {
        const int64_t m = pair.m;
        for (int64_t j = 0; j < m; ++j) step_[j] = pair.b[j] - columns_[j];
        build(pair, plan);
        factorise(pair);
        double *d = step_.get(), most = kNothing, least = -kNothing;
        for (int64_t j = 0; j < m; ++j) d[j] = (d[j] - dot(row(pair, j), d, j)) / row(pair, j)[j];
        for (int64_t j = m - 1; j >= 0; --j) {
            d[j] /= row(pair, j)[j];
            for (int64_t k = 0; k < j; ++k) d[k] -= d[j] * row(pair, j)[k];
        }
        for (int64_t j = 0; j < m; ++j) {
            most = max(most, d[j]);
            least = min(least, d[j]);
        }
        const double reach = max(most - least, 1e-12), part = __builtin_log1p(reach) / reach;
        for (int64_t j = 0; j < m; ++j) pair.g[j] += kLog2e * part * d[j];
    }

    double* row(const TransportPair& pair, int64_t j) const { return system_.get() + j * pair.stride; }

    // The system's lower triangle, four rows of the plan at a time.
    void build(const TransportPair& pair, const double* plan) {
        const int64_t n = pair.n, m = pair.m, stride = pair.stride;
        system_.reserve(m * stride);
        for (int64_t j = 0; j < m; ++j) {
            double* to = row(pair, j);
            for (int64_t k = 0; k <= j; ++k) to[k] = pair.b[j] * pair.b[k];
            to[j] += columns_[j];
        }
        int64_t i = 0;
        for (; i + 4 <= n; i += 4) {
            const double *p = plan + i * stride, *q = p + stride, *r = q + stride, *s = r + stride;
            for (int64_t j = 0; j < m; ++j) {
                const double pj = p[j] / pair.a[i], qj = q[j] / pair.a[i + 1], rj = r[j] / pair.a[i + 2], sj = s[j] / pair.a[i + 3];
                double* to = row(pair, j);
                for (int64_t k = 0; k <= j; ++k) to[k] -= (pj * p[k] + qj * q[k]) + (rj * r[k] + sj * s[k]);
            }
        }
        for (; i < n; ++i) {
            const double* p = plan + i * stride;
            for (int64_t j = 0; j < m; ++j) {
                const double pj = p[j] / pair.a[i];
                double* to = row(pair, j);
                for (int64_t k = 0; k <= j; ++k) to[k] -= pj * p[k];
            }
        }
    }

    // Cholesky, in place. For a nearly hard plan the diagonal is little more than rounding: it is kept positive.
    void factorise(const TransportPair& pair) {
        for (int64_t j = 0; j < pair.m; ++j) {
            double* own = row(pair, j);
            for (int64_t k = 0; k < j; ++k) own[k] = (own[k] - dot(own, row(pair, k), k)) / row(pair, k)[k];
            own[j] = __builtin_sqrt(max(own[j] - dot(own, own, j), 1e-13 * pair.b[j]));
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
