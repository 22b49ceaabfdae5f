// Newton steps on the semi-dual, for kernels so sharp that Sinkhorn's iterations are slow. reference.py's converge() is
// the readable version, and explains why each step ascends.
#pragma once
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr double kStage = 4, kFirstSpread = 64, kClose = 0.02, kShort = 0.5, kEnough = 1e-4, kBack = 0.25;
constexpr double kLost = 1e-100;  // share of its mass below which a column's sum is not to be divided by
constexpr int kIterations = 4;    // of Sinkhorn's, between Newton steps: they take much less time than a step

class Newton {
public:
    // Goes on from the pair's f until the column sums of its plan, left in `plan`, are right. Returns their error.
    // `error` is what f gives now: if most of the mass is in place, no stages are needed.
    double run(TransportPair& pair, Buffer<double>& plan, double error, const TransportSettings& settings) {
        double spread, size, share = 1;
        pair.extent(spread, size);
        const double rounding = 2 * std::numeric_limits<double>::epsilon() * size / kLog2e;
        plan.reserve(pair.n * pair.stride);
        columns_.reserve(pair.stride);
        step_.reserve(pair.stride);
        before_.reserve(pair.stride);
        if (!(error <= kClose) && spread > kFirstSpread * kLog2e) {
            share = kFirstSpread * kLog2e / spread;
            fill(pair.f.get(), pair.n, 0.0);
        }
        balance(pair, plan.get(), share);
        for (int64_t step = 0; step < settings.max_iter; ++step) {
            stop_if_asked();
            column_sums(pair, plan.get());
            if (lost(pair)) balance(pair, plan.get(), share);
            error = iterate(pair, plan.get(), share < 1 ? 0 : settings.tolerance + rounding);
            if (share >= 1 && error <= settings.tolerance + rounding) return error;
            advance(pair, plan.get(), share);
            if (share < 1 && error <= kClose) {
                const double sharper = min(1.0, kStage * share);
                for (int64_t j = 0; j < pair.m; ++j) pair.g[j] *= sharper / share;
                share = sharper;
                pair.balance_rows<double>(share, plan.get());
            }
        }
        balance(pair, plan.get(), 1);
        return missing(pair);
    }

private:
    Buffer<double> columns_, step_, before_, system_;

    // An iteration in the log domain, from f.
    void balance(TransportPair& pair, double* plan, double share) {
        pair.balance_columns<double>(share);
        pair.balance_rows<double>(share, plan);
        column_sums(pair, plan);
    }

    void column_sums(const TransportPair& pair, const double* plan) {
        fill(columns_.get(), pair.stride, 0.0);
        for (int64_t i = 0; i < pair.n; ++i)
            for (int64_t j = 0; j < pair.stride; ++j) columns_[j] += plan[i * pair.stride + j];
    }

    bool lost(const TransportPair& pair) const {
        for (int64_t j = 0; j < pair.m; ++j)
            if (!(columns_[j] > kLost * pair.b[j])) return true;
        return false;
    }

    double missing(const TransportPair& pair) const {
        double error = 0;
        for (int64_t j = 0; j < pair.m; ++j) error += __builtin_fabs(columns_[j] - pair.b[j]);
        return error;
    }

    // Sinkhorn's iterations, in the plan itself; f and g follow it. Returns the error of the column sums.
    double iterate(TransportPair& pair, double* plan, double goal) {
        double error = missing(pair), *v = step_.get();
        for (int k = 0; k < kIterations && error > goal; ++k) {
            fill(v, pair.stride, 1.0);
            for (int64_t j = 0; j < pair.m; ++j) v[j] = pair.b[j] / columns_[j];
            for (int64_t j = 0; j < pair.m; ++j) pair.g[j] += __builtin_log2(v[j]);
            fill(columns_.get(), pair.stride, 0.0);
            for (int64_t i = 0; i < pair.n; ++i) {
                double* row = plan + i * pair.stride;
                const double u = pair.a[i] / dot(row, v, pair.stride);
                for (int64_t j = 0; j < pair.stride; ++j) {
                    row[j] *= u * v[j];
                    columns_[j] += row[j];
                }
                pair.f[i] += __builtin_log2(u);
            }
            error = missing(pair);
        }
        return error;
    }

    // The semi-dual, whose maximum has the right masses.
    static double objective(const TransportPair& pair) {
        return dot(pair.b.get(), pair.g.get(), pair.m) + dot(pair.a.get(), pair.f.get(), pair.n);
    }

    // g += d, where (diag(T'1) - T' diag(1/a) T + b b') d = b - T'1, or as large a share of it as gains enough; then f
    // and the plan.
    void advance(TransportPair& pair, double* plan, double share) {
        const int64_t m = pair.m;
        const double from = objective(pair);
        double *d = step_.get(), most = kNothing, least = -kNothing, slope = 0;
        for (int64_t j = 0; j < m; ++j) d[j] = pair.b[j] - columns_[j];
        build(pair, plan);
        factorise(pair);
        for (int64_t j = 0; j < m; ++j) d[j] = (d[j] - dot(row(pair, j), d, j)) / row(pair, j)[j];
        for (int64_t j = m - 1; j >= 0; --j) {
            d[j] /= row(pair, j)[j];
            for (int64_t k = 0; k < j; ++k) d[k] -= d[j] * row(pair, j)[k];
        }
        for (int64_t j = 0; j < m; ++j) {
            most = max(most, d[j]);
            least = min(least, d[j]);
            slope += kLog2e * d[j] * (pair.b[j] - columns_[j]);
            before_[j] = pair.g[j];
        }
        const double reach = max(most - least, 1e-12), safe = __builtin_log1p(reach) / reach;
        for (double part = 1;; part = max(kBack * part, safe)) {
            for (int64_t j = 0; j < m; ++j) pair.g[j] = before_[j] + kLog2e * part * d[j];
            pair.balance_rows<double>(share, plan);
            if (!(reach > kShort && part > safe) || objective(pair) - from >= kEnough * part * slope) return;
        }
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

    // Cholesky, in place, four rows at a time.
    void factorise(const TransportPair& pair) {
        const int64_t m = pair.m;
        int64_t j = 0;
        for (; j + 4 <= m; j += 4) {
            double* own[4] = {row(pair, j), row(pair, j + 1), row(pair, j + 2), row(pair, j + 3)};
            for (int64_t k = 0; k < j; ++k) {
                const double *to = row(pair, k), inverse = 1 / to[k];
                V<double> sums[4] = {};
                double rest[4] = {};
                int64_t c = 0;
                for (; c + W<double> <= k; c += W<double>)
                    for (int r = 0; r < 4; ++r) sums[r] += load(own[r] + c) * load(to + c);
                for (; c < k; ++c)
                    for (int r = 0; r < 4; ++r) rest[r] += own[r][c] * to[c];
                for (int r = 0; r < 4; ++r) own[r][k] = (own[r][k] - (sum_of<double>(sums[r]) + rest[r])) * inverse;
            }
            for (int64_t r = j; r < j + 4; ++r) finish_row(pair, r, j);
        }
        for (; j < m; ++j) finish_row(pair, j, 0);
    }

    // The entries of row j from column `first` on. For a nearly hard plan the diagonal is little more than rounding: it
    // is kept positive.
    void finish_row(const TransportPair& pair, int64_t j, int64_t first) {
        double* own = row(pair, j);
        for (int64_t k = first; k < j; ++k) own[k] = (own[k] - dot(own, row(pair, k), k)) / row(pair, k)[k];
        own[j] = __builtin_sqrt(max(own[j] - dot(own, own, j), 1e-13 * pair.b[j]));
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
