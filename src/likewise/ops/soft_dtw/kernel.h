// Soft-DTW on the CPU. Each function works on the pairs, or the blocks of lanes, begin..end-1 on the calling thread.
#pragma once
#include "../problem.h"

#define LIKEWISE_SOFT_DTW_KERNELS                                                                                 \
    /* Values of pairs order[begin..end-1], one at a time. */                                                     \
    void soft_dtw_values(const Problem&, const int64_t* order, void* values, int64_t begin, int64_t end);         \
    /* Block b holds the pairs order[b * lanes], ...; lanes as dtw_lanes says. */                                 \
    void soft_dtw_value_blocks(const Problem&, const int64_t* order, int64_t count, void* values, int64_t begin,  \
                               int64_t end);                                                                      \
    /* The same with gradients, as below, of sequences. Memory: 2 lanes * Tx * Ty numbers. */                     \
    void soft_dtw_gradient_blocks(const Problem&, const int64_t* order, int64_t count, const void* weights,       \
                                  void* values, void* x_grad, void* y_grad, int64_t begin, int64_t end);          \
    /* Values, if not null, and adds weights[p] * d value[p]: to x_grad and y_grad, or, if `plan`, the expected   \
       alignment (pairs, x_steps, y_steps) times weights[p] to x_grad. */                                         \
    void soft_dtw_gradients(const Problem&, bool plan, const void* weights, void* values, void* x_grad,           \
                            void* y_grad, int64_t begin, int64_t end);                                            \
    /* Of given costs: the derivative of the plan in the direction `tangent`. */                                  \
    void soft_dtw_hessian(const Problem&, const void* tangent, void* product, int64_t begin, int64_t end);

namespace likewise {
namespace baseline { LIKEWISE_SOFT_DTW_KERNELS }
namespace avx2 { LIKEWISE_SOFT_DTW_KERNELS }
namespace avx512 { LIKEWISE_SOFT_DTW_KERNELS }
}  // namespace likewise
