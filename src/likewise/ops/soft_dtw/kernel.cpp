// Soft-DTW: R(i, j) = cost(i, j) - gamma log(e^(-R(i-1,j-1)/gamma) + e^(-R(i-1,j)/gamma) + e^(-R(i,j-1)/gamma)).
//
// The recurrence runs on P = e^(-R / gamma), where it is a sum and a product,
//     P(i, j) = 2^(-cost(i, j) / (gamma ln 2)) * (P(i-1, j-1) + P(i-1, j) + P(i, j-1)),
// with P held as mantissa * 2^exponent, both floating point: it cannot overflow or underflow at any gamma, it needs
// one exponential a cell and no logarithm, and its rounding errors do not grow with R / gamma.
// The share of each predecessor in the sum is the probability of coming from it: the backward pass walks these
// shares from the end and gathers the expected alignment E = d value / d cost.
#include "kernel.h"

#include "../scaled.h"
#include "lanes.h"
#include "wavefront.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kDiagonals = 256;  // between two looks whether to stop

// One row of P, P(., j) at [j + 1].
template <class T> struct Row {
    T *mantissa, *exponent;
};

// Where the shares of a strip's cells are kept, antidiagonal by antidiagonal. The diagonal's share is the rest.
template <class T> struct Shares {
    const Diagonals& diagonals;
    T *up, *left;
    INLINE int64_t at(int64_t i, int64_t d) const { return diagonals.origin()[d] + i; }
    INLINE void operator()(int64_t i, int64_t d, V<T> from_up, V<T> from_left, V<T> sum) const {
        const V<T> scale = T(1) / sum;
        store(up + at(i, d), from_up * scale);
        store(left + at(i, d), from_left * scale);
    }
};
struct NoShares {
    template <class X> INLINE void operator()(int64_t, int64_t, X, X, X) const {}
};

// P over one strip, given the row above it; writes the strip's last row to `below`.
template <class T, class Costs, class Record>
INLINE void sweep(const Diagonals& diagonals, const Costs ground, double gamma, Row<T> above, Row<T> below,
                  Buffer<T>& scratch, const Record record) {
    constexpr T kUnreachable = Format<T>::unreachable;
    const int64_t rows = diagonals.rows, columns = diagonals.columns, size = antidiagonal_size<T>(rows);
    T* base = scratch.reserve(6 * size);
    Row<T> now{base, base + 3 * size}, before{base + size, base + 4 * size}, earlier{base + 2 * size, base + 5 * size};
    fill(base, 3 * size, T(1));
    fill(base + 3 * size, 3 * size, kUnreachable);
    fill(below.mantissa, columns + 1, T(1));
    fill(below.exponent, columns + 1, kUnreachable);
    auto copy = [](Row<T> to, int64_t i, Row<T> from, int64_t j) INLINE_LAMBDA {
        to.mantissa[i] = from.mantissa[j];
        to.exponent[i] = from.exponent[j];
    };
    copy(before, 0, above, diagonals.begin + 1);
    copy(earlier, 0, above, diagonals.begin);
    const T scale = T(-1.44269504088896340736 / gamma);
    for (int64_t d = diagonals.begin; d < diagonals.end; ++d) {
        if (d % kDiagonals == 0) stop_if_asked();
        const int64_t first = diagonals.first(d), last = diagonals.last(d);
        for (int64_t i = first; i <= last; i += W<T>) {
            const Scaled<T> left{load(before.mantissa + i + 1), load(before.exponent + i + 1)};
            const Scaled<T> up{load(before.mantissa + i), load(before.exponent + i)};
            const Scaled<T> diagonal{load(earlier.mantissa + i), load(earlier.exponent + i)};
            const auto at = [&](V<T> from_up, V<T> from_left, V<T> sum) INLINE_LAMBDA { record(i, d, from_up, from_left, sum); };
            const Scaled<T> cell = next_cell<T>(diagonal, up, left, ground(i, d) * scale, at);
            store(now.mantissa + i + 1, cell.mantissa);
            store(now.exponent + i + 1, cell.exponent);
        }
        now.exponent[last + 2] = kUnreachable;
        now.exponent[first] = kUnreachable;
        now.mantissa[last + 2] = now.mantissa[first] = T(1);
        if (first == 0 && d + 1 < columns) copy(now, 0, above, d + 2);
        if (last == rows - 1 && first <= last) copy(below, d - last + 1, now, last + 1);
        const Row<T> spare = earlier;
        earlier = before;
        before = now;
        now = spare;
    }
}

