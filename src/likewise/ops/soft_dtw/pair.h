// Soft-DTW of one pair at a time: values, and expected alignments strip by strip.
#pragma once
#include "../scaled.h"
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

template <class T> class SoftAligner {
public:
    explicit SoftAligner(const Problem& problem) : costs_(problem) {}

    T value(int64_t pair) {
        begin(pair);
        int64_t below = 0;
        const int64_t height = costs_.ahead() ? kBlockRows<T> : costs_.n;
        for (int64_t top = 0; top < costs_.n; top += height) {
            below = 1 - below;
            forward(top, min(height, costs_.n - top), rows_[1 - below], rows_[below], NoShares{});
        }
        return finish(rows_[below], T(0), nullptr);
    }

    // The pair's value; its expected alignment times `weight` goes to the result of sink(top), strip by strip, each of
    // which ends with done(top, rows).
    template <class Sink, class Done> T expected(int64_t pair, T weight, const Sink& sink, const Done& done) {
        begin(pair);
        const int64_t n = costs_.n, m = costs_.m;
        // Shares of as many rows as fit the cache; beyond that, of about sqrt(n) rows, and the rows between the
        // strips are kept: O(m sqrt(n)) memory, one more forward pass.
        int64_t height = max(int64_t(64), kCellsAtOnce / m);
        while (height * height < n) height *= 2;
        // Costs computed ahead take (height + m) * height numbers.
        while (costs_.ahead() && height > kBlockRows<T> && (height + m) * height > 4 * kCellsAtOnce) height /= 2;
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
            done(top, rows);
        }
        return result;
    }

    // d/de of the plan of cost + e * tangent, to `product` (row-major).
    void hessian(int64_t pair, const T* tangent, T* product);

    const PairCosts<T>& costs() const { return costs_; }
    int64_t height() const { return diagonals_.rows; }  // of the strip

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

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
