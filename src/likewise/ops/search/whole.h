// Whole items. Means of segments against the query's envelope settle most; of what they leave, Keogh's two bounds settle
// some more; DTW compares the rest in order of the bounds. The nearest by Euclidean distance of the means come before all
// others, for a threshold.
#pragma once
#include "../dtw/kernel.h"
#include "../lanes.h"
#include "bounds.h"
#include "entries.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> class WholeSearch {
public:
    WholeSearch(const SearchProblem& problem, const int64_t* order, int64_t first, int64_t last)
        : problem_(problem), pairs_(problem.pairs), order_(order + first), count_(last - first), size_(pairs_.channels * problem.padded),
          coarse_(pairs_.channels * problem.coarse), blocks_(problem.padded / kBlock) {
        for (int64_t i = 1; i < count_; ++i) lengths_ += pairs_.y_lengths[order_[i]] != pairs_.y_lengths[order_[i - 1]];
        alike_ = lengths_ == 1;
        most_held_ = max(int64_t(128), min(min(int64_t(4096), count_), (int64_t(1) << 17) / (blocks_ + 1)));
        const int64_t longest = pairs_.y_steps, strip = dtw_strip(pairs_.float64);
        state_width_ = 2 * radius_of(pairs_.window, longest, longest) + 1;
        if (alike_ && pairs_.window.kind != WindowKind::none && 2 * state_width_ <= longest && longest >= 4 * strip)
            stage_ = strip * max(int64_t(1), (state_width_ / 2 + strip / 2) / strip);
    }
    ~WholeSearch() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void run(int64_t begin, int64_t end) {
        for (first_query_ = begin; first_query_ < end; first_query_ += kQueries) {
            queries_ = min(int64_t(kQueries), end - first_query_);
            reserve();
            bool pay = false;
            for (int64_t b = 0; b < queries_; ++b) pay |= pays(b);
            pay &= count_ > seeds() || has_thresholds();
            for (int64_t b = 0; b < queries_; ++b) {
                dense_[b] = pay ? kNone : 0, held_[b] = 0;
                seeded_[b] = problem_.matches->wanted() == 0 || threshold(b) < double(kInfinity<float>);
            }
            if (pay && sample()) {
                rough(0, queries_, 1);
                for (int64_t b = 0; b < queries_; ++b)
                    if (!seeded_[b]) seed(b, 1);
                refine();
            }
            compare_in_order();
        }
    }