// Expected alignment over one strip, from the last antidiagonal to the first. incoming[j] enters at the last row's
// column j; outgoing[j] leaves for column j of the row above. Calls take(E, i, d, count) for every vector of cells.
template <class T, class Take>
INLINE void walk_back(const Shares<T>& shares, const T* incoming, T* outgoing, Buffer<T>& scratch, const Take take) {
    const Diagonals& diagonals = shares.diagonals;
    const int64_t rows = diagonals.rows, size = antidiagonal_size<T>(rows);
    T* base = scratch.reserve(7 * size);
    fill(base, 7 * size, T(0));
    // The flow from antidiagonal d up, left and diagonally; cell (i, d) at [i + 1].
    T *up = base, *up_next = base + size, *left = base + 2 * size, *left_next = base + 3 * size;
    T *diagonal = base + 4 * size, *diagonal_next = base + 5 * size, *diagonal_later = base + 6 * size;
    fill(outgoing, diagonals.columns, T(0));
    for (int64_t d = diagonals.end - 1; d >= diagonals.begin; --d) {
        if (d % kDiagonals == 0) stop_if_asked();
        const int64_t first = diagonals.first(d), last = diagonals.last(d);
        if (last == rows - 1 && first <= last) left_next[last + 1] += incoming[d - last];
        for (int64_t i = first; i <= last; i += W<T>) {
            const int64_t count = min(int64_t(W<T>), last - i + 1);
            V<T> expected = load(up_next + i + 2) + load(left_next + i + 1) + load(diagonal_later + i + 2);
            if (count < W<T>) expected = keep<T>(expected, count);
            const V<T> share_up = load(shares.up + shares.at(i, d)), share_left = load(shares.left + shares.at(i, d));
            store(up + i + 1, expected * share_up);
            store(left + i + 1, expected * share_left);
            store(diagonal + i + 1, expected * max(T(1) - share_up - share_left, V<T>{}));
            take(expected, i, d, count);
        }
        up[last + 2] = left[last + 2] = diagonal[last + 2] = T(0);
        up[first] = left[first] = diagonal[first] = T(0);
        if (first == 0 && first <= last) {
            if (d < diagonals.columns) outgoing[d] += up[1];
            if (d > 0) outgoing[d - 1] += diagonal[1];
        }
        T* spare = up_next;
        up_next = up, up = spare;
        spare = left_next;
        left_next = left, left = spare;
        spare = diagonal_later;
        diagonal_later = diagonal_next, diagonal_next = diagonal, diagonal = spare;
    }
}

// E into d/dx and d/dy of one pair, laid out like Packed.
template <class T, bool kEuclidean> struct GradientSink {
    SquaredGround<T> ground;
    T *x_grad, *y_grad;
    GradientSink(const Packed<T>& pair, T* x_grad, T* y_grad, int64_t top)
        : ground(pair, top), x_grad(x_grad + top), y_grad(y_grad + pair.m - 1) {}
    INLINE void operator()(V<T> expected, int64_t i, int64_t d, int64_t) const {
        V<T> factor = expected + expected;
        if constexpr (kEuclidean) {
            const V<T> distance = square_root<T>(ground(i, d));
            factor = distance > V<T>{} ? expected / distance : V<T>{};
        }
        const T *x = ground.x + i, *y = ground.y - d + i;
        T *gx = x_grad + i, *gy = y_grad - d + i;
        for (int64_t k = 0; k < ground.channels; ++k) {
            const V<T> step = factor * (load(x) - load(y));
            store(gx, load(gx) + step);
            store(gy, load(gy) - step);
            x += ground.x_stride, gx += ground.x_stride;
            y += ground.y_stride, gy += ground.y_stride;
        }
    }
};
template <class T> struct PlanSink {
    T* plan;  // row-major, at the strip's first row
    int64_t stride;
    INLINE void operator()(V<T> expected, int64_t i, int64_t d, int64_t count) const {
        unskew<T>(expected, i, d, count, plan, stride);
    }
};

