// Whole items of one length whose frames vary in few directions, as those of several sensors of one movement do. Their frames
// are turned: the first few channels hold most of what changes within a window. Distances do not change. Means of segments
// against envelopes settle most; DTW of the leading channels alone, which takes less than half the time of all, nearly all
// of the rest.
#pragma once
#include "../dtw/kernel.h"
#include "../lanes.h"
#include "bounds.h"
#include "entries.h"
#include "leading.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

class TurnedSearch {
public:
    TurnedSearch(const SearchProblem& problem, int64_t first, int64_t last)
        : problem_(problem), pairs_(problem.pairs), first_(first), count_(last - first), n_(pairs_.y_steps), channels_(pairs_.channels),
          segments_(n_ / kSegment), coarse_(channels_ * problem.coarse), reach_(reach_of(pairs_.window, n_, n_)),
          squared_(pairs_.ground == Ground::squared), leading_(pairs_.window, n_, problem.padded) {}
    ~TurnedSearch() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void run(int64_t begin, int64_t end) {
        for (first_query_ = begin; first_query_ < end; first_query_ += kQueries) {
            queries_ = min(kQueries, end - first_query_);
            for (auto* buffer : {&planes_, &upper_, &lower_}) buffer->reserve(kQueries * channels_ * problem_.padded);
            rows_.reserve(problem_.coarse * kLanes), row_lanes_.reserve(problem_.coarse * kLanes), waiting_rows_.reserve(kQueries * kLanes * problem_.coarse);
            for (auto* buffer : {&means_, &upper_means_, &lower_means_}) buffer->reserve(kQueries * coarse_);
            fill(settled_.reserve(kQueries * lane_blocks()), kQueries * lane_blocks(), uint32_t(0));
            for (int64_t b = 0; b < queries_; ++b) {
                enclose(b);
                const int64_t skip = problem_.skip ? problem_.skip[first_query_ + b] - first_ : -1;
                if (skip >= 0 && skip < count_) settle(b, skip);
                waiting_[b] = held_[b] = compared_[b] = left_[b] = 0;
            }
            if (problem_.matches->wanted() > 0) seed();
            for (int64_t group = 0; group < count_; group += kTogether) {
                stop_if_asked();
                for (auto& ready : ready_) fill(ready, kBlocks, false);
                for (int64_t b = 0; b < queries_; ++b) {
                    most_[b] = most(b);
                    for (int64_t i = group; i < min(group + kTogether, count_); i += kLanes) rule_out(b, i);
                }
            }
            for (int64_t b = 0; b < queries_; ++b) {
                if (waiting_[b]) compare_waiting(b);
                if (held_[b]) compare(b);
            }
        }
    }

private:
    // Items that stay in the cache while all queries of the block are compared with them.
    static constexpr int64_t kQueries = 32, kTogether = 64, kBlocks = kTogether / kLanes;
    enum Part : int { kMeans, kUpper, kLower, kLead, kParts };
    const SearchProblem& problem_;
    const Problem& pairs_;
    const int64_t first_, count_, n_, channels_, segments_, coarse_, reach_;
    const bool squared_;
    int64_t first_query_ = 0, queries_ = 0, counts_[kCounts] = {};
    // Of each query: items that wait for their leading channels, and for all of them; how many of those that were compared
    // by their leading channels these left.
    int64_t waiting_[kQueries], held_[kQueries], compared_[kQueries], left_[kQueries];
    int64_t wait_[kQueries][kLanes], hold_[kQueries][2 * kLanes];
    float rest_[kQueries][kLanes], most_[kQueries];  // what the other channels cost at least; the greatest bound
    // Turned queries, (queries, channels, padded), and their means, (queries, channels, coarse), with their envelopes.
    Buffer<float> planes_, upper_, lower_, means_, upper_means_, lower_means_, scratch_, y_;
    Buffer<float> parts_[kParts];  // of items of a group, side by side
    bool ready_[kParts][kBlocks];
    Buffer<float> rows_, waiting_rows_, row_lanes_, waiting_lead_;  // (segments, lanes), (queries, lanes, segments)
    Buffer<Entry> seeds_;
    Buffer<uint32_t> settled_;  // (queries, blocks of lanes): the item to skip, and those that were compared for a threshold
    DtwKept kept_;
    Leading leading_;

    int64_t lane_blocks() const { return (count_ + kLanes - 1) / kLanes; }
    uint32_t& settled(int64_t b, int64_t place) { return settled_[b * lane_blocks() + place / kLanes]; }
    void settle(int64_t b, int64_t place) { settled(b, place) |= uint32_t(1) << (place % kLanes); }
    double threshold(int64_t b) const { return problem_.matches->threshold(first_query_ + b); }
    float most(int64_t b) const { return Limit(problem_, n_, n_, problem_.error + problem_.means_error)(threshold(b)); }
    static uint32_t first_lanes(int64_t used) { return (uint32_t(1) << min(used, int64_t(kLanes))) - 1; }

