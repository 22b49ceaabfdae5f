// The position of the first number that is not finite: all bits of its exponent are set.
#include "kernel.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class Bits>
int64_t first_item(const Bits* values, const int64_t* lengths, int64_t count, int64_t steps, int64_t channels, Bits exponent) {
    for (int64_t b = 0; b < count; ++b) {
        const Bits* item = values + b * steps * channels;
        Bits found = 0;
        for (int64_t t = 0; t < lengths[b] * channels; ++t) found |= (item[t] & exponent) == exponent;
        if (found) return b;
    }
    return -1;
}

}  // namespace

int64_t first_nonfinite(const void* values, const int64_t* lengths, int64_t count, int64_t steps, int64_t channels, bool float64) {
    if (float64)
        return first_item(static_cast<const uint64_t*>(values), lengths, count, steps, channels, uint64_t(0x7ff0000000000000));
    return first_item(static_cast<const uint32_t*>(values), lengths, count, steps, channels, uint32_t(0x7f800000));
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
