// Exact search under DTW: whole.h and turned.h for whole items, windows.h for every window of long series.
#include "kernel.h"

#include "turned.h"
#include "whole.h"
#include "windows.h"

namespace likewise {
namespace LIKEWISE_ISA {

void search_envelopes(const float* x, const int64_t* lengths, const int64_t* left, const int64_t* right, const int64_t* counts,
                      int64_t stride, int64_t to_stride, float* upper, float* lower, int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 8192;  // of a long series, so that all turns find it in the cache
    Buffer<float> scratch;
    for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < counts[i]; j += kPiece) {
            // x[from - left..] is all that the block sees.
            const int64_t from = max(int64_t(0), j - left[i]), count = min(kPiece, counts[i] - j), before = j - from;
            const int64_t n = min(lengths[i], j + count + right[i]) - from;
            // Element j of the block is element j + before of x[from..]: its window reaches `left` back, which is `before`
            // or is cut at the beginning.
            slide<true>(x + i * stride + from, n, left[i] - before, right[i] + before, count, scratch, upper + i * to_stride + j);
            slide<false>(x + i * stride + from, n, left[i] - before, right[i] + before, count, scratch, lower + i * to_stride + j);
        }
}

void search_means(const float* x, int64_t stride, int64_t to_stride, float* means, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) average(x + i * stride, min(stride / kSegment, to_stride), to_stride, means + i * to_stride);
}

void search_lay(const float* x, int64_t items, int64_t stride, int64_t size, float* to, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
        for (int part = 0; part < kBeside; part += kLanes) {
            const float* from[kLanes];
            for (int l = 0; l < kLanes; ++l) from[l] = x + min(i * kBeside + part + l, items - 1) * stride;
            lay_together<kBeside>(from, size, to + i * size * kBeside + part);
        }
}

void search_round(const float* x, int64_t channels, int64_t padded, double unit, int16_t* to, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
        for (int64_t t = 0; t < padded; ++t) round_frame(x + i * channels * padded + t, padded, float(1 / unit), to + (i * padded + t) * kLeads);
}

namespace {
template <class T> void normalize(const T* from, int64_t length, int64_t channels, T* to, int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w)
        for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = w * length * channels;
            const Moments moments(from + at + c, length, channels);
            for (int64_t i = c; i < length * channels; i += channels) to[at + i] = moments(from[at + i]);
        }
}
}  // namespace

void search_normalize(const void* from, bool float64, int64_t length, int64_t channels, void* to, int64_t begin, int64_t end) {
    if (float64) normalize(static_cast<const double*>(from), length, channels, static_cast<double*>(to), begin, end);
    else normalize(static_cast<const float*>(from), length, channels, static_cast<float*>(to), begin, end);
}

void search_whole(const SearchProblem& problem, const int64_t* order, int64_t first, int64_t last, int64_t begin, int64_t end) {
    if (problem.turned) TurnedSearch(problem, first, last).run(begin, end);
    else if (problem.pairs.float64) WholeSearch<double>(problem, order, first, last).run(begin, end);
    else WholeSearch<float>(problem, order, first, last).run(begin, end);
}

namespace {
// R(i, j) of one column after another, and where its path starts; ties prefer the diagonal, then the row above.
template <class T, bool kEuclidean>
void stretches(const T* x, int64_t n, int64_t channels, const T* y, int64_t count, int64_t position, T* column, int64_t* starts,
               T* values, int64_t* found) {
    for (int64_t j = 0; j < count; ++j) {
        const T* y_j = y + j * channels;
        T diagonal = 0, up = 0;
        int64_t diagonal_start = position + j, up_start = position + j;
        for (int64_t i = 0; i < n; ++i) {
            T cost = 0;
            for (int64_t c = 0; c < channels; ++c) cost += (y_j[c] - x[i * channels + c]) * (y_j[c] - x[i * channels + c]);
            if (kEuclidean) cost = root(cost);
            const T left = column[i];
            const int64_t left_start = starts[i];
            T best = diagonal;
            int64_t start = diagonal_start;
            if (up < best) best = up, start = up_start;
            if (left < best) best = left, start = left_start;
            column[i] = up = best + cost;
            starts[i] = up_start = start;
            diagonal = left, diagonal_start = left_start;
        }
        values[j] = column[n - 1];
        found[j] = starts[n - 1];
    }
}
}  // namespace

void search_stretches(const Problem& problem, int64_t query, const void* samples, int64_t count, int64_t position, void* column,
                      int64_t* starts, void* values, int64_t* found) {
    const int64_t n = problem.x_lengths[query], channels = problem.channels, at = query * problem.x_steps * channels;
    const auto run = [&](auto type) {
        using T = decltype(type);
        const T *x = static_cast<const T*>(problem.x) + at, *y = static_cast<const T*>(samples);
        T *to = static_cast<T*>(values), *state = static_cast<T*>(column);
        if (problem.ground == Ground::euclidean) stretches<T, true>(x, n, channels, y, count, position, state, starts, to, found);
        else stretches<T, false>(x, n, channels, y, count, position, state, starts, to, found);
    };
    if (problem.float64) run(double());
    else run(float());
}

namespace {
template <class T> void bounds(const SearchProblem& problem, int64_t item, int64_t first, int64_t last, int64_t stride) {
    WindowBounds<T> windows(problem, item, first, last);
    for (int64_t q = 0; q < problem.pairs.rows; ++q) windows.query(q, stride);
}
}  // namespace

void search_bounds(const SearchProblem& problem, int64_t item, int64_t first, int64_t last, int64_t stride) {
    if (problem.pairs.float64) bounds<double>(problem, item, first, last, stride);
    else bounds<float>(problem, item, first, last, stride);
}

void search_compare(const SearchProblem& problem, int64_t query, int64_t begin, int64_t end) {
    if (problem.pairs.float64) WindowCompare<double>(problem).run(query, begin, end);
    else WindowCompare<float>(problem).run(query, begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
