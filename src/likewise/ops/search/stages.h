// Items of many queries on their way through DTW of the leading channels. They drop out after few rows or after many: it goes
// by stages, and those that a stage leaves wait until they fill all lanes again.
#pragma once
#include "leading.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

class Stages {
public:
    // Items from `first` on, of n steps.
    Stages(const SearchProblem& problem, int64_t first, int64_t n, int64_t segments, int64_t reach)
        : items_(problem.leads), first_(first), n_(n), padded_(problem.padded), segments_(segments), unit_(problem.unit),
          roots_(problem.pairs.ground == Ground::euclidean), leading_(n, reach), ahead_size_(whole_fours(segments)),
          slot_(leading_.state_size() + ahead_size_) {
        const int64_t each = max(kShortest, n / kStages / kSegment * kSegment);
        for (int64_t s = 0; s < kStages; ++s) ends_[s] = s + 1 < kStages ? min(n, (s + 1) * each) : n;
        // A rounded frame is off by half a unit in each channel, and less than 2n pairs of them by twice as much.
        const double pairs = double(2 * n), off = 1.01 * root(double(kLeads)) * unit_;
        error_ = roots_ ? pairs * off : root(pairs) * off;
    }

    // Numbers that the memory of a query takes.
    int64_t query_size() const { return kSlots * slot_ + n_ * int64_t(sizeof(QueryFrame) / sizeof(int32_t)); }
    void reserve(int64_t queries) {
        queries_room_ = queries;
        queries_.reserve(queries), slots_.reserve((queries * kSlots + 1) * slot_), frames_.reserve(queries * n_);
        ahead_.reserve(ahead_size_ * kWide);
    }
    // A query, by its planes (channels, padded).
    void begin(int64_t b, const float* planes) {
        Query& query = queries_[b];
        query.frees = kSlots, query.compared = query.left = 0;
        for (int32_t s = 0; s < kSlots; ++s) query.free[s] = s;
        fill(query.waits, kStages, int64_t(0));
        for (int64_t i = 0; i < n_; ++i) frames_[b * n_ + i] = QueryFrame(planes + i, padded_, float(1 / unit_));
    }
    // Whether they rule out enough, as far as they were tried.
    bool pay(int64_t b) const { return queries_[b].compared < 64 || 2 * queries_[b].left < queries_[b].compared; }
    int64_t cells() { return leading_.cells(); }

    // Some of the items place, place + 1, ..., with what the rows behind each segment cost at least, (segments, lanes).
    void wait(int64_t b, int64_t place, uint32_t lanes, const float* ahead, float most) {
        Query& query = queries_[b];
        if (query.frees == kSlots) choose_units(query, most);
        int32_t* to[kWords];
        for (int32_t*& lane : to) lane = nowhere();
        for (; lanes; lanes &= lanes - 1) {
            const int l = __builtin_ctz(lanes);
            const int32_t slot = query.free[--query.frees];
            query.queue[0][query.waits[0]++] = slot;
            query.places[slot] = int32_t(place + l);
            to[l] = ahead_of(b, slot);
            for (int64_t t = 0; t < leading_.last_column(ends_[0]); t += 8) __builtin_prefetch(item(place + l) + t * kLeads);
        }
        for (int64_t t = 0; t < ahead_size_; t += 4) {
            Words words[4];
            for (int w = 0; w < 4; ++w) words[w] = load_words(ahead + (t + w) * kWords);
            store_four(words, [&](int l) INLINE_LAMBDA { return to[l] + t; });
        }
    }
    // Stages that at least so many wait for: full lanes, or the last few. most() is the greatest bound of a match by then, and
    // found(places, count) takes the items that are left at the end. Returns the number of those that were ruled out.
    template <class M, class F> int64_t go_on(int64_t b, int64_t fewest, M&& most, F&& found) {
        Query& query = queries_[b];
        int64_t ruled_out = 0;
        while (true) {
            int64_t stage = kStages - 1;
            while (stage >= 0 && query.waits[stage] < kWide) --stage;
            for (int64_t s = 0; stage < 0 && s < kStages; ++s)
                if (query.waits[s] >= fewest) stage = s;
            if (stage < 0) return ruled_out;
            ruled_out += advance(b, stage, most(), found);
        }
    }

private:
    // Rows of the shortest stage; slots for all that may wait: less than all lanes for each stage, and those that come.
    static constexpr int64_t kShortest = 16, kStages = 8, kSlots = (kStages + 1) * kWide;
    static constexpr double kUnits = 60000;  // of the limit
    struct Query {
        int64_t waits[kStages], frees, compared, left;
        double unit;
        LeadUnits units;
        int32_t queue[kStages][2 * kWide], free[kSlots], places[kSlots];
    };
    const int16_t* items_;
    const int64_t first_, n_, padded_, segments_;
    const double unit_;
    const bool roots_;
    double error_;
    int64_t ends_[kStages];  // the rows after which a stage ends
    Leading leading_;
    const int64_t ahead_size_, slot_;
    int64_t queries_room_ = 0;
    Buffer<Query> queries_;
    Buffer<int32_t> slots_;  // (queries, slots, words): the state, and what is ahead in float32
    Buffer<QueryFrame> frames_;
    Buffer<uint16_t> ahead_;  // (segments, lanes)

