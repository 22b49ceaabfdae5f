// Sinkhorn's iterations in the scaled domain. Of the plan u_i K_ij v_j, K = 2^(L + f + g) holds what the potentials
// contain already, and u, v the rest; once one of these grows large it is moved into the potentials, and K is
// recomputed. So an iteration is two products of K, nothing can overflow, and K may be float32.
#include "kernel.h"

#include "newton.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> constexpr T kLargest = sizeof(T) == 4 ? T(1e9) : T(1e50);  // of u and v

template <class T> class Solver {
public:
    void run(const Problem& problem, const TransportSettings& settings, int64_t index, T* value, double* error, T* plan) {
        pair_.read<T>(problem, settings, index);
        // The cost of Newton's steps in iterations, from the arithmetic of each and about twenty steps.
        const int64_t budget = settings.n_iter > 0 ? settings.n_iter : 20 * (pair_.m + 50);
        *error = iterate(settings, budget);
        if (settings.n_iter == 0 && !(*error <= settings.tolerance)) {
            for (int64_t i = 0; i < pair_.n; ++i) pair_.f[i] += __builtin_log2(double(u_[i]));
            *error = newton_.run(pair_, exact_, *error, settings);
            *value = finish(exact_.get(), problem.y_steps, plan);
        } else {
            for (int64_t i = 0; i < pair_.n; ++i) {
                T* row = K_.get() + i * pair_.stride;
                for (int64_t j = 0; j < pair_.stride; j += W<T>) store(row + j, load(row + j) * load(v_.get() + j) * u_[i]);
            }
            *value = finish(K_.get(), problem.y_steps, plan);
        }
        *error *= pair_.total;
    }

private:
    TransportPair pair_;
    Newton newton_;
    Buffer<T> K_, u_, v_, sums_, a_, b_;
    Buffer<double> exact_;

    // At most `budget` iterations; without n_iter fewer, if the tolerance is met or cannot be met in time.
    double iterate(const TransportSettings& settings, int64_t budget) {
        const int64_t n = pair_.n, stride = pair_.stride;
        K_.reserve(n * stride);
        u_.reserve(n);
        v_.reserve(stride);
        sums_.reserve(stride);
        a_.reserve(n);
        b_.reserve(stride);
        for (int64_t i = 0; i < n; ++i) a_[i] = T(pair_.a[i]);
        for (int64_t j = 0; j < stride; ++j) b_[j] = T(pair_.b[j]);
        rebalance();
        double error = column_error(), before = error;
        for (int64_t k = 1; k < budget; ++k) {
            stop_if_asked();
            if (settings.n_iter == 0) {
                if (error <= settings.tolerance) break;
                if (k % 16 == 0) {
                    // The remaining iterations if the error keeps falling as in the last 16.
                    const double left = 16 * __builtin_log(error / settings.tolerance) / __builtin_log(before / error);
                    if (!(before > error) || left > double(budget)) break;
                    before = error;
                }
            }
            if (!scale_columns()) {
                for (int64_t i = 0; i < n; ++i) pair_.f[i] += __builtin_log2(double(u_[i]));
                rebalance();
            } else {
                scale_rows();
            }
            error = column_error();
        }
        return error;
    }

    // One iteration in the log domain, from the potentials f.
    void rebalance() {
        pair_.balance_columns<T>(1);
        pair_.balance_rows<T>(1, K_.get());
        fill(u_.get(), pair_.n, T(1));
        fill(v_.get(), pair_.stride, T(1));
        fill(sums_.get(), pair_.stride, T(0));
        for (int64_t i = 0; i < pair_.n; ++i) {
            const T* row = K_.get() + i * pair_.stride;
            for (int64_t j = 0; j < pair_.stride; j += W<T>) store(&sums_[j], load(&sums_[j]) + load(row + j));
        }
    }

    // v from the column sums of u K, if it fits into the range of T.
    bool scale_columns() {
        T most = 0, least = 1;
        for (int64_t j = 0; j < pair_.m; ++j) {
            v_[j] = b_[j] / sums_[j];
            most = max(most, v_[j]);
            least = min(least, v_[j]);
        }
        return most < kLargest<T> && least > 1 / kLargest<T>;
    }

    // u from the row sums of K v, and the column sums of the new u K, in one pass over K.
    void scale_rows() {
        fill(sums_.get(), pair_.stride, T(0));
        int64_t i = 0;
        for (; i + 8 <= pair_.n; i += 8) scale_block<8>(i);
        for (; i < pair_.n; ++i) scale_block<1>(i);
    }

    template <int R> INLINE void scale_block(int64_t first) {
        const int64_t stride = pair_.stride;
        const T *rows = K_.get() + first * stride, *v = v_.get();
        T* sums = sums_.get();
        V<T> totals[R];
        for (int r = 0; r < R; ++r) totals[r] = V<T>{};
        for (int64_t j = 0; j < stride; j += W<T>) {
            const V<T> scale = load(v + j);
            for (int r = 0; r < R; ++r) totals[r] += load(rows + r * stride + j) * scale;
        }
        V<T> scales[R];
        for (int r = 0; r < R; ++r) {
            u_[first + r] = a_[first + r] / sum_of<T>(totals[r]);
            scales[r] = splat(u_[first + r]);
        }
        for (int64_t j = 0; j < stride; j += W<T>) {
            V<T> sum = load(sums + j);
            for (int r = 0; r < R; ++r) sum += load(rows + r * stride + j) * scales[r];
            store(sums + j, sum);
        }
    }

    double column_error() const {
        V<T> errors{};
        for (int64_t j = 0; j < pair_.stride; j += W<T>) {
            const V<T> off = load(&sums_[j]) * load(&v_[j]) - load(&b_[j]);
            errors += max(off, -off);
        }
        return double(sum_of<T>(errors));
    }

    // <T, D>, and the plan where it is asked for.
    template <class S> T finish(const S* from, int64_t width, T* plan) {
        double value = 0;
        for (int64_t i = 0; i < pair_.n; ++i) {
            const S* row = from + i * pair_.stride;
            const double* cost = pair_.cost.get() + i * pair_.stride;
            V<double> sums{};
            double total = 0;
            if constexpr (sizeof(S) == 8)
                for (int64_t j = 0; j < pair_.stride; j += W<double>) sums += load(row + j) * load(cost + j);
            else
                for (int64_t j = 0; j < pair_.m; ++j) total += double(row[j]) * cost[j];
            value += total + sum_of<double>(sums);
            if (plan)
                for (int64_t j = 0; j < pair_.m; ++j) plan[i * width + j] = T(double(row[j]) * pair_.total);
        }
        return T(value * pair_.total);
    }
};

template <class T>
void solve(const Problem& problem, const TransportSettings& settings, const int64_t* order, void* values, double* errors,
           void* plans, int64_t begin, int64_t end) {
    Solver<T> solver;
    const int64_t cells = problem.x_steps * problem.y_steps;
    for (int64_t k = begin; k < end; ++k) {
        const int64_t pair = order[k];
        T* plan = plans ? static_cast<T*>(plans) + pair * cells : nullptr;
        solver.run(problem, settings, pair, static_cast<T*>(values) + pair, errors + pair, plan);
    }
}

}  // namespace

void transport_solve(const Problem& problem, const TransportSettings& settings, const int64_t* order, void* values,
                     double* errors, void* plans, int64_t begin, int64_t end) {
    const FlushTiny flush;
    (problem.float64 ? solve<double> : solve<float>)(problem, settings, order, values, errors, plans, begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
