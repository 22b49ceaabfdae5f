// Items that wait for DTW, in the order of their bounds.
#pragma once
#include "../simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

struct Entry {
    float bound;
    int32_t place;  // in the order of the items
    int32_t slot;   // of what its bounds know of the rows that follow
};

INLINE void exchange(Entry& a, Entry& b) {
    const Entry before = a;
    a = b, b = before;
}

// Splits entries into those before the returned place and the rest, whose bounds are not less; both are shorter than all.
inline int64_t split(Entry* entries, int64_t count) {
    const float a = entries[0].bound, b = entries[count / 2].bound, c = entries[count - 1].bound;
    const float pivot = max(min(a, b), min(max(a, b), c));
    int64_t i = -1, j = count;
    while (true) {
        while (entries[++i].bound < pivot) {}
        while (entries[--j].bound > pivot) {}
        if (i >= j) return max(int64_t(1), min(count - 1, j + 1));
        exchange(entries[i], entries[j]);
    }
}
inline void sort(Entry* entries, int64_t count) {
    while (count > 12) {
        const int64_t middle = split(entries, count);
        sort(entries, middle);
        entries += middle, count -= middle;
    }
    for (int64_t i = 1; i < count; ++i)
        for (int64_t j = i; j > 0 && entries[j].bound < entries[j - 1].bound; --j) exchange(entries[j], entries[j - 1]);
}
// Brings the `least` entries of the least bounds to the front.
inline void select(Entry* entries, int64_t count, int64_t least) {
    while (least > 0 && least < count) {
        const int64_t middle = split(entries, count);
        if (middle >= least) count = middle;
        if (middle <= least) entries += middle, count -= middle, least -= middle;
    }
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