    int32_t* nowhere() const { return slots_.get() + queries_room_ * kSlots * slot_; }  // for lanes that do not wait
    int32_t* state_of(int64_t b, int64_t slot) const { return slots_.get() + (b * kSlots + slot) * slot_; }
    int32_t* ahead_of(int64_t b, int64_t slot) const { return state_of(b, slot) + leading_.state_size(); }
    const int16_t* item(int64_t place) const { return items_ + (first_ + place) * padded_ * kLeads; }

    // What the leading channels of rounded frames cost at most where the true ones cost `most`.
    double rounded(double most) const { return roots_ ? most * (1 + 1e-6) + error_ : most + error_ * (2 * root(most) + error_); }
    void choose_units(Query& query, float most) const {
        const double limit = rounded(most);
        if (roots_) {
            query.unit = limit / kUnits;
            query.units.scale = float(root(2.0) * unit_ / query.unit);
            return;
        }
        query.units.shift = 0;
        do query.unit = unit_ * unit_ * double(int64_t(1) << ++query.units.shift);
        while (query.units.shift < 31 && limit > kUnits * query.unit);
    }
    // Beyond 65534 units nothing is ruled out.
    uint16_t limit_of(const Query& query, float most) const { return uint16_t(min(65535.0, rounded(most) / query.unit + 2)); }

    // What waits first for a stage goes on, and further on while most lanes are left.
    template <class F> int64_t advance(int64_t b, int64_t stage, float most, F&& found) {
        Query& query = queries_[b];
        const int64_t used = min(query.waits[stage], int64_t(kWide)), behind = query.waits[stage] -= used;
        int32_t slots[kWide], places[kWide];
        const int16_t* items[kWide];
        int32_t* states[kWide];
        for (int l = 0; l < kWide; ++l) {
            slots[l] = query.queue[stage][min(int64_t(l), used - 1)];
            places[l] = query.places[slots[l]], items[l] = item(places[l]), states[l] = state_of(b, slots[l]);
        }
        for (int64_t i = 0; i < behind; ++i) query.queue[stage][i] = query.queue[stage][used + i];
        lay_ahead(b, slots, query.unit);
        if (stage > 0) leading_.restore(ends_[stage - 1] - 1, states);
        const uint32_t all = used < 32 ? (uint32_t(1) << used) - 1 : ~uint32_t(0);
        uint32_t lanes = all;
        int64_t laid = leading_.first_column(stage > 0 ? ends_[stage - 1] : 0);
        for (;; ++stage) {
            const int64_t from = stage > 0 ? ends_[stage - 1] : 0, to = ends_[stage], last = leading_.last_column(to - 1);
            leading_.lay(items, laid, last);
            laid = last + 1;
            lanes = leading_.advance(roots_, frames_.get() + b * n_, query.units, ahead_.get(), segments_, limit_of(query, most), from, to, lanes);
            if (!lanes || to == n_ || 2 * __builtin_popcount(lanes) < kWide) break;
        }
        // Lane by lane a processor would guess wrong each time.
        const bool done = ends_[stage] == n_;
        for (uint32_t out = all & (done ? ~uint32_t(0) : ~lanes); out; out &= out - 1) query.free[query.frees++] = slots[__builtin_ctz(out)];
        const int64_t left = __builtin_popcount(lanes);
        query.compared += done ? used : used - left;
        if (done) {
            query.left += left;
            for (int64_t i = 0; i < left; ++i, lanes &= lanes - 1) places[i] = places[__builtin_ctz(lanes)];
            found(places, left);
        } else if (left) {
            int32_t* to[kWide];
            for (int32_t*& lane : to) lane = nowhere();
            for (; lanes; lanes &= lanes - 1) {
                const int l = __builtin_ctz(lanes);
                query.queue[stage + 1][query.waits[stage + 1]++] = slots[l], to[l] = states[l];
            }
            leading_.save(ends_[stage] - 1, to);
        }
        return used - left;
    }
    // What is ahead of the items, in units.
    void lay_ahead(int64_t b, const int32_t* slots, double unit) {
        const Float inverse = splat(float(1 / unit));
        for (int64_t t = 0; t < segments_; t += 4) {
            Words words[2][4];
            each<2>([&](auto half) INLINE_LAMBDA {
                load_four([&](int l) INLINE_LAMBDA { return ahead_of(b, slots[place_of(half, l)]) + t; }, words[half]);
                for (Words& word : words[half]) word = __builtin_convertvector(min((Float)word * inverse, splat(65535.0f)), Words);
            });
            for (int w = 0; w < 4; ++w) store_words(ahead_.get() + (t + w) * kWide, pack(words[0][w], words[1][w]));
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