template <class T> class SoftAligner {
public:
    explicit SoftAligner(const Problem& problem) : costs_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        forward(0, costs_.n, rows_[0], rows_[1], NoShares{});
        return finish(rows_[1], T(0), nullptr);
    }

    // The pair's value; its expected alignment times `weight` goes to `sink(strip, top)`'s result, strip by strip.
    template <class Sink> T expected(int64_t pair, T weight, Sink&& sink) {
        begin(pair);
        const int64_t n = costs_.n, m = costs_.m;
        // Shares of as many rows as fit the cache; beyond that, of about sqrt(n) rows, and the rows between the
        // strips are kept: O(m sqrt(n)) memory, one more forward pass.
        int64_t height = max(int64_t(64), kCellsAtOnce / m);
        while (height * height < n) height *= 2;
        const int64_t strips = (n + height - 1) / height;
        borders_.reserve(2 * (strips + 1) * (m + 1));
        auto border = [&](int64_t s) {
            T* at = borders_.get() + 2 * s * (m + 1);
            return Row<T>{at, at + m + 1};
        };
        std::memcpy(border(0).mantissa, rows_[0].mantissa, sizeof(T) * size_t(m + 1));
        std::memcpy(border(0).exponent, rows_[0].exponent, sizeof(T) * size_t(m + 1));
        for (int64_t s = 0; s + 1 < strips; ++s) forward(s * height, height, border(s), border(s + 1), NoShares{});
        T result = 0;
        incoming_.reserve(m);
        outgoing_.reserve(m);
        for (int64_t s = strips - 1; s >= 0; --s) {
            const int64_t top = s * height, rows = min(height, n - top);
            build(top, rows);
            const Shares<T> shares = make_shares();
            forward(top, rows, border(s), rows_[1], shares);
            if (s == strips - 1) result = finish(rows_[1], weight, incoming_.get());
            else std::memcpy(incoming_.get(), outgoing_.get(), sizeof(T) * size_t(m));
            walk_back<T>(shares, incoming_.get(), outgoing_.get(), scratch_, sink(top));
        }
        return result;
    }

    // d/de of the plan of cost + e * tangent, to `product` (row-major).
    void hessian(int64_t pair, const T* tangent, T* product);

    PairCosts<T>& costs() { return costs_; }