private:
    static constexpr int kQueries = 16;
    static constexpr int64_t kNone = int64_t(1) << 62, kSample = 128, kFewest = 4;
    const SearchProblem& problem_;
    const Problem& pairs_;
    const int64_t* order_;
    int64_t count_, size_, coarse_, blocks_, most_held_, first_query_ = 0, queries_ = 0, counts_[kCounts] = {};
    int64_t lengths_ = 1;  // that there are
    bool alike_;           // one only
    bool seeded_[kQueries];
    int64_t dense_[kQueries], held_[kQueries];  // from which place on bounds do not pay; entries that wait for DTW
    // Bounds, and squared distances of means, (queries, count): NaN, settled. Planes and envelopes of the queries; their means.
    Buffer<float> bounds_, distances_, planes_, upper_, lower_, mean_, mean_upper_, mean_lower_, rest_, scratch_, plane_;
    Buffer<Entry> entries_, seeds_;
    DtwKept kept_;
    Buffer<T> y_, suffix_, row_, state_;
    int64_t stage_ = 0, state_width_ = 0;  // rows of a stage, 0: no stages; and numbers that go on from one to the next

    const T* query(int64_t b) const { return static_cast<const T*>(pairs_.x) + (first_query_ + b) * pairs_.x_steps * pairs_.channels; }
    int64_t steps(int64_t b) const { return pairs_.x_lengths[first_query_ + b]; }
    // Whether there are bounds, and DTW takes longer than they do.
    bool pays(int64_t b) const {
        const int64_t n = steps(b), m = pairs_.y_steps;
        const int64_t width = min(m, 2 * radius_of(pairs_.window, n, m) + 1);
        if (!(problem_.error < double(kInfinity<float>)) || n * width * pairs_.channels < 64) return false;
        // A cell of DTW takes two operations, a step of a bound five if there are no means. An envelope for each length takes a
        // hundred; what bounds leave then is of all lengths, and laid out for each query; in order, lanes are of one.
        if (alike_) return problem_.segment > 1 || 2 * width >= 2 * 5;
        return 2 * width * count_ >= min(pairs_.channels, int64_t(4)) * (5 * count_ + 100 * lengths_);
    }
    // How many items are compared for a threshold: bounds rule out none of them.
    int64_t seeds() const { return (problem_.matches->wanted() + W<T> - 1) / W<T> * W<T>; }
    bool has_thresholds() const {
        bool all = true;
        for (int64_t b = 0; b < queries_; ++b) all &= threshold(b) < double(kInfinity<float>);
        return all;
    }
    Limit limit(int64_t b, double more = 0) const { return Limit(problem_, steps(b), pairs_.y_steps, problem_.error + more); }
    double threshold(int64_t b) const { return problem_.matches->threshold(first_query_ + b); }
    float most(int64_t b) const { return limit(b)(threshold(b)); }
    float roughly_most(int64_t b) const { return limit(b, problem_.means_error)(threshold(b)); }
    // Items that stay in the cache while all queries of the block are compared with them.
    static int64_t together(int64_t size) { return max(int64_t(1), (int64_t(1) << 15) / size); }

    void reserve() {
        bounds_.reserve(kQueries * count_), distances_.reserve(kQueries * count_), seeds_.reserve(count_);
        for (auto* buffer : {&planes_, &upper_, &lower_}) buffer->reserve(kQueries * size_);
        for (auto* buffer : {&mean_, &mean_upper_, &mean_lower_}) buffer->reserve(kQueries * coarse_);
        if (stage_ > 0) state_.reserve(most_held_ * state_width_);
        entries_.reserve(kQueries * most_held_), rest_.reserve(kQueries * most_held_ * (blocks_ + 1));
        fill(bounds_.get(), queries_ * count_, 0.0f);
        for (int64_t b = 0; b < queries_; ++b) {
            const int64_t skip = problem_.skip ? problem_.skip[first_query_ + b] : -1;
            for (int64_t i = 0; skip >= 0 && i < count_; ++i)
                if (order_[i] == skip) bounds_[b * count_ + i] = __builtin_nanf("");
        }
    }

    // Whether bounds can pay. If they leave nearly all of a few items to both the first and the last query, although the
    // nearest of those items gives the threshold, they do not. That threshold is high: the answer is no only where it is
    // clear, or where bounds cost about as much as DTW.
    bool sample() {
        const int64_t apart = max(int64_t(1), count_ / kSample);
        if (problem_.matches->wanted() == 0) return true;
        for (int64_t b = 0; b < queries_; b += max(int64_t(1), queries_ - 1)) {
            rough(b, b + 1, apart);
            if (!seeded_[b]) seed(b, apart);
            seeded_[b] |= apart == 1;
            const float *bounds = bounds_.get() + b * count_, limit = roughly_most(b);
            int64_t left = 0, seen = 0;
            for (int64_t k = 0; k < count_; k += apart) {
                seen += bounds[k] == bounds[k];
                left += bounds[k] <= limit;
            }
            if (left * 16 <= seen * (problem_.segment > 1 ? 15 : 8)) return true;
        }
        for (int64_t b = 0; b < queries_; ++b) dense_[b] = 0;
        return false;
    }

    // Bounds and distances of the means of every item, or of one in `apart`, with some queries.
    void rough(int64_t first, int64_t last, int64_t apart) {
        for (int64_t from = 0, to; from < count_; from = to) {
            const int64_t m = pairs_.y_lengths[order_[from]];
            for (to = from; to < count_ && pairs_.y_lengths[order_[to]] == m; ++to) {}
            for (int64_t b = first; b < last; ++b) enclose(b, m);
            const int64_t some = together(coarse_) * apart;
            for (int64_t i = (from + apart - 1) / apart * apart; i < to; i += some)
                for (int64_t b = first; b < last; ++b)
                    for (int64_t k = i; k < min(i + some, to); k += apart) {
                        float* bound = bounds_.get() + b * count_ + k;
                        const float least = rough(b, problem_.means + order_[k] * coarse_, distances_[b * count_ + k]);
                        *bound = *bound == *bound ? least : *bound;
                    }
        }
    }
    // The bound of the means x of an item with the query's envelope, and their squared distance from its own means.
    __attribute__((noinline)) float rough(int64_t b, const float* x, float& distance) const {
        const int64_t channels = pairs_.channels, coarse = problem_.coarse;
        const float *own = mean_.get() + b * coarse_, *upper = mean_upper_.get() + b * coarse_, *lower = mean_lower_.get() + b * coarse_;
        Float total = Float{}, squares = Float{};
        for (int64_t i = 0; i < coarse; i += kLanes) {
            total += step_costs(x, upper, lower, channels, coarse, i, pairs_.ground);
            for (int64_t j = i; j < coarse_; j += coarse) squares += (load(x + j) - load(own + j)) * (load(x + j) - load(own + j));
        }
        distance = sum(squares);
        return float(problem_.segment) * sum(total);
    }
    // The envelope of a query for items of m steps; its ends are its own, since a path joins first with first, last with last.
    void enclose(int64_t b, int64_t m) {
        const int64_t channels = pairs_.channels, padded = problem_.padded, coarse = problem_.coarse, n = steps(b);
        const int64_t left = reach_of(pairs_.window, n, m), right = reach_of(pairs_.window, m, n);
        float* plane = plane_.reserve(n);
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
            const int64_t to = b * coarse_ + c * coarse, segments = m / kSegment;
            const auto mean = [&](const Buffer<float>& from, float behind, Buffer<float>& means) {
                if (problem_.segment == 1) {
                    std::memcpy(means.get() + to, from.get() + at, size_t(padded) * sizeof(float));
                    return;
                }
                average(from.get() + at, segments, coarse, means.get() + to);
                fill(means.get() + to + segments, coarse - segments, behind);
            };
            mean(planes_, 0, mean_), mean(upper_, kInfinity<float>, mean_upper_), mean(lower_, -kInfinity<float>, mean_lower_);
        }
    }

    // DTW of the nearest by their means, of every item or of one in `apart`, gives a threshold.
    void seed(int64_t b, int64_t apart) {
        float *bounds = bounds_.get() + b * count_, *distances = distances_.get() + b * count_;
        int64_t alive = 0;
        for (int64_t i = 0; i < count_; i += apart) {
            seeds_[alive] = {distances[i], int32_t(i), -1};
            alive += bounds[i] == bounds[i];
        }
        const int64_t seeds = min(alive, this->seeds());
        select(seeds_.get(), alive, seeds);
        for (int64_t i = 0; i < seeds; ++i) seeds_[i].bound = 0;
        compare(b, seeds_.get(), seeds);
        for (int64_t i = 0; i < seeds; ++i) bounds[seeds_[i].place] = __builtin_nanf("");
    }

    // Keogh's bounds of what the means leave, and DTW of what those leave, some at a time.
    void refine() {
        const int64_t some = min(int64_t(64), together(size_));
        for (int64_t i = 0; i < count_; i += some)
            for (int64_t b = 0; b < queries_; ++b)
                if (dense_[b] == kNone) refine(b, i, min(i + some, count_));
        for (int64_t b = 0; b < queries_; ++b) compare_held(b);
    }
    void refine(int64_t b, int64_t first, int64_t last) {
        const float *bounds = bounds_.get() + b * count_, roughly = roughly_most(b);
        float limit = most(b);
        for (int64_t k = first; k < last; ++k) {
            if (!(bounds[k] <= roughly)) {
                counts_[kFirst] += bounds[k] > roughly;
                continue;
            }
            if (problem_.segment > 1 && !roughly_inside(b, k, roughly)) continue;
            hold(b, k, limit);
            if (held_[b] < most_held_) continue;
            // Where most are left, they are better compared as they lie.
            if (held_[b] > 3 * (k + 1) / 5) dense_[b] = last;
            compare_held(b);
            limit = most(b);
        }
        if (last >= 64 && held_[b] > 3 * last / 5) dense_[b] = last;
    }
    // The bound of the query's means with the means of an item's envelope.
    INLINE bool roughly_inside(int64_t b, int64_t k, float roughly) {
        if (pairs_.y_lengths[order_[k]] != steps(b)) return true;
        const int64_t item = order_[k] * coarse_;
        const float least = keogh(mean_.get() + b * coarse_, problem_.means_upper + item, problem_.means_lower + item, pairs_.channels,
                                  problem_.coarse, pairs_.ground, roughly / float(problem_.segment), scratch_.reserve(blocks_));
        const bool inside = least <= roughly / float(problem_.segment);
        counts_[kFirst] += !inside;
        return inside;
    }
    // The bounds of one item; if they leave it, it waits for DTW, with what they know of the rows that follow.
    INLINE void hold(int64_t b, int64_t k, float limit) {
        const int64_t item = order_[k] * size_, own = b * size_, slot = b * most_held_ + held_[b];
        float *rest = rest_.get() + slot * (blocks_ + 1), bound = bounds_[b * count_ + k];
        const bool both = pairs_.y_lengths[order_[k]] == steps(b);
        fill(rest, blocks_ + 1, 0.0f);
        if (both) {
            const float other = keogh(planes_.get() + own, problem_.upper + item, problem_.lower + item, pairs_.channels,
                                      problem_.padded, pairs_.ground, limit, rest);
            bound = max(bound, other);
            if (!(other <= limit)) {
                ++counts_[kDataEnvelope];
                return;
            }
        }
        if (alike_) {
            float* columns = scratch_.reserve(blocks_ + problem_.coarse);
            if (problem_.segment > 1) {
                column_means(b, problem_.means + order_[k] * coarse_, columns);
            } else {
                const float other = keogh(problem_.plane + item, upper_.get() + own, lower_.get() + own, pairs_.channels,
                                          problem_.padded, pairs_.ground, limit, columns);
                bound = max(bound, other);
                if (!(other <= limit)) {
                    ++counts_[kQueryEnvelope];
                    return;
                }
            }
            // Rows from block i on cost at least what their own blocks say, or those of the columns that only they reach.
            const int64_t n = steps(b), m = pairs_.y_lengths[order_[k]];
            const int64_t ahead = (reach_of(pairs_.window, n, m) + kBlock - 1) / kBlock;
            float rows = 0, far = 0;
            int64_t j = blocks_;
            for (int64_t i = blocks_ - 1; i >= 0; --i) {
                for (; j > i + ahead; --j) far += columns[j - 1];
                rows += rest[i];
                rest[i] = max(rows, far);
            }
        }
        entries_[slot] = {bound, int32_t(k), int32_t(slot)};
        ++held_[b];
    }
    // What the means of an item say of its blocks of columns. Keogh's bound itself is hardly greater, and reads eight times
    // as much.
    void column_means(int64_t b, const float* x, float* columns) const {
        const int64_t coarse = problem_.coarse, each = kBlock / kSegment;
        float* costs = columns + blocks_;
        for (int64_t i = 0; i < coarse; i += kLanes)
            store(costs + i, step_costs(x, mean_upper_.get() + b * coarse_, mean_lower_.get() + b * coarse_, pairs_.channels, coarse, i, pairs_.ground));
        for (int64_t j = 0; j < blocks_; ++j) {
            columns[j] = 0;
            for (int64_t i = j * each; i < min((j + 1) * each, coarse); ++i) columns[j] += float(kSegment) * costs[i];
        }
    }
    void compare_held(int64_t b) {
        Entry* entries = entries_.get() + b * most_held_;
        sort(entries, held_[b]);
        if (stage_ > 0 && held_[b] >= kFewest * W<T> && steps(b) == pairs_.y_lengths[order_[0]] && most(b) < kInfinity<float>)
            compare_in_stages(b, entries, held_[b]);
        else compare(b, entries, held_[b]);
        held_[b] = 0;
    }

    // Some rows of all of them, then some more of those that are left, in the order of what they cost at least by then.
    // The first lanes go on to the end, for a threshold. Only at first are entries in the order of their bounds.
    void compare_in_stages(int64_t b, Entry* entries, int64_t count) {
        const int64_t n = steps(b), m = n;
        for (int64_t from = 0, to; from < n && count > 0; from = to) {
            to = n - from < 2 * stage_ ? n : from + stage_;
            int64_t left = 0;
            for (int64_t i = 0; i < count; i += W<T>) {
                const float limit = roughly_most(b);
                if (from == 0 && !(entries[i].bound <= limit)) {
                    counts_[kQueryEnvelope] += count - i;
                    break;
                }
                const int64_t used = min(int64_t(W<T>), count - i);
                const int64_t until = i == 0 ? n : to;
                Entry lanes[W<T>];
                for (int64_t l = 0; l < W<T>; ++l) lanes[l] = entries[i + min(l, used - 1)];
                const int64_t rows = advance(b, lanes, used, from, until, limit);
                if (rows < until) counts_[kAbandoned] += used;
                if (rows < until || until == n) continue;
                int64_t lo, hi;
                window_row(pairs_.window, n, m, until - 1, lo, hi);
                V<T> least = load(row_.get() + lo * W<T>);
                for (int64_t j = lo + 1; j <= hi; ++j) least = min(least, load(row_.get() + j * W<T>));
                for (int64_t l = 0; l < used; ++l) {
                    const float bound = float(least[l]) + rest_[lanes[l].slot * (blocks_ + 1) + (until + kBlock - 1) / kBlock];
                    if (!(bound <= limit)) {
                        ++counts_[kAbandoned];
                        continue;
                    }
                    entries[left++] = {bound, lanes[l].place, lanes[l].slot};
                    T* state = state_.get() + (lanes[l].slot - b * most_held_) * state_width_;
                    for (int64_t j = lo; j <= hi; ++j) state[j - lo] = row_[j * W<T> + l];
                }
            }
            const float limit = roughly_most(b);
            count = 0;
            for (int64_t i = 0; i < left; ++i)
                if (entries[i].bound <= limit) entries[count++] = entries[i];
            counts_[kAbandoned] += left - count;
            select(entries, count, W<T>);
        }
    }
    // Rows from..to - 1 of the DTW of a query with W entries, of which the first `used` differ.
    int64_t advance(int64_t b, const Entry* lanes, int64_t used, int64_t from, int64_t to, float limit) {
        const int64_t n = steps(b), m = n, channels = pairs_.channels;
        int64_t items[W<T>], ends[W<T>], first, last, lo, hi;
        for (int l = 0; l < W<T>; ++l) items[l] = order_[lanes[l].place], ends[l] = m;
        window_row(pairs_.window, n, m, from, first, hi);
        window_row(pairs_.window, n, m, to - 1, lo, last);
        y_.reserve(m * channels * W<T>);
        interleave(static_cast<const T*>(pairs_.y) + first * channels, pairs_.y_lengths, pairs_.y_steps, channels, items,
                   last + 1 - first, y_.get() + first * channels * W<T>);
        T* row = row_.reserve(m * W<T>);
        if (from > 0) {
            window_row(pairs_.window, n, m, from - 1, lo, hi);
            for (int l = 0; l < W<T>; ++l) {
                const T* state = state_.get() + (lanes[l].slot - b * most_held_) * state_width_;
                for (int64_t j = lo; j <= hi; ++j) row[j * W<T> + l] = state[j - lo];
            }
        }
        const bool foresee = to - from > dtw_strip(pairs_.float64);  // else nobody looks before the end
        if (foresee) foresee_rows(n, [&](int64_t l) { return lanes[l].slot; });
        T values[W<T>];
        const double before = threshold(b);
        const int64_t rows = dtw_advance(pairs_, query(b), n, y_.get(), ends, foresee ? suffix_.get() : nullptr, limit, from, to, row, values, kept_);
        counts_[kCells] += used * (rows - from) * min(m, 2 * radius_of(pairs_.window, n, m) + 1);
        if (rows == n) report(b, items, ends, used, values, before, [](int64_t) { return true; });
        return rows;
    }

    // What bounds do not pay for, block by block, as it lies.
    void compare_in_order() {
        for (int64_t i = 0; i < count_; i += W<T>) {
            const int64_t used = min(int64_t(W<T>), count_ - i);
            bool ready = false;
            int64_t items[W<T>], m[W<T>];
            for (int64_t b = 0; b < queries_; ++b) {
                if (dense_[b] >= i + used) continue;
                const float *bounds = bounds_.get() + b * count_ + i, limit = roughly_most(b);
                const auto is_wanted = [&](int64_t l) { return i + l >= dense_[b] && bounds[l] <= limit; };
                int64_t left = 0;
                for (int64_t l = 0; l < used; ++l) {
                    left += is_wanted(l);
                    counts_[kFirst] += i + l >= dense_[b] && bounds[l] > limit;
                }
                if (left == 0) continue;
                if (!ready) lay_out(items, m, [&](int64_t l) { return order_[i + min(l, used - 1)]; });
                ready = true;
                run_lanes(b, items, m, used, most(b), nullptr, is_wanted);
            }
        }
    }
    void compare(int64_t b, const Entry* entries, int64_t count) {
        for (int64_t i = 0; i < count; i += W<T>) {
            const float limit = roughly_most(b);
            if (!(entries[i].bound <= limit)) {
                counts_[kQueryEnvelope] += count - i;
                return;
            }
            const int64_t used = min(int64_t(W<T>), count - i);
            int64_t items[W<T>], m[W<T>];
            lay_out(items, m, [&](int64_t l) { return order_[entries[i + min(l, used - 1)].place]; });
            const bool foresee = alike_ && entries[i].slot >= 0 && limit < kInfinity<float>;
            if (foresee) foresee_rows(steps(b), [&](int64_t l) { return entries[i + min(l, used - 1)].slot; });
            run_lanes(b, items, m, used, limit, foresee ? suffix_.get() : nullptr, [](int64_t) { return true; });
        }
    }
    // What rows from the i-th on cost at least, (n + 1, lanes).
    template <class F> void foresee_rows(int64_t n, F&& slot) {
        T* to = suffix_.reserve((n + 1) * W<T>);
        for (int64_t block = 0, i = 0; i <= n; ++block) {
            V<T> rest = V<T>{};
            for (int l = 0; l < W<T> && block < blocks_; ++l) rest[l] = T(rest_[slot(l) * (blocks_ + 1) + block]);
            for (; i <= min(n, block * kBlock); ++i) store(to + i * W<T>, rest);
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
    void run_lanes(int64_t b, const int64_t* items, const int64_t* m, int64_t used, float most, const T* suffix, F&& is_wanted) {
        const int64_t n = steps(b);
        const double before = threshold(b);
        T values[W<T>];
        const int64_t rows = dtw_abandoning(pairs_, query(b), n, y_.get(), m, suffix, most, values, kept_);
        for (int64_t l = 0; l < used; ++l) {
            counts_[kCells] += rows * min(m[l], 2 * radius_of(pairs_.window, n, m[l]) + 1 + max(n - m[l], m[l] - n));
            counts_[kAbandoned] += rows < n && is_wanted(l);
        }
        if (rows == n) report(b, items, m, used, values, before, is_wanted);
    }
    // Values that were computed: those that are wanted may become matches.
    template <class F>
    void report(int64_t b, const int64_t* items, const int64_t* m, int64_t used, const T* values, double before, F&& is_wanted) {
        Match found[W<T>];
        int64_t matches = 0;
        for (int64_t l = 0; l < used; ++l) {
            const T value = problem_.by_lengths ? values[l] / T(steps(b) + m[l]) : values[l];
            if (!is_wanted(l)) continue;
            ++counts_[kCompared];
            if (double(value) <= before) found[matches++] = {double(value), items[l], 0, m[l]};
        }
        if (matches) problem_.matches->add(first_query_ + b, found, matches);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
