// Every window of a long series. Bounds: lanes are consecutive windows, which are never laid out. DTW: lanes are the
// windows that are left.
#pragma once
#include "../dtw/kernel.h"
#include "bounds.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr double kRunningError = 5e-5;  // of a normalised sample, from float32 and from running sums, but for the next
constexpr double kScaledError = 5e-7;   // in units of the sample itself, at most the root of the window's length

INLINE double window_error(const SearchProblem& problem) {
    if (!problem.normalize) return problem.error;
    if (!(problem.error < double(kInfinity<float>))) return problem.error;
    return (kRunningError + kScaledError * root(double(problem.window))) * root(double(problem.pairs.channels));
}

// The samples of some consecutive windows: as they are, or relative to a number in their middle, with the scale and the
// offset that normalise the samples of each window: scale * sample - offset.
template <class T> class Stretch {
public:
    const float *x[2], *upper, *lower;  // (channels, apart)
    const float *scale, *offset;        // (channels, count + more)
    int64_t apart, count, padded;
    Buffer<uint8_t> unbounded;  // windows of which the float32 samples say nothing
    static constexpr int64_t kMore = 4 * kLanes;

    Stretch(const SearchProblem& problem, int64_t item, int64_t first, int64_t last)
        : problem_(problem), first_(first), item_(item), length_(problem.window) {
        const int64_t channels = problem.pairs.channels;
        count = last - first, padded = count + kMore, apart = problem.padded;
        const int64_t at = item * channels * problem.padded + first;
        x[0] = problem.plane + at, upper = problem.upper + at, lower = problem.lower + at;
        fill(unbounded.reserve(padded), padded, uint8_t(0));
        if (!problem.normalize) return;
        const int64_t samples = count + length_ - 1;
        apart = (samples + kMore + kLanes - 1) / kLanes * kLanes;
        for (auto* buffer : {&x_, &upper_, &lower_}) buffer->reserve(channels * apart);
        scale_.reserve(channels * padded), offset_.reserve(channels * padded);
        for (int64_t c = 0; c < channels; ++c) {
            const float middle = problem.plane[at + c * problem.padded + samples / 2];
            const int64_t from = at + c * problem.padded, to = c * apart;
            centre(problem.plane + from, middle, samples, x_.get() + to);
            centre(problem.upper + from, middle, samples, upper_.get() + to);
            centre(problem.lower + from, middle, samples, lower_.get() + to);
            const int64_t block = max(int64_t(512), 2 * length_);
            for (int64_t i = 0; i < count; i += block) measure(c, double(middle), i, min(i + block, count));
            fill(scale_.get() + c * padded + count, kMore, 0.0f);
            fill(offset_.get() + c * padded + count, kMore, 0.0f);
        }
        x[0] = x_.get(), upper = upper_.get(), lower = lower_.get(), scale = scale_.get(), offset = offset_.get();
    }

private:
    const SearchProblem& problem_;
    int64_t first_, item_, length_;
    Buffer<float> x_, upper_, lower_, scale_, offset_;
    Buffer<double> sums_, squares_;

    static void centre(const float* from, float middle, int64_t count, float* to) {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i] - middle;
        fill(to + count, kMore, 0.0f);
    }
    // Moments of the windows begin..end - 1 from running sums, which start anew with every block. Where they have lost too
    // many digits, or where the window may count as constant, the moments are computed as DTW's are.
    void measure(int64_t c, double middle, int64_t begin, int64_t end) {
        const int64_t samples = end - begin + length_ - 1;
        const float* from = x_.get() + c * apart + begin;
        double *sums = sums_.reserve(samples + 1), *squares = squares_.reserve(samples + 1), largest = 0;
        sums[0] = squares[0] = 0;
        for (int64_t i = 0; i < samples; ++i) {
            const double value = double(from[i]);
            sums[i + 1] = sums[i] + value;
            squares[i + 1] = squares[i] + value * value;
            largest = max(largest, max(value, -value));
        }
        largest += max(middle, -middle);
        const double length = double(length_), lost = double(samples) * 2.3e-16 * 1e6 * squares[samples];
        float *scale_to = scale_.get() + c * padded, *offset_to = offset_.get() + c * padded;
        for (int64_t w = begin; w < end; ++w) {
            const int64_t i = w - begin;
            const double sum = sums[i + length_] - sums[i], mean = sum / length;
            const double spread = (squares[i + length_] - squares[i]) - sum * mean;
            double inverse = 1 / root(spread / length), centre = mean;
            if (!(spread > lost) || inverse * largest > 1e6) {
                const int64_t channels = problem_.pairs.channels;
                const T* values = static_cast<const T*>(problem_.pairs.y) + (item_ * problem_.pairs.y_steps + first_ + w) * channels + c;
                const Moments exact(values, length_, channels);
                inverse = exact.inverse, centre = exact.mean - middle;
            }
            const double size = centre < 0 ? -centre : centre;
            unbounded[w] |= inverse * (size * 2.5e-7 + problem_.error) > kRunningError / 2;
            scale_to[w] = float(inverse);
            offset_to[w] = float(centre * inverse);
        }
    }
};