private:
    static constexpr int64_t kCellsAtOnce = int64_t(1) << 20;  // two shares each: 8 MB of float32

    PairCosts<T> costs_;
    Diagonals diagonals_;
    Row<T> rows_[2];
    Buffer<T> row_buffer_, scratch_, up_, left_, borders_, incoming_, outgoing_;

    void begin(int64_t pair) {
        costs_.select(pair);
        const int64_t size = costs_.m + 1;
        T* base = row_buffer_.reserve(4 * size);
        rows_[0] = {base, base + size};
        rows_[1] = {base + 2 * size, base + 3 * size};
        fill(rows_[0].mantissa, size, T(1));
        // Open at the beginning, a path enters cell (0, j) once; it has two neighbours above, each with a half.
        const bool open = costs_.problem.open_begin;
        first_row(rows_[0].exponent, costs_.m, open, open ? T(-1) : T(0), Format<T>::unreachable);
    }
    void build(int64_t top, int64_t rows) {
        diagonals_.build<T>(costs_.problem.window, costs_.n, costs_.m, top, rows, costs_.m);
    }
    Shares<T> make_shares() {
        return {diagonals_, up_.reserve(diagonals_.storage), left_.reserve(diagonals_.storage)};
    }
    template <class Record> void forward(int64_t top, int64_t rows, Row<T> above, Row<T> below, const Record& record) {
        build(top, rows);
        costs_.strip(diagonals_, top, [&](const auto& ground) {
            sweep<T>(diagonals_, ground, costs_.problem.gamma, above, below, scratch_, record);
        });
    }

    // The value, from the last row; `incoming`, if not null, gets how weight * d value enters that row's cells.
    T finish(Row<T> last, T weight, T* incoming) const {
        const int64_t m = costs_.m;
        if (!costs_.problem.open_end) {
            if (incoming) {
                fill(incoming, m, T(0));
                incoming[m - 1] = weight;
            }
            return negative_log(last.mantissa[m], last.exponent[m], costs_.problem.gamma);
        }
        T top = last.exponent[1];
        for (int64_t j = 1; j < m; ++j) top = max(top, last.exponent[j + 1]);
        auto share = [&](int64_t j) { return last.mantissa[j + 1] * std::exp2(double(last.exponent[j + 1] - top)); };
        double sum = 0;
        for (int64_t j = 0; j < m; ++j) sum += share(j);
        if (incoming)
            for (int64_t j = 0; j < m; ++j) incoming[j] = weight * T(share(j) / sum);
        return negative_log(T(sum), top, costs_.problem.gamma);
    }
};

