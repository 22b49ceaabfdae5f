#include "matches.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace likewise {
namespace {

bool before(const Match& a, const Match& b) {
    return std::tie(a.value, a.item, a.start, a.length) < std::tie(b.value, b.item, b.start, b.length);
}

bool before(const Candidate& a, const Candidate& b) {
    return std::tie(a.bound, a.item, a.start) < std::tie(b.bound, b.item, b.start);
}

// Calls keep(x) for each of the sorted that lies apart from all kept before it, until keep returns false.
template <class X, class F> void keep_apart(const std::vector<X>& sorted, int64_t radius, F&& keep) {
    std::vector<std::pair<int64_t, int64_t>> kept;
    for (const X& x : sorted) {
        const bool apart = std::none_of(kept.begin(), kept.end(), [&](const auto& place) {
            return place.first == x.item && std::abs(place.second - x.start) < radius;
        });
        if (!apart) continue;
        kept.emplace_back(x.item, x.start);
        if (!keep(x)) return;
    }
}

}  // namespace

Matches::Matches(int64_t queries, int64_t k, double within, int64_t radius) : k_(k), radius_(k == 1 ? 0 : radius) {
    for (int64_t q = 0; q < queries; ++q) {
        queries_.push_back(new Query);
        queries_.back()->threshold = within;
    }
}

Matches::~Matches() {
    for (Query* query : queries_) delete query;
}

int64_t Matches::wanted() const { return radius_ > 0 && k_ > 0 ? 2 * k_ - 1 : k_; }

double Matches::threshold(int64_t query) const {
    double found;
    __atomic_load(&queries_[query]->threshold, &found, __ATOMIC_RELAXED);
    return found;
}

void Matches::add(int64_t q, const Match* found, int64_t count) {
    Query& query = *queries_[q];
    const std::lock_guard<std::mutex> guard(query.lock);
    bool changed = false;
    for (int64_t i = 0; i < count; ++i) {
        if (!(found[i].value <= query.threshold)) continue;
        changed = true;
        query.found.push_back(found[i]);
        if (k_ == 0 || radius_ > 0) continue;
        std::push_heap(query.found.begin(), query.found.end(), static_cast<bool (*)(const Match&, const Match&)>(before));
        if (int64_t(query.found.size()) > k_) {
            std::pop_heap(query.found.begin(), query.found.end(), static_cast<bool (*)(const Match&, const Match&)>(before));
            query.found.pop_back();
        }
        if (int64_t(query.found.size()) == k_ && query.found.front().value < query.threshold)
            __atomic_store(&query.threshold, &query.found.front().value, __ATOMIC_RELAXED);
    }
    if (changed && k_ > 0 && radius_ > 0) spread(query);
}

void Matches::spread(Query& query) const {
    auto& found = query.found;
    std::sort(found.begin(), found.end(), static_cast<bool (*)(const Match&, const Match&)>(before));
    int64_t kept = 0;
    double last = 0;
    keep_apart(found, radius_, [&](const Match& match) {
        last = match.value;
        return ++kept < wanted();
    });
    if (kept < wanted()) return;
    if (last < query.threshold) __atomic_store(&query.threshold, &last, __ATOMIC_RELAXED);
    while (found.back().value > query.threshold) found.pop_back();
}

void Matches::forget() {
    for (Query* query : queries_) query->found.clear();
}

void Matches::count(int64_t* counts) const {
    for (const Query* query : queries_) *counts++ = int64_t(query->found.size());
}

void Matches::copy(int64_t width, double* values, int64_t* items, int64_t* starts, int64_t* ends) {
    for (int64_t q = 0; q < int64_t(queries_.size()); ++q) {
        auto& found = queries_[q]->found;
        std::sort(found.begin(), found.end(), static_cast<bool (*)(const Match&, const Match&)>(before));
        for (int64_t i = 0; i < std::min(width, int64_t(found.size())); ++i) {
            values[q * width + i] = found[i].value;
            items[q * width + i] = found[i].item;
            starts[q * width + i] = found[i].start;
            ends[q * width + i] = found[i].start + found[i].length;
        }
    }
}

Candidates::Candidates(int64_t queries) {
    for (int64_t q = 0; q < queries; ++q) queries_.push_back(new Query);
}

Candidates::~Candidates() {
    for (Query* query : queries_) delete query;
}

void Candidates::append(int64_t q, const Candidate* candidates, int64_t count) {
    Query& query = *queries_[q];
    const std::lock_guard<std::mutex> guard(query.lock);
    query.found.insert(query.found.end(), candidates, candidates + count);
}

int64_t Candidates::sort(int64_t q, int64_t radius, int64_t most) {
    auto& found = queries_[q]->found;
    std::sort(found.begin(), found.end(), static_cast<bool (*)(const Candidate&, const Candidate&)>(before));
    if (radius > 0) {
        std::vector<Candidate> kept;
        keep_apart(found, radius, [&](const Candidate& candidate) {
            kept.push_back(candidate);
            return int64_t(kept.size()) < most;
        });
        found = kept;
    }
    return int64_t(found.size());
}

const Candidate* Candidates::get(int64_t query) const { return queries_[query]->found.data(); }

void Candidates::clear() {
    for (Query* query : queries_) query->found.clear();
}

}  // namespace likewise
