// GDTW on the CPU. Each function works on a range of pairs on the calling thread, in double precision throughout.
#pragma once
#include <cstdint>

namespace likewise {

// Pairs of padded sequences: y is warped to meet x at x's times, the knots. Filled in by ops/gdtw/__init__.py.
struct WarpProblem {
    const void* x = nullptr;  // (count, x_steps, channels), float or double
    const void* y = nullptr;  // (count, y_steps, channels)
    const int64_t* x_lengths = nullptr;
    const int64_t* y_lengths = nullptr;
    const double* x_times = nullptr;    // (count, x_steps)
    const double* y_times = nullptr;    // (count, y_steps)
    const double* reg = nullptr;        // (count,)
    const double* lower = nullptr;      // (count, x_steps), bounds of the warp
    const double* upper = nullptr;
    const double* slope_min = nullptr;  // (count, x_steps - 1), bounds of its slope
    const double* slope_max = nullptr;
    int64_t count = 0, x_steps = 0, y_steps = 0, channels = 0;
    bool float64 = false, subsequence = false;
    double huber = 0;         // infinite: squared loss
    int64_t nodes = 0;        // values of the grid for each knot; 0: by default
    int64_t refinements = 0;  // passes after the first
};

// Errors of a pair; ops/gdtw/__init__.py has their messages.
enum class Fault : int64_t {
    none = 0, short_x, short_y, value_x, value_y, times_x, times_y, reg, slope, band, no_warp, not_settled, overflow
};

// The constraint that holds a knot, and the slope after it. Two numbers a knot: its segment of y, and one of the first four plus one
// of the last three.
enum Hold : int32_t { kFree = 0, kConstant = 1, kLower = 2, kUpper = 3, kUntied = 0, kTiedMin = 4, kTiedMax = 8 };

// Memory for the gradients of a loss, which are added to its contents.
struct WarpGradients {
    const double* value = nullptr;  // (count,), of the loss with respect to the values
    const double* warp = nullptr;   // (count, x_steps), and to the warps
    void* x = nullptr;              // as x
    void* y = nullptr;
    double* reg = nullptr;          // as in WarpProblem
    double* lower = nullptr;
    double* upper = nullptr;
    double* slope_min = nullptr;
    double* slope_max = nullptr;
};

#define LIKEWISE_GDTW_KERNELS                                                                                     \
    /* Values (count,), warps (count, x_steps), holds (count, x_steps, 2), and faults (count, 2): what and where. */ \
    void gdtw_solve(const WarpProblem&, double* values, double* warps, int32_t* holds, int64_t* faults,           \
                    int64_t begin, int64_t end);                                                                  \
    /* The same from warps that another search has found. */                                                      \
    void gdtw_polish(const WarpProblem&, double* values, double* warps, int32_t* holds, int64_t* faults,          \
                     int64_t begin, int64_t end);                                                                 \
    /* The gradient of a loss of values and warps. */                                                             \
    void gdtw_gradients(const WarpProblem&, const double* warps, const int32_t* holds, const WarpGradients&,      \
                        int64_t begin, int64_t end);

namespace baseline { LIKEWISE_GDTW_KERNELS }
namespace avx2 { LIKEWISE_GDTW_KERNELS }
namespace avx512 { LIKEWISE_GDTW_KERNELS }
}  // namespace likewise
