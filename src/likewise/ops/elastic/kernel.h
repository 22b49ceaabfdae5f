// Elastic distances on the CPU. Each function works on a range on the calling thread.
#pragma once
#include "../problem.h"

namespace likewise {

// The recurrences; moves.h says what each computes. The same order as Recurrence in __init__.py.
enum class Recurrence : int { warp = 0, edit = 1, carry = 2, count = 3, ball = 4, follow = 5 };
// What lies beside the first row and column: nothing, the gaps so far, or zeros.
enum class Border : int { none = 0, gaps = 1, free = 2 };

struct ElasticProblem {
    Problem problem;
    Recurrence recurrence = Recurrence::warp;
    const void* x_gaps = nullptr;   // (rows, x_steps)
    const void* y_gaps = nullptr;   // (columns, y_steps)
    const void* x_reach = nullptr;  // (rows,)
    const void* y_reach = nullptr;  // (columns,)
    const void* weights = nullptr;  // (2 * longest + 1,): of 2 |i - j| - max(n, m), from -longest
    int64_t longest = 0;
    Border border = Border::none;
    double penalty = 0, slope = 0, hit = 0, miss = 0;
    bool last_cost = false;
    int64_t own_first = 0, own_count = 0;  // channels whose costs follow adds up
};

}  // namespace likewise

#define LIKEWISE_ELASTIC_KERNELS                                                                                       \
    /* Values of the listed pairs (x_items[k], y_items[k]), k = order[begin * lanes], ..., order[end * lanes - 1].     \
       With limits (count,), a pair above its limit may get infinity. */                                               \
    void elastic_blocks(const ElasticProblem&, const int64_t* x_items, const int64_t* y_items, const int64_t* order,   \
                        int64_t count, const void* limits, void* values, int64_t begin, int64_t end);                  \
    /* Values (rows, columns) of x's items row_order[first..last-1] against the block-th lanes of column_order. */     \
    void elastic_tile(const ElasticProblem&, const int64_t* row_order, const int64_t* column_order, bool symmetric,    \
                      void* values, int64_t block, int64_t first, int64_t last);                                       \
    /* Optimal paths (count, x_steps + y_steps - 1, 2) of the listed pairs, may be null, and their numbers of steps. */ \
    void elastic_paths(const ElasticProblem&, const int64_t* x_items, const int64_t* y_items, const int64_t* order,    \
                       int64_t count, int64_t* paths, int64_t* steps, int64_t begin, int64_t end);                     \
    /* Adds weights[k] * d value[k] of the listed pairs to the gradients, each laid out as what it belongs to. Writes  \
       the values (count,) too, unless they are null. */                                                               \
    void elastic_gradients(const ElasticProblem&, const int64_t* x_items, const int64_t* y_items,                      \
                           const int64_t* order, int64_t count, const void* weights, void* x_grad, void* y_grad,       \
                           void* x_gaps_grad, void* y_gaps_grad, void* values, int64_t begin, int64_t end);

namespace likewise {
namespace baseline { LIKEWISE_ELASTIC_KERNELS }
namespace avx2 { LIKEWISE_ELASTIC_KERNELS }
namespace avx512 { LIKEWISE_ELASTIC_KERNELS }
}  // namespace likewise
