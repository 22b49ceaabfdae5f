// Whole items of one length whose frames vary in few directions, as those of several sensors of one movement do. Their frames
// are turned: the first few channels hold most of what changes within a window. Distances do not change. Means of segments
// against envelopes settle most; DTW of the leading channels alone nearly all of the rest. Items are lanes. They drop out
// after few rows or after many: DTW goes by stages, and those that a stage leaves wait until they fill all lanes again.
#pragma once
#include "../dtw/kernel.h"
#include "../lanes.h"
#include "bounds.h"
#include "entries.h"
#include "stages.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

class TurnedSearch {
public:
    TurnedSearch(const SearchProblem& problem, int64_t first, int64_t last)
        : problem_(problem), pairs_(problem.pairs), first_(first), count_(last - first), n_(pairs_.y_steps), channels_(pairs_.channels),
          segments_(n_ / kSegment), coarse_(channels_ * problem.coarse), reach_(reach_of(pairs_.window, n_, n_)),
          squared_(pairs_.ground == Ground::squared), stages_(problem, first, n_, segments_, reach_),
          together_(max(int64_t(1), min(kQueries, kMostWaiting / stages_.query_size()))) {}
    ~TurnedSearch() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void run(int64_t begin, int64_t end) {
        for (first_query_ = begin; first_query_ < end; first_query_ += together_) {
            queries_ = min(together_, end - first_query_);
            planes_.reserve(queries_ * channels_ * problem_.padded), upper_.reserve(problem_.padded), lower_.reserve(problem_.padded);
            for (auto* buffer : {&means_, &upper_means_, &lower_means_}) buffer->reserve(queries_ * coarse_);
            groups_.reserve(queries_ * kLeads * segments_ * kGroups), ahead_.reserve(whole_fours(segments_) * kLanes);
            stages_.reserve(queries_);
            fill(settled_.reserve(queries_ * lane_blocks()), queries_ * lane_blocks(), uint32_t(0));
            for (int64_t b = 0; b < queries_; ++b) {
                enclose(b);
                const int64_t skip = problem_.skip ? problem_.skip[first_query_ + b] - first_ : -1;
                if (skip >= 0 && skip < count_) settle(b, skip);
                held_[b] = 0;
            }
            if (!has_thresholds()) seed();
            for (int64_t i = 0; i < count_; i += kLanes) {  // which stay in the cache for all queries
                stop_if_asked();
                for (int64_t b = 0; b < queries_; ++b) most_[b] = most(b), rule_out(b, i);
            }
            for (int64_t b = 0; b < queries_; ++b) {
                go_on(b, 1);
                if (held_[b]) compare(b);
            }
        }
    }

private:
    // Queries that one pass over the items is for, as far as what waits for them takes little memory; and those that share the
    // loads of an item. Groups of the steps of a segment.
    static constexpr int64_t kQueries = 64, kMostWaiting = int64_t(1) << 22, kAtOnce = 4, kGroups = 4;
    const SearchProblem& problem_;
    const Problem& pairs_;
    const int64_t first_, count_, n_, channels_, segments_, coarse_, reach_;
    const bool squared_;
    int64_t first_query_ = 0, queries_ = 0, counts_[kCounts] = {};
    int64_t held_[kQueries];  // of each query, items that wait for DTW of all channels
    int32_t hold_[kQueries][kLanes];
    float most_[kQueries];  // the greatest bound
    // Turned queries, (queries, channels, padded), and their means, (queries, channels, coarse), with their envelopes.
    Buffer<float> planes_, upper_, lower_, means_, upper_means_, lower_means_, scratch_, y_;
    Buffer<float> groups_;           // of the leading channels of the queries, (queries, leads, segments, groups)
    Buffer<float> ahead_;            // (segments, lanes)
    Buffer<Entry> seeds_;
    Buffer<uint32_t> settled_;  // (queries, blocks of lanes): the item to skip, and those that were compared for a threshold
    DtwKept kept_;
    Stages stages_;
    const int64_t together_;

