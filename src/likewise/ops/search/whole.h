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
        for (first_query_ = begin; first_query_ < end; first_query_ += kQueries) {
            queries_ = min(int64_t(kQueries), end - first_query_);
            bounds_.reserve(kQueries * count_);
            planes_.reserve(kQueries * size_), upper_.reserve(kQueries * size_), lower_.reserve(kQueries * size_);
            // Where bounds settle little of what the first queries are compared with, the others do without.
            const int64_t some = queries_ > 1 ? max(int64_t(1), queries_ / 8) : 0;
            bool pays = some == 0;
            bound(0, some);
            for (int64_t b = 0; b < some; ++b) pays |= !is_dense(b);
            if (pays) bound(some, queries_);
            for (int64_t b = some; b < queries_ && !pays; ++b) {
                fill(bounds_.get() + b * count_, count_, 0.0f);
                leave_out(b);
            }
            if (!pays) {
                for (int64_t b = 0; b < queries_; ++b) dense_[b] = true;
                compare_in_order();
                continue;
            }
            bound_by_data();
            bool dense = false;
            for (int64_t b = 0; b < queries_; ++b) dense |= dense_[b] = is_dense(b);
            if (dense) compare_in_order();
            for (int64_t b = 0; b < queries_; ++b)
                if (!dense_[b]) compare_by_bound(b);
        }
    }

