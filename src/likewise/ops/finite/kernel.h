#pragma once
#include "../problem.h"

#define LIKEWISE_FINITE_KERNELS                                                                                   \
    /* The first item of values (count, steps, channels) that holds NaN or an infinity in its length, or -1. */   \
    int64_t first_nonfinite(const void* values, const int64_t* lengths, int64_t count, int64_t steps,             \
                            int64_t channels, bool float64);

namespace likewise {
namespace baseline { LIKEWISE_FINITE_KERNELS }
namespace avx2 { LIKEWISE_FINITE_KERNELS }
namespace avx512 { LIKEWISE_FINITE_KERNELS }
}  // namespace likewise
