// DTW on the CPU. Each function works on a range of pairs (or lane blocks) on the calling thread.
#pragma once
#include "../problem.h"

namespace likewise {

// The groups of rows of some pairs, for threads that share them: pair p has the groups first[p], ..., first[p + 1] - 1.
struct SharedGroups {
    const int64_t *pairs, *first;
    int64_t count;                 // of pairs
    int64_t *next, *failed, *done;  // the next group to take, whether a thread gave up, and how far each group is
    void* rows;                    // the last rows of as many groups as threads, and one more: (kept, row size)
    int64_t kept;
};

// DTW under rotations of x (rows, x_steps, channels) and y (columns, y_steps, y_channels), under the squared cost.
struct RotationProblem {
    Problem problem;  // channels are those of x
    int64_t y_channels = 0, max_iter = 0;
    bool bias = false;
    const void* start = nullptr;     // the first rotation (channels, y_channels)
    const int64_t* order = nullptr;  // pairs (count,), similar lengths side by side
    int64_t count = 0;
    int64_t* next = nullptr;         // the place in `order` of the next pair to take, which threads share
    void* rotations = nullptr;       // (pairs, channels, y_channels)
    void* offsets = nullptr;         // (pairs, channels), zero at first
    void* values = nullptr;          // (pairs,)
    bool* converged = nullptr;       // (pairs,), false at first
};

// What calls of dtw_abandoning and dtw_advance keep for the next, of the same problem on the same thread: allocating it takes
// as long as some rows.
struct DtwKept {
    void* block = nullptr;
    void (*destroy)(void*) = nullptr;
    DtwKept() = default;
    DtwKept(const DtwKept&) = delete;
    __attribute__((always_inline)) ~DtwKept() {
        if (block) destroy(block);
    }
};

}  // namespace likewise

#define LIKEWISE_DTW_KERNELS                                                                                      \
    /* Pairs that one vector holds. */                                                                            \
    int64_t dtw_lanes(bool float64);                                                                              \
    /* Values of pairs order[begin * lanes], ..., order[end * lanes - 1]: lanes are pairs. */                     \
    void dtw_blocks(const Problem&, const int64_t* order, int64_t count, void* values, int64_t begin, int64_t end); \
    /* Values (rows, columns) of x's items row_order[first..last-1] against the block-th lanes of column_order. */ \
    void dtw_tile(const Problem&, const int64_t* row_order, const int64_t* column_order, bool symmetric,          \
                  void* values, int64_t block, int64_t first, int64_t last);                                      \
    /* Values of one x (steps, channels) against lanes of y (widest, channels, lanes), of m[l] steps. The computation stops,  \
       with infinite values, once every lane's least cell of a row plus its suffix exceeds the limit. suffix (steps + 1,     \
       lanes), or null: a lower bound of what the remaining rows cost. Returns the number of rows that were computed. */     \
    int64_t dtw_abandoning(const Problem&, const void* x, int64_t steps, const void* y, const int64_t* m,         \
                           const void* suffix, double limit, void* values, DtwKept&);                           \
    /* The same, of rows from..to - 1 only, for lanes of equal lengths. row (y_steps, lanes) holds row from - 1, if from    \
       is positive, and receives row to - 1; values are set when to is steps. */                                   \
    int64_t dtw_advance(const Problem&, const void* x, int64_t steps, const void* y, const int64_t* m,            \
                        const void* suffix, double limit, int64_t from, int64_t to, void* row, void* values,      \
                        DtwKept&);                                                                              \
    /* Rows after which an alignment is best left and gone on with. */                                            \
    int64_t dtw_strip(bool float64);                                                                              \
    /* Values of pairs order[begin..end-1], one at a time: for few pairs, many channels and given costs. */       \
    void dtw_values(const Problem&, const int64_t* order, void* values, int64_t begin, int64_t end);              \
    /* Rows of a group, which such a pair is cut into; and the same values, by several threads that share groups. */ \
    int64_t dtw_group(bool float64);                                                                              \
    void dtw_shared_values(const Problem&, const SharedGroups&, void* values);                                    \
    /* Optimal paths (pairs, x_steps + y_steps - 1, 2), may be null, and their numbers of steps (pairs,). */      \
    void dtw_paths(const Problem&, int64_t* paths, int64_t* steps, int64_t begin, int64_t end);                   \
    /* Adds weights[p] * d value[p]: to x_grad and y_grad, or to x_grad as the gradient of given costs. */        \
    void dtw_gradients(const Problem&, const void* weights, void* x_grad, void* y_grad, int64_t begin, int64_t end); \
    /* What the frames of x are matched with, over pairs of all pairs: adds weights[column] times the frames of y to   \
       sums (rows, x_steps, channels), the weights to counts (rows, x_steps); values (columns,). Blocks of lanes. */     \
    void dtw_matched(const Problem&, const int64_t* order, int64_t count, const double* weights, double* sums,        \
                     double* counts, void* values, int64_t begin, int64_t end);                                       \
    /* Works until no pair is left. */                                                                            \
    void dtw_rotations(const RotationProblem&);

namespace likewise {
namespace baseline { LIKEWISE_DTW_KERNELS }
namespace avx2 { LIKEWISE_DTW_KERNELS }
namespace avx512 { LIKEWISE_DTW_KERNELS }
}  // namespace likewise