    int64_t lane_blocks() const { return (count_ + kLanes - 1) / kLanes; }
    uint32_t& settled(int64_t b, int64_t place) { return settled_[b * lane_blocks() + place / kLanes]; }
    void settle(int64_t b, int64_t place) { settled(b, place) |= uint32_t(1) << (place % kLanes); }
    double threshold(int64_t b) const { return problem_.matches->threshold(first_query_ + b); }
    float most(int64_t b) const { return Limit(problem_, n_, n_, problem_.error + problem_.means_error)(threshold(b)); }
    // Whether there are some, or never will be. Other items may have given them.
    bool has_thresholds() const {
        bool all = true;
        for (int64_t b = 0; b < queries_; ++b) all &= threshold(b) < double(kInfinity<float>);
        return all || problem_.matches->wanted() == 0;
    }
    static uint32_t first_lanes(int64_t used) { return (uint32_t(1) << min(used, int64_t(kLanes))) - 1; }

    // Where the numbers of items lie side by side, from the lane of an item on.
    const float* beside(const float* laid, int64_t size, int64_t place) const {
        const int64_t item = first_ + place;
        return laid + item / kBeside * kBeside * size + item % kBeside;
    }

    void enclose(int64_t b) {
        const int64_t coarse = problem_.coarse;
        for (int64_t c = 0; c < channels_; ++c) {
            const int64_t at = (b * channels_ + c) * problem_.padded, to = b * coarse_ + c * coarse;
            float *plane = planes_.get() + at, *above = upper_.get(), *below = lower_.get();
            std::memcpy(plane, problem_.turned + ((first_query_ + b) * channels_ + c) * n_, size_t(n_) * sizeof(float));
            slide<true>(plane, n_, reach_, reach_, n_, scratch_, above);
            slide<false>(plane, n_, reach_, reach_, n_, scratch_, below);
            if (c < kLeads) group(plane, groups_.get() + (b * kLeads + c) * segments_ * kGroups);
            above[0] = below[0] = plane[0], above[n_ - 1] = below[n_ - 1] = plane[n_ - 1];
            average(plane, segments_, coarse, means_.get() + to);
            average(above, segments_, coarse, upper_means_.get() + to);
            average(below, segments_, coarse, lower_means_.get() + to);
        }
        stages_.begin(b, planes_.get() + b * channels_ * problem_.padded);
    }

    // Means of the two least steps of each segment, of the next two, and so on. Against one envelope they cost hardly less than
    // the steps themselves, and never more: the cost is convex.
    void group(const float* plane, float* to) const {
        for (int64_t s = 0; s < segments_; ++s, plane += kSegment) {
            float steps[kSegment];
            for (int i = 0; i < kSegment; ++i) {
                int j = i;
                for (; j > 0 && steps[j - 1] > plane[i]; --j) steps[j] = steps[j - 1];
                steps[j] = plane[i];
            }
            for (int i = 0; i < kGroups; ++i) *to++ = (steps[2 * i] + steps[2 * i + 1]) / 2;
        }
    }

    // DTW of the nearest by their means gives a threshold.
    void seed() {
        const int64_t wanted = problem_.matches->wanted(), seeds = min(count_, (wanted + kLanes - 1) / kLanes * kLanes), room = 2 * seeds + kLanes;
        seeds_.reserve(kQueries * room);
        int64_t found[kQueries] = {};
        float least[kQueries];  // of those found, if there are enough, the greatest distance
        fill(least, kQueries, kInfinity<float>);
        const auto keep_nearest = [&](int64_t b) {
            Entry* entries = seeds_.get() + b * room;
            select(entries, found[b], seeds);
            found[b] = min(found[b], seeds);
            if (found[b] < seeds) return;
            least[b] = 0;
            for (int64_t i = 0; i < seeds; ++i) least[b] = max(least[b], entries[i].bound);
        };
        for (int64_t i = 0; i < count_; i += kLanes)
            for (int64_t first = 0; first < queries_; first += kAtOnce) {
                Float distances[kAtOnce];
                distances_of(beside(problem_.laid_means, coarse_, i), first, distances);
                for (int64_t b = first; b < min(first + kAtOnce, queries_); ++b) {
                    uint32_t near = at_most(distances[b - first], least[b]) & first_lanes(count_ - i) & ~settled(b, i);
                    for (; near; near &= near - 1) {
                        const int l = __builtin_ctz(near);
                        seeds_[b * room + found[b]++] = {distances[b - first][l], int32_t(i + l), -1};
                    }
                    if (found[b] >= 2 * seeds) keep_nearest(b);
                }
            }
        for (int64_t b = 0; b < queries_; ++b) {
            keep_nearest(b);
            for (int64_t i = 0; i < found[b]; ++i) settle(b, seeds_[b * room + i].place);
            for (int64_t i = 0; i < found[b]; i += kLanes) {
                for (; held_[b] < min(int64_t(kLanes), found[b] - i); ++held_[b]) hold_[b][held_[b]] = seeds_[b * room + i + held_[b]].place;
                compare(b);
            }
        }
    }
    // Of the means of a block of items and of some queries, which share the loads of x.
    __attribute__((noinline)) void distances_of(const float* x, int64_t first, Float (&distances)[kAtOnce]) const {
        const float* own[kAtOnce];
        Float more[kAtOnce];
        each<kAtOnce>([&](auto q) INLINE_LAMBDA {
            own[q] = means_.get() + min(first + q, queries_ - 1) * coarse_;
            distances[q] = more[q] = Float{};
        });
        const auto squares = [&](int64_t k, Float(&sums)[kAtOnce]) INLINE_LAMBDA {
            const Float at = load(x + k * kBeside);
            each<kAtOnce>([&](auto q) INLINE_LAMBDA {
                const Float far = at - splat(own[q][k]);
                sums[q] += far * far;
            });
        };
        for (int64_t k = 0; k < coarse_; k += 2) squares(k, distances), squares(k + 1, more);
        each<kAtOnce>([&](auto q) INLINE_LAMBDA { distances[q] += more[q]; });
    }

