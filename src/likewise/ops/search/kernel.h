// Exact search under DTW: bounds first, in lanes, then DTW of what they leave, abandoned as early as possible.
#pragma once
#include "../problem.h"
#include "matches.h"

namespace likewise {

// Numbers of candidates by what settled them, and of cells, added up by all threads. kFirst: the ends of windows, or the
// segments of whole items. kLeading: DTW of the leading channels.
enum Count : int { kFirst, kQueryEnvelope, kDataEnvelope, kLeading, kAbandoned, kCompared, kCells, kCounts };

struct SearchProblem {
    // x: the queries; y: the items. All that is compared has finite values.
    Problem pairs;
    // The items as float32, channel by channel, and their envelopes: (items, channels, padded). Whole items: the first and
    // the last step of an envelope are the item's own. Behind the end: zeros, and an envelope that holds everything.
    const float *plane = nullptr, *upper = nullptr, *lower = nullptr;
    int64_t padded = 0;
    // Whole items: means of these over `segment` steps, (items, channels, coarse), and how far those of items and queries
    // are off, taken together. With 1 step a segment, they are the plane and its envelopes.
    const float *means = nullptr, *means_upper = nullptr, *means_lower = nullptr;
    int64_t coarse = 0, segment = 1;
    double means_error = 0;
    // Whole items whose frames are turned, if all queries have the length of the items (turned.h): the queries turned like
    // them, channel by channel, (queries, channels, steps). None of the above is there but for its sizes.
    const float* turned = nullptr;
    // Of these items, side by side in blocks (search_lay): means and those of the envelopes, (channels, coarse) of each; the greatest and the least value of each segment of the envelopes of the leading channels, (leads, coarse).
    // leads: these channels as whole numbers of a unit, (items, padded, leads).
    const float *laid_means = nullptr, *laid_upper = nullptr, *laid_lower = nullptr, *highest = nullptr, *lowest = nullptr;
    const int16_t* leads = nullptr;
    double unit = 0;
    // Windows: their length, the queries' points in the order in which they are looked at (queries, window * channels):
    // step and channel, the query's envelope there, and the query there; and the envelope in its own order,
    // (queries, channels, window).
    int64_t window = 0;
    const int32_t *steps = nullptr, *channels = nullptr;
    const float *ordered_upper = nullptr, *ordered_lower = nullptr, *ordered_query = nullptr;
    const float *query_upper = nullptr, *query_lower = nullptr;
    bool normalize = false;
    // Bounds are off by at most so much a frame, beside rounding. Infinite: there are no bounds.
    double error = 0;
    bool by_lengths = false;           // values are divided by the sum of the lengths
    const int64_t* skip = nullptr;     // the item that each query must not find, -1 for none
    const int64_t* skip_start = nullptr;  // and of that item only the windows that start less than skip_radius from here
    int64_t skip_radius = 0;
    Matches* matches = nullptr;
    Candidates* candidates = nullptr;
    int64_t* counts = nullptr;
};

#define LIKEWISE_SEARCH_KERNELS                                                                                      \
    /* Greatest and least of x[j - left..j + right] for j = 0..count - 1, of each of the series (series, stride). */ \
    void search_envelopes(const float* x, const int64_t* lengths, const int64_t* left, const int64_t* right,         \
                          const int64_t* counts, int64_t stride, int64_t to_stride, float* upper, float* lower,      \
                          int64_t begin, int64_t end);                                                               \
    /* Means over every 8 steps of the series (series, stride), as many as fit (series, to_stride). */               \
    void search_means(const float* x, int64_t stride, int64_t to_stride, float* means, int64_t begin, int64_t end);  \
    /* The first `size` numbers of items, `stride` apart, side by side: to (blocks, size, 16) for the blocks of 16 items     \
       begin..end - 1, the last item again where there are no more. */                                                \
    void search_lay(const float* x, int64_t items, int64_t stride, int64_t size, float* to, int64_t begin, int64_t end); \
    /* The first four channels of items (items, channels, padded) as whole numbers of a unit: to (items, padded, 4). */ \
    void search_round(const float* x, int64_t channels, int64_t padded, double unit, int16_t* to, int64_t begin, int64_t end); \
    /* Windows (count, length, channels), normalised as the search does it. */                                                                              \
    void search_normalize(const void* from, bool float64, int64_t length, int64_t channels, void* to, int64_t begin, \
                          int64_t end);                                                                              \
    /* Whole items: the nearest of the queries among the items first..last - 1 of `order`. */                         \
    void search_whole(const SearchProblem&, const int64_t* order, int64_t first, int64_t last, int64_t begin,        \
                      int64_t end);                                                                                  \
    /* Windows of an item that start at first..last - 1: those that the bounds leave go to the candidates. With a    \
       positive stride, only one block of lanes in so many, and the one of each with the least bound. */             \
    void search_bounds(const SearchProblem&, int64_t item, int64_t first, int64_t last, int64_t stride);             \
    /* Open ends, sample by sample: for each of `count` samples, the value of the best stretch that ends there and where it  \
       starts. column and starts (steps of the query) hold the last column; infinite before the first sample. */    \
    void search_stretches(const Problem&, int64_t query, const void* samples, int64_t count, int64_t position,       \
                          void* column, int64_t* starts, void* values, int64_t* found);                              \
    /* Candidates begin..end - 1 of a query, in their order. */                                                      \
    void search_compare(const SearchProblem&, int64_t query, int64_t begin, int64_t end);

namespace baseline { LIKEWISE_SEARCH_KERNELS }
namespace avx2 { LIKEWISE_SEARCH_KERNELS }
namespace avx512 { LIKEWISE_SEARCH_KERNELS }

}  // namespace likewise
