// The coupled GRU on the CPU. Each function works on a range of blocks of pairs, one pair per lane, on the calling thread.
#pragma once
#include <cstdint>

namespace likewise {

// Pairs of projected sequences and a stack of layers; ops/coupled_gru/__init__.py fills it in.
struct CoupledProblem {
    const void* gx = nullptr;  // (rows, x_steps, 3 hidden[0]), float or double: r, z, n
    const void* gy = nullptr;  // (columns, y_steps, 3 hidden[0])
    const int64_t* rows = nullptr;     // (pairs,), which of gx; null where pair p is gx[p] and gy[p]
    const int64_t* columns = nullptr;  // (pairs,), which of gy
    const int64_t* x_lengths = nullptr;
    const int64_t* y_lengths = nullptr;
    const int64_t* order = nullptr;   // (pairs,), the order of the pairs, in which neighbours have similar lengths
    const void* weights = nullptr;    // of all layers, one after the other, as struct Layer reads them
    const int64_t* hidden = nullptr;  // (layers,), states of each layer
    int64_t layers = 0, pairs = 0, x_steps = 0, y_steps = 0;
    bool float64 = false;
};

#define LIKEWISE_COUPLED_GRU_KERNELS                                                                             \
    /* Pairs that a block holds. */                                                                              \
    int64_t coupled_gru_lanes(bool float64);                                                                     \
    /* States of the last layer: (pairs, 2, steps, hidden) at every step, or (pairs, 2, hidden), the last ones. */ \
    void coupled_gru_states(const CoupledProblem&, void* states, bool every, int64_t begin, int64_t end);        \
    /* Adds the gradient of a loss, whose derivative with respect to those states is `grad`. */                  \
    void coupled_gru_gradients(const CoupledProblem&, const void* grad, bool every, void* gx_grad, void* gy_grad, \
                               void* weights_grad, int64_t begin, int64_t end);

namespace baseline { LIKEWISE_COUPLED_GRU_KERNELS }
namespace avx2 { LIKEWISE_COUPLED_GRU_KERNELS }
namespace avx512 { LIKEWISE_COUPLED_GRU_KERNELS }
}  // namespace likewise