// Mensch & Blondel (2018), arXiv:1802.03676: differentiate both passes in the direction of the tangent. Forwards,
//     R' = tangent + sum_k share_k R'_k   and   share_k' = -share_k (R'_k - sum_l share_l R'_l) / gamma;
// backwards, E' gathers share' E + share E'.
template <class T> void SoftAligner<T>::hessian(int64_t pair, const T* tangent, T* product) {
    begin(pair);
    const int64_t n = costs_.n, m = costs_.m, stride = costs_.problem.y_steps;
    build(0, n);
    const Shares<T> shares = make_shares();
    forward(0, n, rows_[0], rows_[1], shares);
    incoming_.reserve(m);
    outgoing_.reserve(m);
    finish(rows_[1], T(1), incoming_.get());

    Buffer<T> skewed(diagonals_.storage), up_change(diagonals_.storage), left_change(diagonals_.storage), last_row(m);
    skew(diagonals_, tangent, stride, skewed.get());
    const int64_t size = antidiagonal_size<T>(n);
    Buffer<T> tangents(3 * size);
    fill(tangents.get(), 3 * size, T(0));
    fill(last_row.get(), m, T(0));
    T *now = tangents.get(), *before = now + size, *earlier = before + size;
    const T rate = T(-1 / costs_.problem.gamma);
    for (int64_t d = diagonals_.begin; d < diagonals_.end; ++d) {
        if (d % kDiagonals == 0) stop_if_asked();
        const int64_t first = diagonals_.first(d), last = diagonals_.last(d);
        for (int64_t i = first; i <= last; i += W<T>) {
            const int64_t at = shares.at(i, d);
            const V<T> s_up = load(shares.up + at), s_left = load(shares.left + at);
            const V<T> r_up = load(before + i), r_left = load(before + i + 1), r_diagonal = load(earlier + i);
            const V<T> mean = s_up * r_up + s_left * r_left + (T(1) - s_up - s_left) * r_diagonal;
            store(up_change.get() + at, rate * s_up * (r_up - mean));
            store(left_change.get() + at, rate * s_left * (r_left - mean));
            store(now + i + 1, mean + load(skewed.get() + at));
        }
        // Neighbours outside the alignment have no share; any finite number will do.
        now[last + 2] = now[first] = T(0);
        if (last == n - 1 && first <= last) last_row[d - last] = now[last + 1];
        T* spare = earlier;
        earlier = before, before = now, now = spare;
    }

    // d/de of how the value enters the last row.
    Buffer<T> incoming_change(m);
    fill(incoming_change.get(), m, T(0));
    if (costs_.problem.open_end) {
        double mean = 0;
        for (int64_t j = 0; j < m; ++j) mean += double(incoming_[j]) * double(last_row[j]);
        for (int64_t j = 0; j < m; ++j) incoming_change[j] = rate * incoming_[j] * (last_row[j] - T(mean));
    }

    // Each of E and E' is passed up, left and diagonally; cell (i, d) at [i + 1].
    Buffer<T> passed(14 * size);
    fill(passed.get(), 14 * size, T(0));
    T* lane[14];
    for (int k = 0; k < 14; ++k) lane[k] = passed.get() + k * size;
    for (int64_t d = diagonals_.end - 1; d >= diagonals_.begin; --d) {
        if (d % kDiagonals == 0) stop_if_asked();
        const int64_t first = diagonals_.first(d), last = diagonals_.last(d);
        T **value = lane, **change = lane + 7;  // up, up_next, left, left_next, diagonal, diagonal_next, diagonal_later
        if (last == n - 1 && first <= last) {
            value[3][last + 1] += incoming_[d - last];
            change[3][last + 1] += incoming_change[d - last];
        }
        for (int64_t i = first; i <= last; i += W<T>) {
            const int64_t at = shares.at(i, d), count = min(int64_t(W<T>), last - i + 1);
            V<T> e = load(value[1] + i + 2) + load(value[3] + i + 1) + load(value[6] + i + 2);
            V<T> c = load(change[1] + i + 2) + load(change[3] + i + 1) + load(change[6] + i + 2);
            if (count < W<T>) e = keep<T>(e, count), c = keep<T>(c, count);
            const V<T> s_up = load(shares.up + at), s_left = load(shares.left + at);
            const V<T> c_up = c * s_up + e * load(up_change.get() + at), c_left = c * s_left + e * load(left_change.get() + at);
            store(value[0] + i + 1, e * s_up);
            store(value[2] + i + 1, e * s_left);
            store(value[4] + i + 1, e * (T(1) - s_up - s_left));
            store(change[0] + i + 1, c_up);
            store(change[2] + i + 1, c_left);
            store(change[4] + i + 1, c - c_up - c_left);
            unskew<T>(c, i, d, count, product, stride);
        }
        for (T** side = lane; side <= change; side += 7) {
            for (int k = 0; k < 6; k += 2) side[k][last + 2] = side[k][first] = T(0);
            T* spare = side[1];
            side[1] = side[0], side[0] = spare;
            spare = side[3];
            side[3] = side[2], side[2] = spare;
            spare = side[6];
            side[6] = side[5], side[5] = side[4], side[4] = spare;
        }
    }
}

template <class T> void values_of(const Problem& problem, T* values, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    for (int64_t pair = begin; pair < end; ++pair) values[pair] = aligner.value(pair);
}

// Add a channel-by-channel gradient to the item's (steps, channels).
template <class T> void add_gradient(const T* from, int64_t stride, int64_t steps, int64_t channels, bool backwards, T* to) {
    for (int64_t t = 0; t < steps; ++t)
        for (int64_t k = 0; k < channels; ++k) to[t * channels + k] += from[k * stride + (backwards ? steps - 1 - t : t)];
}

