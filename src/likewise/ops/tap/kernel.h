// TAP on the CPU, in float32. Each function works on a range of pairs, on the calling thread.
#pragma once
#include <cstdint>

namespace likewise {

// Pairs of sequences and the network; ops/tap/cpu.py fills it in. Weights and their derivatives have `stride` numbers for
// each cell, of which the first `width` are used, and are laid out as struct Layout in layout.h has them.
struct TapProblem {
    const float* x = nullptr;            // (rows, x_steps, channels), zero in the padding
    const float* y = nullptr;            // (columns, channels, y_steps), zero in the padding; y_steps in sixteens
    const int64_t* x_lengths = nullptr;  // (rows,)
    const int64_t* y_lengths = nullptr;  // (columns,)
    const int64_t* items = nullptr;      // (pairs,), which of x
    const int64_t* others = nullptr;     // (pairs,), which of y
    const int64_t* kept = nullptr;       // (pairs,), where in memory that is kept a pair's begins; null if none is
    const int64_t* sides = nullptr;      // (layers,), sides of the convolutions' kernels
    const float* weights = nullptr;
    float unit = 1;  // by which all frames were divided, so that their squares are numbers
    int64_t layers = 0, x_steps = 0, y_steps = 0, channels = 0, width = 0, stride = 0;
};

#define LIKEWISE_TAP_KERNELS                                                                                      \
    /* Distances of pairs begin..end. Where `memory` is given, what the gradients need is written to it. */       \
    void tap_values(const TapProblem&, void* memory, float* values, int64_t begin, int64_t end);                  \
    /* Adds the gradients of the sum of slope times distance; without `memory`, values are computed again. */     \
    void tap_gradients(const TapProblem&, const void* memory, const float* slopes, float* x_grad, float* y_grad, \
                       double* weights_grad, int64_t begin, int64_t end);

namespace baseline { LIKEWISE_TAP_KERNELS }
namespace avx2 { LIKEWISE_TAP_KERNELS }
namespace avx512 { LIKEWISE_TAP_KERNELS }
}  // namespace likewise
