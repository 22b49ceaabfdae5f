// Soft-DTW: R(i, j) = cost(i, j) - gamma log(e^(-R(i-1,j-1)/gamma) + e^(-R(i-1,j)/gamma) + e^(-R(i,j-1)/gamma)).
//
// The recurrence runs on P = e^(-R / gamma), where it is a sum and a product,
//     P(i, j) = 2^(-cost(i, j) / (gamma ln 2)) * (P(i-1, j-1) + P(i-1, j) + P(i, j-1)),
// with P held as mantissa * 2^exponent, both floating point: it cannot overflow or underflow at any gamma, it needs
// one exponential per cell and no logarithm, and its rounding errors do not grow with R / gamma.
// The share of each predecessor in the sum is the probability of coming from it: the backward pass walks these
// shares from the end and gathers the expected alignment E = d value / d cost.
#include "kernel.h"

#include "hessian.h"
#include "lanes.h"
#include "pair.h"
#include "sinks.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> void values_of(const Problem& problem, const int64_t* order, T* values, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    for (int64_t k = begin; k < end; ++k) values[order[k]] = aligner.value(order[k]);
}

// Add a channel-by-channel gradient to the item's (steps, channels).
template <class T> void add_gradient(const T* from, int64_t stride, int64_t steps, int64_t channels, bool backwards, T* to) {
    for (int64_t t = 0; t < steps; ++t)
        for (int64_t k = 0; k < channels; ++k) to[t * channels + k] += from[k * stride + (backwards ? steps - 1 - t : t)];
}

template <class T>
void gradients(const Problem& problem, bool plan, const T* weights, T* values, T* x_grad, T* y_grad, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    const Packed<T>& packed = aligner.costs().packed;
    Buffer<T> x_sum, y_sum;
    ChannelGradients<T> by_channels;
    for (int64_t pair = begin; pair < end; ++pair) {
        const T weight = weights[pair];
        if (weight == T(0) && !values) continue;
        const int64_t row = row_of(problem, pair), column = column_of(problem, pair);
        const auto nothing = [](int64_t, int64_t) {};
        if (plan) {
            T* to = x_grad + pair * problem.x_steps * problem.y_steps;
            const auto sink = [&](int64_t top) { return PlanSink<T>{to + top * problem.y_steps, problem.y_steps}; };
            const T value = aligner.expected(pair, weight, sink, nothing);
            if (values) values[pair] = value;
            continue;
        }
        const int64_t n = problem.x_lengths[row], m = problem.y_lengths[column], channels = problem.channels;
        const bool euclidean = problem.ground == Ground::euclidean;
        T *to_x = x_grad + row * problem.x_steps * channels, *to_y = y_grad + column * problem.y_steps * channels;
        if (aligner.costs().ahead()) {
            by_channels.begin(problem, row, column);
            const auto sink = [&](int64_t) {
                return FactorSink<T>{aligner.costs().computed(), euclidean, by_channels.factors(aligner.height()), m};
            };
            const T value = aligner.expected(pair, weight, sink, [&](int64_t top, int64_t rows) { by_channels.add(top, rows); });
            if (values) values[pair] = value;
            by_channels.finish(to_x, to_y);
            continue;
        }
        const int64_t x_stride = Packed<T>::x_size(n), y_stride = Packed<T>::y_size(m);
        fill(x_sum.reserve(channels * x_stride), channels * x_stride, T(0));
        fill(y_sum.reserve(channels * y_stride), channels * y_stride, T(0));
        T value;
        if (euclidean) {
            const auto sink = [&](int64_t top) { return GradientSink<T, true>(packed, x_sum.get(), y_sum.get(), top); };
            value = aligner.expected(pair, weight, sink, nothing);
        } else {
            const auto sink = [&](int64_t top) { return GradientSink<T, false>(packed, x_sum.get(), y_sum.get(), top); };
            value = aligner.expected(pair, weight, sink, nothing);
        }
        if (values) values[pair] = value;
        add_gradient(x_sum.get(), x_stride, n, channels, false, to_x);
        add_gradient(y_sum.get(), y_stride, m, channels, true, to_y);
    }
}

template <class T> void hessian_of(const Problem& problem, const T* tangent, T* product, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    const int64_t size = problem.x_steps * problem.y_steps;
    for (int64_t pair = begin; pair < end; ++pair) aligner.hessian(pair, tangent + pair * size, product + pair * size);
}

}  // namespace

void soft_dtw_values(const Problem& problem, const int64_t* order, void* values, int64_t begin, int64_t end) {
    if (problem.float64) values_of(problem, order, static_cast<double*>(values), begin, end);
    else values_of(problem, order, static_cast<float*>(values), begin, end);
}

void soft_dtw_value_blocks(const Problem& problem, const int64_t* order, int64_t count, void* values, int64_t begin, int64_t end) {
    const auto run = [&](auto* to) {
        SoftLanes<typename std::remove_pointer<decltype(to)>::type> lanes(problem);
        for (int64_t block = begin; block < end; ++block) lanes.values(order, count, block, to);
    };
    if (problem.float64) run(static_cast<double*>(values));
    else run(static_cast<float*>(values));
}

void soft_dtw_gradient_blocks(const Problem& problem, const int64_t* order, int64_t count, const void* weights, void* values,
                              void* x_grad, void* y_grad, int64_t begin, int64_t end) {
    const FlushTiny flush;
    const auto run = [&](auto* to) {
        using T = typename std::remove_pointer<decltype(to)>::type;
        SoftLanes<T> lanes(problem);
        for (int64_t block = begin; block < end; ++block)
            lanes.gradients(order, count, block, static_cast<const T*>(weights), to, static_cast<T*>(x_grad), static_cast<T*>(y_grad));
    };
    if (problem.float64) run(static_cast<double*>(values));
    else run(static_cast<float*>(values));
}

void soft_dtw_gradients(const Problem& problem, bool plan, const void* weights, void* values, void* x_grad, void* y_grad,
                        int64_t begin, int64_t end) {
    const FlushTiny flush;
    if (problem.float64)
        gradients(problem, plan, static_cast<const double*>(weights), static_cast<double*>(values), static_cast<double*>(x_grad),
                  static_cast<double*>(y_grad), begin, end);
    else
        gradients(problem, plan, static_cast<const float*>(weights), static_cast<float*>(values), static_cast<float*>(x_grad),
                  static_cast<float*>(y_grad), begin, end);
}

void soft_dtw_hessian(const Problem& problem, const void* tangent, void* product, int64_t begin, int64_t end) {
    const FlushTiny flush;
    if (problem.float64) hessian_of(problem, static_cast<const double*>(tangent), static_cast<double*>(product), begin, end);
    else hessian_of(problem, static_cast<const float*>(tangent), static_cast<float*>(product), begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
