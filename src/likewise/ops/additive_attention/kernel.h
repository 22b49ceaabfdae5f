// Additive attention on the CPU. Each function works on the items begin..end-1 of one layer, on the calling thread.
#pragma once
#include <cstdint>

namespace likewise {

struct AttentionLayer {
    const void *values, *inward, *outward, *wanted;  // q (B, C, P), W1 (R, C), w (R,), W2 u (B, R)
    const bool* mask;                                // (B, P), or null: every position is real
    int64_t channels, positions, features;           // C, P, R
    bool float64;
};

}  // namespace likewise

#define LIKEWISE_ATTENTION_KERNELS                                                                                \
    /* weights (B, P), and the summaries at [item * stride]. */                                                   \
    void attention_forward(const AttentionLayer&, void* weights, void* summaries, int64_t stride, int64_t begin,  \
                           int64_t end);                                                                          \
    /* Gradients by the values, if not null, and by W2 u (B, R), and the sums (R, C + 1) of those by W1 and w. */ \
    /* `by_weights` may be null. */                                                                               \
    void attention_backward(const AttentionLayer&, const void* weights, const void* by_summaries, int64_t stride, \
                            const void* by_weights, void* by_values, void* by_wanted, void* by_rest,              \
                            int64_t begin, int64_t end);

namespace likewise {
namespace baseline { LIKEWISE_ATTENTION_KERNELS }
namespace avx2 { LIKEWISE_ATTENTION_KERNELS }
namespace avx512 { LIKEWISE_ATTENTION_KERNELS }
}  // namespace likewise