    // Some numbers of each of a block of items side by side, laid out once for all queries.
    const float* part(Part which, const float* from, int64_t stride, int64_t size, int64_t place) {
        const int64_t block = place % kTogether / kLanes;
        float* to = parts_[which].reserve(kTogether * size) + block * kLanes * size;
        if (!ready_[which][block]) {
            int64_t items[kLanes];
            for (int64_t l = 0; l < kLanes; ++l) items[l] = first_ + min(place + l, count_ - 1);
            interleave_rows(from, stride, size, items, to);
            ready_[which][block] = true;
        }
        return to;
    }
    // Every size is a multiple of a tile: padded lengths are.
    static void interleave_rows(const float* from, int64_t stride, int64_t size, const int64_t* items, float* to) {
        for (int64_t t = 0; t < size; t += kTile<float>)
            for (int l = 0; l < kLanes; l += kTile<float>) {
                Tile<float> tile;
                for (int i = 0; i < kTile<float>; ++i) tile.rows[i] = load_row(from + items[l + i] * stride + t);
                tile.transpose();
                for (int i = 0; i < kTile<float>; ++i) store_row(to + (t + i) * kLanes + l, tile.rows[i]);
            }
    }

    void enclose(int64_t b) {
        const int64_t coarse = problem_.coarse;
        for (int64_t c = 0; c < channels_; ++c) {
            const int64_t at = (b * channels_ + c) * problem_.padded, to = b * coarse_ + c * coarse;
            float *plane = planes_.get() + at, *above = upper_.get() + at, *below = lower_.get() + at;
            std::memcpy(plane, problem_.turned + ((first_query_ + b) * channels_ + c) * n_, size_t(n_) * sizeof(float));
            slide<true>(plane, n_, reach_, reach_, n_, scratch_, above);
            slide<false>(plane, n_, reach_, reach_, n_, scratch_, below);
            above[0] = below[0] = plane[0], above[n_ - 1] = below[n_ - 1] = plane[n_ - 1];
            average(plane, segments_, coarse, means_.get() + to);
            average(above, segments_, coarse, upper_means_.get() + to);
            average(below, segments_, coarse, lower_means_.get() + to);
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
        for (int64_t group = 0; group < count_; group += kTogether) {
            fill(ready_[kMeans], kBlocks, false);
            for (int64_t b = 0; b < queries_; ++b)
                for (int64_t i = group; i < min(group + kTogether, count_); i += kLanes) {
                    const Float distances = distances_of(part(kMeans, problem_.means, coarse_, coarse_, i), means_.get() + b * coarse_);
                    uint32_t near = at_most(distances, least[b]) & first_lanes(count_ - i) & ~settled(b, i);
                    for (; near; near &= near - 1) {
                        const int l = __builtin_ctz(near);
                        seeds_[b * room + found[b]++] = {distances[l], int32_t(i + l), -1};
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
    Float distances_of(const float* x, const float* own) const {
        Float sums[4] = {Float{}, Float{}, Float{}, Float{}};
        for (int64_t k = 0; k < coarse_; k += 4)
            each<4>([&](auto part) INLINE_LAMBDA {
                const Float far = load(x + (k + part) * kLanes) - splat(own[k + part]);
                sums[part] += far * far;
            });
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    // Means of a block of items against the envelope of a query, then the other way around.
    void rule_out(int64_t b, int64_t place) {
        const int64_t used = min(int64_t(kLanes), count_ - place), coarse = problem_.coarse;
        const float scaled = most_[b] / float(kSegment);
        const float *x = part(kMeans, problem_.means, coarse_, coarse_, place), *above = upper_means_.get() + b * coarse_, *below = lower_means_.get() + b * coarse_;
        uint32_t left = first_lanes(used) & ~settled(b, place);
        const int candidates = __builtin_popcount(left);
        Float total = Float{}, rest = Float{};
        if (squared_) {
            for (int64_t c = channels_ - 1; c >= 0 && left; --c) {  // first those that change least
                Float other = Float{};
                int64_t i = c * coarse;
                for (; i + 2 <= c * coarse + segments_; i += 2) {
                    const Float far = beyond(load(x + i * kLanes), above[i], below[i]);
                    const Float next = beyond(load(x + (i + 1) * kLanes), above[i + 1], below[i + 1]);
                    total += far * far, other += next * next;
                }
                if (i < c * coarse + segments_) {
                    const Float far = beyond(load(x + i * kLanes), above[i], below[i]);
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
                    const Float far = beyond(load(x + i * kLanes), above[i], below[i]);
                    squares += far * far;
                }
                total += square_root<float>(squares);
                left &= at_most(total, scaled);
            }
        }
        if (left) left &= inside(b, place, scaled, rest);
        counts_[kFirst] += candidates - __builtin_popcount(left);
        if (!left) return;
        if (4 * __builtin_popcount(left) >= 3 * kLanes) {  // as they lie
            int64_t places[kLanes];
            for (int l = 0; l < kLanes; ++l) places[l] = place + l;
            const float* lead = part(kLead, problem_.plane, channels_ * problem_.padded, kLeads * problem_.padded, place);
            compare_leading(b, places, lead, rows_.get(), rest, left);
            return;
        }
        for (; left; left &= left - 1) {
            const int l = __builtin_ctz(left);
            const int64_t slot = waiting_[b]++;
            wait_[b][slot] = place + l, rest_[b][slot] = rest[l];
            float* rows = waiting_rows_.get() + (b * kLanes + slot) * coarse;
            for (int64_t s = 0; s < segments_; ++s) rows[s] = rows_[s * kLanes + l];
            if (waiting_[b] == kLanes) compare_waiting(b);
        }
    }
    // The query's means against the envelopes of a block of items. What other than the leading channels cost goes to rest,
    // what the rows of the leading channels cost, segment by segment, to rows_.
    uint32_t inside(int64_t b, int64_t place, float scaled, Float& rest) {
        const int64_t coarse = problem_.coarse;
        const float *x = means_.get() + b * coarse_;
        const float *above = part(kUpper, problem_.means_upper, coarse_, coarse_, place), *below = part(kLower, problem_.means_lower, coarse_, coarse_, place);
        float* rows = rows_.get();
        Float total = Float{}, others = Float{};
        const auto cost = [&](int64_t i) INLINE_LAMBDA {
            const Float own = splat(x[i]), far = own - min(max(own, load(below + i * kLanes)), load(above + i * kLanes));
            return far * far;
        };
        for (int64_t c = 0; c < (squared_ ? kLeads : channels_); ++c)
            for (int64_t s = 0; s < segments_; ++s) store(rows + s * kLanes, (c ? load(rows + s * kLanes) : Float{}) + cost(c * coarse + s));
        for (int64_t c = kLeads; squared_ && c < channels_; ++c)
            for (int64_t s = 0; s < segments_; ++s) others += cost(c * coarse + s);
        for (int64_t s = 0; s < segments_; ++s) {
            const Float row = squared_ ? load(rows + s * kLanes) : square_root<float>(load(rows + s * kLanes));
            total += row;
            store(rows + s * kLanes, float(kSegment) * row);
        }
        rest = squared_ ? max(rest, others) : Float{};
        const uint32_t left = at_most(total + rest, scaled);
        rest *= splat(float(kSegment));
        return left;
    }

    void compare_waiting(int64_t b) {
        const int64_t used = waiting_[b], coarse = problem_.coarse, padded = problem_.padded;
        int64_t items[kLanes], places[kLanes], slots[kLanes];
        Float rest;
        for (int l = 0; l < kLanes; ++l) {
            slots[l] = min(int64_t(l), used - 1);
            places[l] = wait_[b][slots[l]], items[l] = first_ + places[l], rest[l] = rest_[b][slots[l]];
        }
        waiting_[b] = 0;
        interleave_rows(waiting_rows_.get() + b * kLanes * coarse, coarse, coarse, slots, row_lanes_.get());
        interleave_rows(problem_.plane, channels_ * padded, kLeads * padded, items, waiting_lead_.reserve(kLeads * padded * kLanes));
        compare_leading(b, places, waiting_lead_.get(), row_lanes_.get(), rest, first_lanes(used));
    }
    // DTW of the leading channels of the lanes that are wanted; where it settles few, it does not pay.
    void compare_leading(int64_t b, const int64_t* places, const float* lead, float* rows, Float rest, uint32_t wanted) {
        uint32_t left = wanted;
        if (compared_[b] < 64 || 2 * left_[b] < compared_[b]) {
            for (int l = 0; l < kLanes; ++l)
                if (!(wanted >> l & 1)) rest[l] = kInfinity<float>;
            const int64_t at = b * channels_ * problem_.padded;
            const float *x = planes_.get() + at, *above = upper_.get() + at, *below = lower_.get() + at;
            const Float bound = squared_ ? leading_.run<false>(x, lead, above, below, rows, segments_, rest, most_[b])
                                         : leading_.run<true>(x, lead, above, below, rows, segments_, rest, most_[b]);
            left &= at_most(bound, most_[b]);
            compared_[b] += __builtin_popcount(wanted), left_[b] += __builtin_popcount(left);
            counts_[kLeading] += __builtin_popcount(wanted & ~left);
            counts_[kCells] += leading_.cells() * __builtin_popcount(wanted);
        }
        for (; left; left &= left - 1) hold_[b][held_[b]++] = places[__builtin_ctz(left)];
        if (held_[b] >= kLanes) compare(b);
    }

    // DTW of the first that are held.
    void compare(int64_t b) {
        const int64_t used = min(int64_t(kLanes), held_[b]);
        int64_t items[kLanes], m[kLanes];
        for (int l = 0; l < kLanes; ++l) items[l] = first_ + hold_[b][min(int64_t(l), used - 1)], m[l] = n_;
        held_[b] -= used;
        for (int64_t l = 0; l < held_[b]; ++l) hold_[b][l] = hold_[b][used + l];
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
