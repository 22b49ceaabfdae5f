// Whole items: Keogh's bounds of a block of queries with all items, then DTW in order of the bounds.
#pragma once
#include "../dtw/kernel.h"
#include "../lanes.h"
#include "bounds.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

struct Entry {
    float bound;
    int32_t place;  // in the order of the items
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

template <class T> class WholeSearch {
public:
    WholeSearch(const SearchProblem& problem, const int64_t* order, int64_t first, int64_t last)
        : problem_(problem), pairs_(problem.pairs), order_(order + first), count_(last - first), size_(pairs_.channels * problem.padded) {
        entries_.reserve(count_);
    }
    ~WholeSearch() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void run(int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; q += kQueries) {
            first_query_ = q;
            bound(min(int64_t(kQueries), end - q));
            for (int64_t b = 0; b < min(int64_t(kQueries), end - q); ++b) nearest(b);
        }
    }

private:
    static constexpr int kQueries = 16;
    const SearchProblem& problem_;
    const Problem& pairs_;
    const int64_t* order_;
    int64_t count_, size_, first_query_ = 0, counts_[kCounts] = {};
    bool alike_ = false;  // one length only
    Buffer<float> bounds_, planes_, upper_, lower_, scratch_;
    Buffer<Entry> entries_;
    Buffer<T> y_, suffix_;

    const T* query(int64_t q) const { return static_cast<const T*>(pairs_.x) + q * pairs_.x_steps * pairs_.channels; }
    bool bounded() const { return problem_.error < double(kInfinity<float>); }