    // Means of a block of items against the envelope of a query, then the other way around.
    void rule_out(int64_t b, int64_t place) {
        const int64_t used = min(int64_t(kLanes), count_ - place), coarse = problem_.coarse;
        const float scaled = most_[b] / float(kSegment);
        const float* x = beside(problem_.laid_means, coarse_, place);
        const float *above = upper_means_.get() + b * coarse_, *below = lower_means_.get() + b * coarse_;
        uint32_t left = first_lanes(used) & ~settled(b, place);
        const int candidates = __builtin_popcount(left);
        Float total = Float{}, rest = Float{};
        if (squared_) {
            for (int64_t c = channels_ - 1; c >= 0 && left; --c) {  // first those that change least
                Float other = Float{};
                int64_t i = c * coarse;
                for (; i + 2 <= c * coarse + segments_; i += 2) {
                    const Float far = beyond(load(x + i * kBeside), splat(above[i]), splat(below[i]));
                    const Float next = beyond(load(x + (i + 1) * kBeside), splat(above[i + 1]), splat(below[i + 1]));
                    total += far * far, other += next * next;
                }
                if (i < c * coarse + segments_) {
                    const Float far = beyond(load(x + i * kBeside), splat(above[i]), splat(below[i]));
                    total += far * far;
                }
                total += other;
                if (c == kLeads) rest = total;
                left &= at_most(total, scaled);
            }
        } else {
            for (int64_t s = 0; s < segments_ && left; ++s) {
                Float squares = Float{};
                for (int64_t i = s; i < coarse_; i += coarse) {
                    const Float far = beyond(load(x + i * kBeside), splat(above[i]), splat(below[i]));
                    squares += far * far;
                }
                total += square_root<float>(squares);
                left &= at_most(total, scaled);
            }
        }
        if (left) left &= squared_ ? inside(b, place, scaled, rest, left) : inside_roots(b, place, scaled, left);
        counts_[kFirst] += candidates - __builtin_popcount(left);
        if (!left) return;
        if (most_[b] < kInfinity<float> && stages_.pay(b)) {
            stages_.wait(b, place, left, ahead_.get(), most_[b]);
            go_on(b, kWide);
            return;
        }
        int32_t places[kLanes];
        int64_t count = 0;
        for (; left; left &= left - 1) places[count++] = int32_t(place + __builtin_ctz(left));
        hold(b, places, count);
    }
    // The query against the envelopes of a block of items: its means for all but the leading channels, whose costs go to
    // rest, and its groups for these. ahead_ receives what the rows from a segment on cost at least.
    uint32_t inside(int64_t b, int64_t place, float scaled, Float rest, uint32_t left) {
        const int64_t coarse = problem_.coarse;
        const float *x = means_.get() + b * coarse_;
        const float *above = beside(problem_.laid_upper, coarse_, place), *below = beside(problem_.laid_lower, coarse_, place);
        Float others = Float{}, more = Float{};
        const auto cost = [&](int64_t i) INLINE_LAMBDA {
            const Float far = beyond(splat(x[i]), load(above + i * kBeside), load(below + i * kBeside));
            return far * far;
        };
        for (int64_t c = kLeads; c < channels_; ++c) {
            int64_t i = c * coarse;
            for (; i + 2 <= c * coarse + segments_; i += 2) others += cost(i), more += cost(i + 1);
            if (i < c * coarse + segments_) others += cost(i);
        }
        rest = max(rest, others + more);
        if (!(left &= at_most(rest, scaled))) return 0;
        const float *highest = beside(problem_.highest, kLeads * coarse, place);
        const float *lowest = beside(problem_.lowest, kLeads * coarse, place);
        const float *own = groups_.get() + b * kLeads * segments_ * kGroups, limit = most_[b];
        Float total = float(kSegment) * rest;
        for (int64_t s = segments_ - 1; s >= 0 && left; --s) {
            store(ahead_.get() + s * kLanes, total);
            Float costs[kLeads];
            each<kLeads>([&](auto c) INLINE_LAMBDA {
                const Float upper = load(highest + (c * coarse + s) * kBeside), lower = load(lowest + (c * coarse + s) * kBeside);
                const float* means = own + (c * segments_ + s) * kGroups;
                costs[c] = Float{};
                each<kGroups>([&](auto i) INLINE_LAMBDA {
                    const Float far = beyond(splat(means[i]), upper, lower);
                    costs[c] += far * far;
                });
            });
            total += float(kSegment / kGroups) * ((costs[0] + costs[1]) + (costs[2] + costs[3]));
            if (s % 4 == 0) left &= at_most(total, limit);
        }
        return left;
    }
    // Roots of costs: of all channels together.
    uint32_t inside_roots(int64_t b, int64_t place, float scaled, uint32_t left) {
        const int64_t coarse = problem_.coarse;
        const float *x = means_.get() + b * coarse_;
        const float *above = beside(problem_.laid_upper, coarse_, place), *below = beside(problem_.laid_lower, coarse_, place);
        Float total = Float{};
        for (int64_t s = segments_ - 1; s >= 0; --s) {
            store(ahead_.get() + s * kLanes, float(kSegment) * total);
            Float squares = Float{};
            for (int64_t i = s; i < coarse_; i += coarse) {
                const Float far = beyond(splat(x[i]), load(above + i * kBeside), load(below + i * kBeside));
                squares += far * far;
            }
            total += square_root<float>(squares);
        }
        return left & at_most(total, scaled);
    }
    // DTW of the leading channels of items that wait for it, as long as there are at least so many of them.
    void go_on(int64_t b, int64_t fewest) {
        counts_[kLeading] += stages_.go_on(b, fewest, [&] { return most_[b]; }, [&](const int32_t* places, int64_t count) { hold(b, places, count); });
        counts_[kCells] += stages_.cells();
    }
    void hold(int64_t b, const int32_t* places, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            hold_[b][held_[b]++] = places[i];
            if (held_[b] == kLanes) compare(b);
        }
    }

    // DTW of those that are held.
    void compare(int64_t b) {
        const int64_t used = held_[b];
        int64_t items[kLanes], m[kLanes];
        for (int l = 0; l < kLanes; ++l) items[l] = first_ + hold_[b][min(int64_t(l), used - 1)], m[l] = n_;
        held_[b] = 0;
        interleave(static_cast<const float*>(pairs_.y), pairs_.y_lengths, n_, channels_, items, n_, y_.reserve(n_ * channels_ * kLanes));
        const double before = threshold(b);
        float values[kLanes];
        const float* query = static_cast<const float*>(pairs_.x) + (first_query_ + b) * n_ * channels_;
        const int64_t rows = dtw_abandoning(pairs_, query, n_, y_.get(), m, nullptr, most(b), values, kept_);
        counts_[kCells] += used * rows * min(n_, 2 * reach_ + 1);
        if (rows < n_) {
            counts_[kAbandoned] += used;
            return;
        }
        Match found[kLanes];
        int64_t matches = 0;
        counts_[kCompared] += used;
        for (int64_t l = 0; l < used; ++l) {
            const float value = problem_.by_lengths ? values[l] / float(2 * n_) : values[l];
            if (double(value) <= before) found[matches++] = {double(value), items[l], 0, n_};
        }
        if (matches) problem_.matches->add(first_query_ + b, found, matches);
        most_[b] = most(b);
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