template <class T>
void gradients(const Problem& problem, bool plan, const T* weights, T* values, T* x_grad, T* y_grad, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    const Packed<T>& packed = aligner.costs().packed;
    Buffer<T> x_sum, y_sum;
    for (int64_t pair = begin; pair < end; ++pair) {
        const T weight = weights[pair];
        if (weight == T(0) && !values) continue;
        const int64_t row = row_of(problem, pair), column = column_of(problem, pair);
        if (plan) {
            T* to = x_grad + pair * problem.x_steps * problem.y_steps;
            const T value = aligner.expected(pair, weight, [&](int64_t top) { return PlanSink<T>{to + top * problem.y_steps, problem.y_steps}; });
            if (values) values[pair] = value;
            continue;
        }
        const int64_t n = problem.x_lengths[row], m = problem.y_lengths[column], channels = problem.channels;
        const int64_t x_stride = Packed<T>::x_size(n), y_stride = Packed<T>::y_size(m);
        fill(x_sum.reserve(channels * x_stride), channels * x_stride, T(0));
        fill(y_sum.reserve(channels * y_stride), channels * y_stride, T(0));
        T value;
        if (problem.ground == Ground::euclidean)
            value = aligner.expected(pair, weight, [&](int64_t top) { return GradientSink<T, true>(packed, x_sum.get(), y_sum.get(), top); });
        else
            value = aligner.expected(pair, weight, [&](int64_t top) { return GradientSink<T, false>(packed, x_sum.get(), y_sum.get(), top); });
        if (values) values[pair] = value;
        add_gradient(x_sum.get(), x_stride, n, channels, false, x_grad + row * problem.x_steps * channels);
        add_gradient(y_sum.get(), y_stride, m, channels, true, y_grad + column * problem.y_steps * channels);
    }
}

template <class T> void hessian_of(const Problem& problem, const T* tangent, T* product, int64_t begin, int64_t end) {
    SoftAligner<T> aligner(problem);
    const int64_t size = problem.x_steps * problem.y_steps;
    for (int64_t pair = begin; pair < end; ++pair) aligner.hessian(pair, tangent + pair * size, product + pair * size);
}

}  // namespace

void soft_dtw_values(const Problem& problem, void* values, int64_t begin, int64_t end) {
    if (problem.float64) values_of(problem, static_cast<double*>(values), begin, end);
    else values_of(problem, static_cast<float*>(values), begin, end);
}

void soft_dtw_value_blocks(const Problem& problem, const int64_t* order, int64_t count, void* values, int64_t begin, int64_t end) {
    const auto run = [&](auto* to) {
        SoftLanes<typename std::remove_pointer<decltype(to)>::type> lanes(problem);
        for (int64_t block = begin; block < end; ++block) lanes.values(order, count, block, to);
    };
    if (problem.float64) run(static_cast<double*>(values));
    else run(static_cast<float*>(values));
}

void soft_dtw_gradient_blocks(const Problem& problem, const int64_t* order, int64_t count, const void* weights, void* values,
                              void* x_grad, void* y_grad, int64_t begin, int64_t end) {
    const FlushTiny flush;
    const auto run = [&](auto* to) {
        using T = typename std::remove_pointer<decltype(to)>::type;
        SoftLanes<T> lanes(problem);
        for (int64_t block = begin; block < end; ++block)
            lanes.gradients(order, count, block, static_cast<const T*>(weights), to, static_cast<T*>(x_grad), static_cast<T*>(y_grad));
    };
    if (problem.float64) run(static_cast<double*>(values));
    else run(static_cast<float*>(values));
}

void soft_dtw_gradients(const Problem& problem, bool plan, const void* weights, void* values, void* x_grad, void* y_grad,
                        int64_t begin, int64_t end) {
    const FlushTiny flush;
    if (problem.float64)
        gradients(problem, plan, static_cast<const double*>(weights), static_cast<double*>(values), static_cast<double*>(x_grad),
                  static_cast<double*>(y_grad), begin, end);
    else
        gradients(problem, plan, static_cast<const float*>(weights), static_cast<float*>(values), static_cast<float*>(x_grad),
                  static_cast<float*>(y_grad), begin, end);
}

void soft_dtw_hessian(const Problem& problem, const void* tangent, void* product, int64_t begin, int64_t end) {
    const FlushTiny flush;
    if (problem.float64) hessian_of(problem, static_cast<const double*>(tangent), static_cast<double*>(product), begin, end);
    else hessian_of(problem, static_cast<const float*>(tangent), static_cast<float*>(product), begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
