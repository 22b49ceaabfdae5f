// What a search has found, shared by its threads. Compiled once, for every machine: kernels only call it.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

namespace likewise {

struct Match {
    double value;
    int64_t item, start, length;
};

// The nearest candidates of each query.
//
// Without `radius`, the k least by (value, item, start, length). With it, matches must lie apart: greedily by that order,
// a match is dropped if it starts less than its radius from a better one of the same item. Then every candidate up to the
// threshold is kept, and the threshold is the value of the (2k - 1)-th of the matches kept apart so far: as one match
// drops at most two that lie apart, k of those remain whatever else is found.
class Matches {
public:
    // k = 0: all of them. Values above `within` are no matches.
    Matches(int64_t queries, int64_t k, double within, int64_t radius);
    ~Matches();
    // The number of matches from which on there is a threshold, if they lie apart; 0 if there never is.
    int64_t wanted() const;
    // Candidates that exceed this cannot be among the matches; those that equal it can.
    double threshold(int64_t query) const;
    void add(int64_t query, const Match* found, int64_t count);
    // Keep the thresholds, not the matches.
    void forget();
    // Numbers of matches (queries,), and the matches in order; with `radius`, more than those kept apart.
    void count(int64_t* counts) const;
    // Values (queries, width), items, starts and ends, each (queries, width), of at most `width` matches.
    void copy(int64_t width, double* values, int64_t* items, int64_t* starts, int64_t* ends);

private:
    struct Query {
        std::mutex lock;
        std::vector<Match> found;
        double threshold;
    };
    std::vector<Query*> queries_;
    int64_t k_, radius_;
    void spread(Query& query) const;
};

// Candidates that the bounds of one query could not settle.
struct Candidate {
    float bound;
    int32_t item;
    int64_t start;
};
class Candidates {
public:
    explicit Candidates(int64_t queries);
    ~Candidates();
    void append(int64_t query, const Candidate* candidates, int64_t count);
    // Sorts by bound; a positive radius keeps those that lie apart, at most `most`. Returns their number.
    int64_t sort(int64_t query, int64_t radius, int64_t most);
    const Candidate* get(int64_t query) const;
    void clear();

private:
    struct Query {
        std::mutex lock;
        std::vector<Candidate> found;
    };
    std::vector<Query*> queries_;
};

}  // namespace likewise