    // Bounds of the queries' envelopes with every item, (queries, count).
    void bound(int64_t queries) {
        const int64_t channels = pairs_.channels, padded = problem_.padded;
        bounds_.reserve(kQueries * count_);
        planes_.reserve(kQueries * size_), upper_.reserve(kQueries * size_), lower_.reserve(kQueries * size_);
        alike_ = count_ > 0 && pairs_.y_lengths[order_[0]] == pairs_.y_lengths[order_[count_ - 1]];
        if (!bounded()) return fill(bounds_.get(), kQueries * count_, 0.0f);
        Buffer<float> plane(pairs_.x_steps);
        const int64_t together = max(int64_t(1), (int64_t(1) << 16) / size_);
        for (int64_t from = 0, to; from < count_; from = to) {
            const int64_t m = pairs_.y_lengths[order_[from]];
            for (to = from; to < count_ && pairs_.y_lengths[order_[to]] == m; ++to) {}
            for (int64_t b = 0; b < queries; ++b) enclose(b, m, plane.get());
            for (int64_t i = from; i < to; i += together)
                for (int64_t b = 0; b < queries; ++b)
                    for (int64_t k = i; k < min(i + together, to); ++k)
                        bounds_[b * count_ + k] = keogh(problem_.plane + order_[k] * size_, upper_.get() + b * size_,
                                                        lower_.get() + b * size_, channels, padded, pairs_.ground);
        }
    }
    // The envelope of a query for items of m steps; its ends are its own, since a path joins first with first, last with last.
    void enclose(int64_t b, int64_t m, float* plane) {
        const int64_t channels = pairs_.channels, padded = problem_.padded, n = pairs_.x_lengths[first_query_ + b];
        const int64_t left = reach_of(pairs_.window, n, m), right = reach_of(pairs_.window, m, n);
        for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = b * size_ + c * padded;
            for (int64_t i = 0; i < n; ++i) plane[i] = float(query(first_query_ + b)[i * channels + c]);
            slide<true>(plane, n, left, right, m, scratch_, upper_.get() + at);
            slide<false>(plane, n, left, right, m, scratch_, lower_.get() + at);
            upper_[at] = lower_[at] = plane[0];
            if (m > 1 || n == 1) upper_[at + m - 1] = lower_[at + m - 1] = plane[n - 1];
            if (m == 1) {  // one column for all rows: whatever they hold
                for (int64_t i = 0; i < n; ++i) upper_[at] = max(upper_[at], plane[i]), lower_[at] = min(lower_[at], plane[i]);
            }
            fill(upper_.get() + at + m, padded - m, kInfinity<float>);
            fill(lower_.get() + at + m, padded - m, -kInfinity<float>);
            for (int64_t i = 0; i < min(n, padded); ++i) planes_[at + i] = plane[i];
            for (int64_t i = n; i < padded; ++i) planes_[at + i] = 0;
        }
    }

    void nearest(int64_t b) {
        const int64_t q = first_query_ + b, n = pairs_.x_lengths[q], skip = problem_.skip ? problem_.skip[q] : -1;
        const float* bounds = bounds_.get() + b * count_;
        const Limit limit(problem_, n, pairs_.y_steps, problem_.error);
        Entry* entries = entries_.get();
        int64_t alive = 0, skipped = 0;
        float most = limit(problem_.matches->threshold(q));
        for (int64_t i = 0; i < count_; ++i) {
            entries[alive] = {bounds[i], int32_t(i)};
            skipped += order_[i] == skip;
            alive += bounds[i] <= most && order_[i] != skip;
        }
        counts_[kQueryEnvelope] += count_ - alive - skipped;
        // Without a threshold, the candidates of the least bounds give one.
        const int64_t wanted = problem_.matches->wanted(), seeds = min(alive, (wanted + W<T> - 1) / W<T> * W<T>);
        if (wanted > 0 && most == kInfinity<float>) {
            select(entries, alive, seeds);
            sort(entries, seeds);
            compare(b, limit, entries, seeds);
            entries += seeds, alive -= seeds;
            most = limit(problem_.matches->threshold(q));
        }
        int64_t left = 0, before = alive;
        for (int64_t i = 0; i < before; ++i) {
            if (!(entries[i].bound <= most)) continue;
            entries[left++] = entries[i];
        }
        counts_[kQueryEnvelope] += before - left;
        before = left;
        if (bounded() && most < kInfinity<float>) left = data_envelopes(b, most, entries, left);
        counts_[kDataEnvelope] += before - left;
        sort(entries, left);
        compare(b, limit, entries, left);
    }
    int64_t data_envelopes(int64_t b, float most, Entry* entries, int64_t count) {
        int64_t left = 0;
        const int64_t n = pairs_.x_lengths[first_query_ + b];
        for (int64_t i = 0; i < count; ++i) {
            const int64_t item = order_[entries[i].place];
            if (pairs_.y_lengths[item] == n)
                entries[i].bound = max(entries[i].bound, keogh(planes_.get() + b * size_, problem_.upper + item * size_,
                                                               problem_.lower + item * size_, pairs_.channels, problem_.padded, pairs_.ground));
            if (entries[i].bound <= most) entries[left++] = entries[i];
        }
        return left;
    }

    void compare(int64_t b, const Limit& limit, const Entry* entries, int64_t count) {
        const int64_t q = first_query_ + b, n = pairs_.x_lengths[q], channels = pairs_.channels;
        for (int64_t i = 0; i < count; i += W<T>) {
            const double threshold = problem_.matches->threshold(q);
            const float most = limit(threshold);
            if (!(entries[i].bound <= most)) {
                counts_[kQueryEnvelope] += count - i;
                return;
            }
            int64_t items[W<T>], m[W<T>], places[W<T>];
            const int64_t used = min(int64_t(W<T>), count - i);
            for (int l = 0; l < W<T>; ++l) places[l] = order_[entries[i + min(int64_t(l), used - 1)].place];
            for (int l = 0; l < W<T>; ++l) items[l] = places[l];
            const int64_t widest = lane_lengths<T>(pairs_.y_lengths, items, m);
            y_.reserve(widest * channels * W<T>);
            interleave(static_cast<const T*>(pairs_.y), pairs_.y_lengths, pairs_.y_steps, channels, items, widest, y_.get());
            const bool rest = alike_ && bounded() && most < kInfinity<float>;
            if (rest) suffixes(problem_, y_.get(), n, widest, upper_.get() + b * size_, lower_.get() + b * size_, problem_.padded, suffix_.reserve((n + 1) * W<T>));
            T values[W<T>];
            const int64_t rows = dtw_abandoning(pairs_, query(q), n, y_.get(), m, rest ? suffix_.get() : nullptr, most, values);
            Match found[W<T>];
            int64_t matches = 0;
            for (int64_t l = 0; l < used; ++l) {
                const T value = problem_.by_lengths ? values[l] / T(n + m[l]) : values[l];
                counts_[rows < n ? kAbandoned : kCompared] += 1;
                counts_[kCells] += rows * min(m[l], 2 * radius_of(pairs_.window, n, m[l]) + 1 + max(n - m[l], m[l] - n));
                if (double(value) <= threshold && rows == n) found[matches++] = {double(value), items[l], 0, m[l]};
            }
            if (matches) problem_.matches->add(q, found, matches);
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
