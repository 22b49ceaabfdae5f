// Regularised transport on the CPU. Each function works on a range of pairs on the calling thread.
#pragma once
#include "../problem.h"

namespace likewise {

// The transport problem and the stopping rule; ops/transport/settings.py documents them.
struct TransportSettings {
    double reg = 1, inverse_difference = 0, delta = 0, time_weight = 0;
    int64_t n_iter = 0;  // 0: until the marginal error is at most tolerance
    double tolerance = 0;
    int64_t max_iter = 0;
    const double* x_mass = nullptr;  // (rows, x_steps) and (columns, y_steps), or null where it is uniform
    const double* y_mass = nullptr;
};

#define LIKEWISE_TRANSPORT_KERNELS                                                                                \
    /* Of the pairs order[begin..end-1]: values[pair], errors[pair] and, where it is not null, the plan           \
       (pairs, x_steps, y_steps), whose padding is left alone. */                                                 \
    void transport_solve(const Problem&, const TransportSettings&, const int64_t* order, void* values,            \
                         double* errors, void* plans, int64_t begin, int64_t end);

namespace baseline { LIKEWISE_TRANSPORT_KERNELS }
namespace avx2 { LIKEWISE_TRANSPORT_KERNELS }
namespace avx512 { LIKEWISE_TRANSPORT_KERNELS }
}  // namespace likewise