private:
    static constexpr int kQueries = 16;
    const SearchProblem& problem_;
    const Problem& pairs_;
    const int64_t* order_;
    int64_t count_, size_, first_query_ = 0, queries_ = 0, counts_[kCounts] = {};
    bool alike_ = false;  // one length only
    bool dense_[kQueries] = {};
    Buffer<float> bounds_, planes_, upper_, lower_, scratch_;  // bounds (queries, count); NaN: settled
    Buffer<Entry> entries_;
    Buffer<T> y_, suffix_;

    const T* query(int64_t b) const { return static_cast<const T*>(pairs_.x) + (first_query_ + b) * pairs_.x_steps * pairs_.channels; }
    int64_t steps(int64_t b) const { return pairs_.x_lengths[first_query_ + b]; }
    bool bounded() const { return problem_.error < double(kInfinity<float>); }
    Limit limit(int64_t b) const { return Limit(problem_, steps(b), pairs_.y_steps, problem_.error); }
    double threshold(int64_t b) const { return problem_.matches->threshold(first_query_ + b); }
    // Items that stay in the cache while all queries of the block are compared with them.
    int64_t together() const { return max(int64_t(1), (int64_t(1) << 15) / size_); }

    // Bounds of the envelopes of some queries with every item, and their thresholds.
    void bound(int64_t first, int64_t last) {
        const int64_t channels = pairs_.channels, padded = problem_.padded;
        alike_ = count_ > 0 && pairs_.y_lengths[order_[0]] == pairs_.y_lengths[order_[count_ - 1]];
        if (!bounded()) fill(bounds_.get() + first * count_, (last - first) * count_, 0.0f);
        Buffer<float> plane(pairs_.x_steps);
        for (int64_t from = bounded() ? 0 : count_, to; from < count_; from = to) {
            const int64_t m = pairs_.y_lengths[order_[from]];
            for (to = from; to < count_ && pairs_.y_lengths[order_[to]] == m; ++to) {}
            for (int64_t b = first; b < last; ++b) enclose(b, m, plane.get());
            for (int64_t i = from; i < to; i += together())
                for (int64_t b = first; b < last; ++b)
                    for (int64_t k = i; k < min(i + together(), to); ++k)
                        bounds_[b * count_ + k] = keogh(problem_.plane + order_[k] * size_, upper_.get() + b * size_,
                                                        lower_.get() + b * size_, channels, padded, pairs_.ground);
        }
        for (int64_t b = first; b < last; ++b) leave_out(b), seed(b);
    }
    void leave_out(int64_t b) {
        const int64_t skip = problem_.skip ? problem_.skip[first_query_ + b] : -1;
        for (int64_t i = 0; skip >= 0 && i < count_; ++i)
            if (order_[i] == skip) bounds_[b * count_ + i] = __builtin_nanf("");
    }
    // The envelope of a query for items of m steps; its ends are its own, since a path joins first with first, last with last.
    void enclose(int64_t b, int64_t m, float* plane) {
        const int64_t channels = pairs_.channels, padded = problem_.padded, n = steps(b);
        const int64_t left = reach_of(pairs_.window, n, m), right = reach_of(pairs_.window, m, n);
        for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = b * size_ + c * padded;
            for (int64_t i = 0; i < n; ++i) plane[i] = float(query(b)[i * channels + c]);
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

    // Without a threshold, the candidates of the least bounds give one.
    void seed(int64_t b) {
        const int64_t wanted = problem_.matches->wanted();
        float* bounds = bounds_.get() + b * count_;
        if (wanted == 0 || threshold(b) < double(kInfinity<float>)) return;
        int64_t alive = 0;
        for (int64_t i = 0; i < count_; ++i) {
            entries_[alive] = {bounds[i], int32_t(i)};
            alive += bounds[i] == bounds[i];
        }
        const int64_t seeds = min(alive, (wanted + W<T> - 1) / W<T> * W<T>);
        select(entries_.get(), alive, seeds);
        sort(entries_.get(), seeds);
        compare(b, entries_.get(), seeds);
        for (int64_t i = 0; i < seeds; ++i) bounds[entries_[i].place] = __builtin_nanf("");
    }
    // Bounds of the items' envelopes with the queries, of what is left. They pay if they settle a tenth of it.
    void bound_by_data() {
        if (!bounded()) return;
        int64_t seen[kQueries] = {}, settled[kQueries] = {};
        float most[kQueries];
        for (int64_t b = 0; b < queries_; ++b) most[b] = limit(b)(threshold(b));
        for (int64_t i = 0; i < count_; i += together())
            for (int64_t b = 0; b < queries_; ++b) {
                float* bounds = bounds_.get() + b * count_;
                if (most[b] == kInfinity<float> || (seen[b] > 128 && settled[b] * 10 < seen[b])) continue;
                for (int64_t k = i; k < min(i + together(), count_); ++k) {
                    if (!(bounds[k] <= most[b])) continue;
                    const int64_t item = order_[k];
                    if (pairs_.y_lengths[item] != steps(b)) continue;
                    const float other = keogh(planes_.get() + b * size_, problem_.upper + item * size_, problem_.lower + item * size_,
                                              pairs_.channels, problem_.padded, pairs_.ground);
                    bounds[k] = max(bounds[k], other);
                    ++seen[b], settled[b] += !(other <= most[b]);
                }
            }
        for (int64_t b = 0; b < queries_; ++b) counts_[kDataEnvelope] += settled[b], counts_[kQueryEnvelope] -= settled[b];
    }

    // Whether so many candidates are left that they are better compared block by block, as they lie.
    bool is_dense(int64_t b) const {
        const float most = limit(b)(threshold(b)), *bounds = bounds_.get() + b * count_;
        int64_t left = 0;
        for (int64_t i = 0; i < count_; ++i) left += bounds[i] <= most;
        return left > 3 * count_ / 5;
    }
    void compare_in_order() {
        for (int64_t i = 0; i < count_; i += W<T>) {
            const int64_t used = min(int64_t(W<T>), count_ - i);
            bool ready = false;
            int64_t items[W<T>], m[W<T>];
            for (int64_t b = 0; b < queries_; ++b) {
                if (!dense_[b]) continue;
                const float *bounds = bounds_.get() + b * count_ + i, most = limit(b)(threshold(b));
                int64_t left = 0;
                for (int64_t l = 0; l < used; ++l) {
                    left += bounds[l] <= most;
                    counts_[kQueryEnvelope] += bounds[l] > most;
                }
                if (left == 0) continue;
                if (!ready) lay_out(items, m, [&](int64_t l) { return order_[i + min(l, used - 1)]; });
                ready = true;
                run_lanes(b, items, m, used, most, false, [&](int64_t l) { return bounds[l] <= most; });
            }
        }
    }
    void compare_by_bound(int64_t b) {
        const float *bounds = bounds_.get() + b * count_, most = limit(b)(threshold(b));
        int64_t left = 0, settled = 0;
        for (int64_t i = 0; i < count_; ++i) {
            settled += bounds[i] > most;
            if (bounds[i] <= most) entries_[left++] = {bounds[i], int32_t(i)};
        }
        counts_[kQueryEnvelope] += settled;
        sort(entries_.get(), left);
        compare(b, entries_.get(), left);
    }

    void compare(int64_t b, const Entry* entries, int64_t count) {
        for (int64_t i = 0; i < count; i += W<T>) {
            const float most = limit(b)(threshold(b));
            if (!(entries[i].bound <= most)) {
                counts_[kQueryEnvelope] += count - i;
                return;
            }
            const int64_t used = min(int64_t(W<T>), count - i);
            int64_t items[W<T>], m[W<T>];
            lay_out(items, m, [&](int64_t l) { return order_[entries[i + min(l, used - 1)].place]; });
            run_lanes(b, items, m, used, most, true, [](int64_t) { return true; });
        }
    }
    template <class F> void lay_out(int64_t* items, int64_t* m, F&& item) {
        for (int l = 0; l < W<T>; ++l) items[l] = item(l);
        const int64_t widest = lane_lengths<T>(pairs_.y_lengths, items, m);
        y_.reserve(widest * pairs_.channels * W<T>);
        interleave(static_cast<const T*>(pairs_.y), pairs_.y_lengths, pairs_.y_steps, pairs_.channels, items, widest, y_.get());
    }
    // DTW of a query with the items that are laid out; those that are wanted may become matches.
    template <class F>
    void run_lanes(int64_t b, const int64_t* items, const int64_t* m, int64_t used, float most, bool foresee, F&& is_wanted) {
        const int64_t n = steps(b);
        const double before = threshold(b);
        const bool rest = foresee && alike_ && bounded() && most < kInfinity<float>;
        if (rest)
            suffixes(problem_, y_.get(), n, m[0], upper_.get() + b * size_, lower_.get() + b * size_, problem_.padded,
                     suffix_.reserve((n + 1) * W<T>));
        T values[W<T>];
        const int64_t rows = dtw_abandoning(pairs_, query(b), n, y_.get(), m, rest ? suffix_.get() : nullptr, most, values);
        Match found[W<T>];
        int64_t matches = 0;
        for (int64_t l = 0; l < used; ++l) {
            const T value = problem_.by_lengths ? values[l] / T(n + m[l]) : values[l];
            counts_[kCells] += rows * min(m[l], 2 * radius_of(pairs_.window, n, m[l]) + 1 + max(n - m[l], m[l] - n));
            if (!is_wanted(l)) continue;
            counts_[rows < n ? kAbandoned : kCompared] += 1;
            if (double(value) <= before && rows == n) found[matches++] = {double(value), items[l], 0, m[l]};
        }
        if (matches) problem_.matches->add(first_query_ + b, found, matches);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