// The bounds of two blocks of lanes of windows.
struct Pair {
    Float a, b;
};

template <class T> class WindowBounds {
public:
    WindowBounds(const SearchProblem& problem, int64_t item, int64_t first, int64_t last)
        : problem_(problem), item_(item), first_(first), stretch_(problem, item, first, last) {
        found_.reserve(stretch_.count + 2 * kLanes);
    }
    ~WindowBounds() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void query(int64_t q, int64_t stride) {
        const bool mine = problem_.skip && problem_.skip[q] == item_;
        if (mine && !problem_.skip_start) return;
        const int64_t n = problem_.pairs.x_lengths[q];
        const float most = Limit(problem_, n, problem_.window, window_error(problem_))(problem_.matches->threshold(q));
        q_ = q, most_ = most, taken_ = 0, stride_ = stride;
        from_ = 1, to_ = 0;
        if (mine) from_ = problem_.skip_start[q] - problem_.skip_radius + 1 - first_, to_ = problem_.skip_start[q] + problem_.skip_radius - 1 - first_;
        const int64_t step = 2 * kLanes * max(int64_t(1), stride);
        const bool one = problem_.pairs.channels == 1, euclidean = problem_.pairs.ground == Ground::euclidean;
        for (int64_t w = 0; w < stretch_.count; w += step) {
            if (problem_.error == double(kInfinity<float>)) keep(w, Pair{});
            else if (problem_.normalize && !euclidean) block<true, false, false>(w, one);
            else if (problem_.normalize && one) block<true, true, false>(w, one);
            else if (problem_.normalize) block<true, false, true>(w, one);
            else if (!euclidean) block<false, false, false>(w, one);
            else if (one) block<false, true, false>(w, one);
            else block<false, false, true>(w, one);
        }
        if (taken_) problem_.candidates->append(q, found_.get(), taken_);
    }

private:
    const SearchProblem& problem_;
    int64_t item_, first_, q_ = 0, taken_ = 0, stride_ = 0, from_ = 1, to_ = 0, counts_[kCounts] = {};
    float most_ = 0;
    Stretch<T> stretch_;
    Buffer<Candidate> found_;

    // Keogh's bound: of the samples with the query's envelope, or of the query with theirs.
    template <bool kNormalize, bool kAbsolute, bool kRoots, bool kOfData> INLINE bool keogh(int64_t w, Pair& total) {
        const int64_t channels = problem_.pairs.channels, size = problem_.window * channels, at = q_ * size;
        const int64_t group = kRoots ? channels : 1;
        const int32_t *steps = problem_.steps + at, *channel = problem_.channels + at;
        const float *up = problem_.ordered_upper + at, *low = problem_.ordered_lower + at, *query = problem_.ordered_query + at;
        const auto cell = [&](int64_t k, int half) INLINE_LAMBDA {
            const int64_t c = channel[k], i = c * stretch_.apart + steps[k] + w + half * kLanes;
            const int64_t s = c * stretch_.padded + w + half * kLanes;
            const auto normal = [&](Float x) INLINE_LAMBDA {
                return kNormalize ? x * load(stretch_.scale + s) - load(stretch_.offset + s) : x;
            };
            if (!kOfData || k < 2 * channels) {
                const Float x = normal(load(stretch_.x[0] + i));
                return kOfData ? outside(splat(query[k]), x, x) : outside(x, splat(up[k]), splat(low[k]));
            }
            return outside(splat(query[k]), normal(load(stretch_.upper + i)), normal(load(stretch_.lower + i)));
        };
        Float a = Float{}, b = Float{};
        for (int64_t k = 0; k < size;) {
            // The ends first, then 16 at a time.
            int64_t until = k == 0 ? 2 * channels : k + max(int64_t(16), group);
            until = min(size, until / group * group);
            for (; k < until; k += group) {
                Float squares_a = Float{}, squares_b = Float{};
                for (int64_t g = 0; g < group; ++g) {
                    const Float far_a = cell(k + g, 0), far_b = cell(k + g, 1);
                    squares_a = kAbsolute ? far_a : far_a * far_a + squares_a;
                    squares_b = kAbsolute ? far_b : far_b * far_b + squares_b;
                }
                a += kRoots ? square_root<float>(squares_a) : squares_a;
                b += kRoots ? square_root<float>(squares_b) : squares_b;
            }
            if (!(at_most(a, most_) | at_most(b, most_))) {
                counts_[k == 2 * channels && !kOfData ? kFirst : kOfData ? kDataEnvelope : kQueryEnvelope] += inside(w);
                return false;
            }
        }
        total = {a, b};
        return true;
    }
    int64_t inside(int64_t w) const { return stride_ ? 0 : min(int64_t(2 * kLanes), stretch_.count - w); }

    template <bool kNormalize, bool kAbsolute, bool kRoots> void block(int64_t w, bool one) {
        uint8_t unbounded = 0;
        for (int64_t i = w; i < w + 2 * kLanes; ++i) unbounded |= stretch_.unbounded[i];
        if (unbounded) return keep(w, Pair{});
        Pair query, data;
        if (!keogh<kNormalize, kAbsolute, kRoots, false>(w, query)) return;
        if (most_ == kInfinity<float> || problem_.pairs.x_lengths[q_] != problem_.window) return keep(w, query);
        const int64_t left = __builtin_popcount(at_most(query.a, most_)) + __builtin_popcount(at_most(query.b, most_));
        if (!stride_) counts_[kQueryEnvelope] += max(int64_t(0), inside(w) - left);
        const int64_t before = counts_[kDataEnvelope];
        if (!keogh<kNormalize, kAbsolute, kRoots, true>(w, data)) {
            if (!stride_) counts_[kDataEnvelope] = before + min(left, inside(w));
            return;
        }
        const int64_t taken = taken_;
        keep(w, {max(query.a, data.a), max(query.b, data.b)});
        if (!stride_) counts_[kDataEnvelope] += max(int64_t(0), min(left, inside(w)) - (taken_ - taken));
        (void)one;
    }
    void keep(int64_t w, Pair bound) {
        const int64_t taken = taken_;
        for (int l = 0; l < 2 * kLanes; ++l) {
            const int64_t i = w + l;
            const float value = l < kLanes ? bound.a[l] : bound.b[l - kLanes];
            if (i >= stretch_.count || !(value <= most_) || (i >= from_ && i <= to_)) continue;
            found_[taken_++] = {value, int32_t(item_), first_ + i};
        }
        if (!stride_ || taken_ <= taken) return;
        for (int64_t t = taken + 1; t < taken_; ++t)
            if (found_[t].bound < found_[taken].bound) found_[taken] = found_[t];
        taken_ = taken + 1;
    }
};

template <class T> class WindowCompare {
public:
    explicit WindowCompare(const SearchProblem& problem) : problem_(problem) {}
    ~WindowCompare() {
        for (int c = 0; c < kCounts; ++c) __atomic_fetch_add(problem_.counts + c, counts_[c], __ATOMIC_RELAXED);
    }

    void run(int64_t q, int64_t begin, int64_t end) {
        const Problem& pairs = problem_.pairs;
        const int64_t n = pairs.x_lengths[q], m = problem_.window, channels = pairs.channels, size = m * channels;
        const Candidate* candidates = problem_.candidates->get(q);
        const T* query = static_cast<const T*>(pairs.x) + q * pairs.x_steps * channels;
        const Limit limit(problem_, n, m, window_error(problem_));
        const bool bounded = problem_.error < double(kInfinity<float>);
        y_.reserve(size * W<T>), suffix_.reserve((n + 1) * W<T>);
        for (int64_t i = begin; i < end; i += W<T>) {
            const double threshold = problem_.matches->threshold(q);
            const float most = limit(threshold);
            if (!(candidates[i].bound <= most)) {
                counts_[kDataEnvelope] += end - i;
                return;
            }
            const int64_t used = min(int64_t(W<T>), end - i);
            int64_t lengths[W<T>];
            for (int l = 0; l < W<T>; ++l) {
                lengths[l] = m;
                lay_out(candidates[i + min(int64_t(l), used - 1)], l);
            }
            const bool rest = bounded && most < kInfinity<float>;
            if (rest) suffixes(problem_, y_.get(), n, m, problem_.query_upper + q * size, problem_.query_lower + q * size, m, suffix_.get());
            T values[W<T>];
            const int64_t rows = dtw_abandoning(pairs, query, n, y_.get(), lengths, rest ? suffix_.get() : nullptr, most, values, kept_);
            counts_[rows < n ? kAbandoned : kCompared] += used;
            counts_[kCells] += used * rows * min(m, 2 * radius_of(pairs.window, n, m) + 1 + max(n - m, m - n));
            if (rows < n) continue;
            Match found[W<T>];
            int64_t matches = 0;
            for (int64_t l = 0; l < used; ++l) {
                const T value = problem_.by_lengths ? values[l] / T(n + m) : values[l];
                if (double(value) <= threshold) found[matches++] = {double(value), candidates[i + l].item, candidates[i + l].start, m};
            }
            if (matches) problem_.matches->add(q, found, matches);
        }
    }

private:
    const SearchProblem& problem_;
    int64_t counts_[kCounts] = {};
    Buffer<T> y_, suffix_;
    DtwKept kept_;

    void lay_out(const Candidate& candidate, int l) {
        const Problem& pairs = problem_.pairs;
        const int64_t channels = pairs.channels;
        const T* from = static_cast<const T*>(pairs.y) + (candidate.item * pairs.y_steps + candidate.start) * channels;
        T* to = y_.get() + l;
        if (!problem_.normalize) {
            for (int64_t i = 0; i < problem_.window * channels; ++i) to[i * W<T>] = from[i];
            return;
        }
        for (int64_t c = 0; c < channels; ++c) {
            const Moments moments(from + c, problem_.window, channels);
            for (int64_t i = c; i < problem_.window * channels; i += channels) to[i * W<T>] = moments(from[i]);
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
