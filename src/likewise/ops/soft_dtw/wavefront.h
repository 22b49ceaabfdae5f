// One alignment at a time, antidiagonal by antidiagonal: the cells (i, j) with i + j = d depend only on the two
// antidiagonals before, so consecutive i fill the lanes. Windows are contiguous on every antidiagonal, and a tall
// alignment can be cut into strips of rows that hand one row of values to the next.
#pragma once
#include "../costs.h"
#include "../problem.h"
#include "../simd.h"
#include "../stop.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// The cells of rows [top, top + rows) of an n x m alignment inside its window and left of `columns`, by antidiagonal:
// local row i (row top + i) on antidiagonal d is column d - i, for first[d] <= i <= last[d] and begin <= d < end.
class Diagonals {
public:
    int64_t rows = 0, columns = 0, begin = 0, end = 0;
    int64_t storage = 0;  // elements that hold every cell once, each antidiagonal padded to whole vectors

    template <class T>
    void build(const Window& window, int64_t n, int64_t m, int64_t top, int64_t rows_, int64_t columns_) {
        const bool same = n == n_ && m == m_ && top == top_ && rows_ == rows && columns_ == columns;
        if (same && width_ == W<T>) return;
        n_ = n, m_ = m, top_ = top, rows = rows_, columns = columns_, width_ = W<T>;
        const int64_t count = rows + columns - 1;
        first_.reserve(count);
        last_.reserve(count);
        origin_.reserve(count);
        int64_t low, high, next_low, next_high;
        window_row(window, n, m, top, low, high);
        begin = low;
        window_row(window, n, m, top + rows - 1, next_low, next_high);
        end = rows - 1 + min(next_high, columns - 1) + 1;
        // first[d]: the smallest i with i + hi(i) >= d; last[d]: the largest i with i + lo(i) <= d.
        int64_t first = 0, last = 0, first_high = min(high, columns - 1), last_next_low = 0, unused;
        if (rows > 1) window_row(window, n, m, top + 1, last_next_low, unused);
        storage = 0;
        for (int64_t d = begin; d < end; ++d) {
            while (first + first_high < d) {
                ++first;
                window_row(window, n, m, top + first, unused, first_high);
                first_high = min(first_high, columns - 1);
            }
            while (last + 1 < rows && last + 1 + last_next_low <= d) {
                ++last;
                if (last + 1 < rows) window_row(window, n, m, top + last + 1, last_next_low, unused);
            }
            first_[d] = int32_t(first);
            last_[d] = int32_t(last);
            origin_[d] = storage - first;
            storage += (last - first + W<T>) / W<T> * W<T>;
        }
    }
    int64_t first(int64_t d) const { return first_[d]; }
    int64_t last(int64_t d) const { return last_[d]; }
    // Cell (i, d) is kept at origin()[d] + i; antidiagonals begin at multiples of W.
    const int64_t* origin() const { return origin_.get(); }

private:
    int64_t n_ = -1, m_ = -1, top_ = -1;
    int width_ = 0;
    Buffer<int32_t> first_, last_;
    Buffer<int64_t> origin_;
};

// Elements from one antidiagonal's buffer to the next: room for every row, a border on both sides and a whole last
// vector, at a third of a page. Equal page offsets would make loads wait for unrelated stores.
template <class T> int64_t antidiagonal_size(int64_t rows) {
    constexpr int64_t kPage = 4096 / sizeof(T);
    return (rows + 2 + W<T> + kPage - 1) / kPage * kPage + kPage / 3 / W<T> * W<T>;
}

// The two sequences of a pair, channel by channel, y backwards: both then run forwards along an antidiagonal.
// Zeros around them let whole vectors reach beyond the ends.
constexpr int64_t kPadVectors = 6;
template <class T> struct Packed {
    Buffer<T> x_buffer, y_buffer;
    T *x = nullptr, *y = nullptr;
    int64_t n = 0, m = 0, channels = 0, x_stride = 0, y_stride = 0;
    int64_t x_item = -1, y_item = -1;
    static constexpr int64_t kPad = kPadVectors * W<T>;
    // From channel to channel: never near a multiple of a page, since all channels would share a few sets of the cache.
    static int64_t spread(int64_t size) { return size + (size % 256 < 16 ? 16 : 0); }
    static int64_t x_size(int64_t n) { return spread(n + kPad); }
    static int64_t y_size(int64_t m) { return spread(m + 2 * kPad); }

    void pack(const Problem& problem, int64_t x_index, int64_t y_index) {
        channels = problem.channels;
        if (x_index != x_item) {
            x_item = x_index;
            n = problem.x_lengths[x_index];
            x_stride = x_size(n);
            x = x_buffer.reserve(channels * x_stride);
            const T* from = static_cast<const T*>(problem.x) + x_index * problem.x_steps * channels;
            for (int64_t k = 0; k < channels; ++k) {
                for (int64_t i = 0; i < n; ++i) x[k * x_stride + i] = from[i * channels + k];
                fill(x + k * x_stride + n, kPad, T(0));
            }
        }
        if (y_index != y_item) {
            y_item = y_index;
            m = problem.y_lengths[y_index];
            y_stride = y_size(m);
            y = y_buffer.reserve(channels * y_stride) + kPad;
            const T* from = static_cast<const T*>(problem.y) + y_index * problem.y_steps * channels;
            for (int64_t k = 0; k < channels; ++k) {
                for (int64_t j = 0; j < m; ++j) y[k * y_stride + m - 1 - j] = from[j * channels + k];
                fill(y + k * y_stride - kPad, kPad, T(0));
                fill(y + k * y_stride + m, kPad, T(0));
            }
        }
    }
};

// Squared distances of W cells (i, j), (i+1, j-1), ... with i + j = d, for a strip that begins at row `top`.
// Plain values, so that a loop keeps them in registers.
template <class T> struct SquaredGround {
    const T *x, *y;
    int64_t x_stride, y_stride, channels;
    SquaredGround(const Packed<T>& pair, int64_t top)
        : x(pair.x + top), y(pair.y + pair.m - 1), x_stride(pair.x_stride), y_stride(pair.y_stride), channels(pair.channels) {}
    INLINE V<T> operator()(int64_t i, int64_t d) const {
        const T *xi = x + i, *yi = y - d + i;
        const V<T> difference = load(xi) - load(yi);
        V<T> even = difference * difference, odd = V<T>{};
        for (int64_t k = channels - 1; k > 0; k -= 2) {
            xi += x_stride, yi += y_stride;
            const V<T> a = load(xi) - load(yi);
            odd += a * a;
            if (k == 1) break;
            xi += x_stride, yi += y_stride;
            const V<T> b = load(xi) - load(yi);
            even += b * b;
        }
        return even + odd;
    }
};
template <class T> struct EuclideanGround {
    SquaredGround<T> squared;
    INLINE V<T> operator()(int64_t i, int64_t d) const { return square_root<T>(squared(i, d)); }
};
template <class T> struct GivenGround {
    const T* skewed;
    const int64_t* origin;  // where cell (0, d) would be
    INLINE V<T> operator()(int64_t i, int64_t d) const { return load(skewed + origin[d] + i); }
};

// Costs computed ahead, a row of `stride` for every antidiagonal.
template <class T> struct StripGround {
    const T* costs;  // of antidiagonal 0
    int64_t stride;
    INLINE V<T> operator()(int64_t i, int64_t d) const { return load(costs + d * stride + i); }
};

// Lay a strip of a row-major matrix out by antidiagonal, and back.
template <class T> void skew(const Diagonals& diagonals, const T* matrix, int64_t stride, T* skewed) {
    for (int64_t d = diagonals.begin; d < diagonals.end; ++d) {
        T* to = skewed + diagonals.origin()[d];
        for (int64_t i = diagonals.first(d); i <= diagonals.last(d); ++i) to[i] = matrix[i * stride + d - i];
        // The rest of the last vector is computed and thrown away: any finite number will do.
        for (int64_t i = diagonals.last(d) + 1; (i - diagonals.first(d)) % W<T>; ++i) to[i] = T(0);
    }
}
template <class T> INLINE void unskew(V<T> values, int64_t i, int64_t d, int64_t count, T* matrix, int64_t stride) {
    for (int64_t l = 0; l < count; ++l) matrix[(i + l) * stride + d - i - l] = values[l];
}

// Costs of the strip of rows that begins at `top`, in blocks. On antidiagonal d, the rows from i on meet the columns from
// d - i backwards.
constexpr int kBlockVectors = 6;
template <class T> constexpr int64_t kBlockRows = kBlockVectors * W<T>;
template <class T>
StripGround<T> blocked_strip(const Packed<T>& pair, const Diagonals& diagonals, int64_t top, bool euclidean, Buffer<T>& scratch) {
    const int64_t blocks = (diagonals.rows + kBlockRows<T> - 1) / kBlockRows<T>, stride = blocks * kBlockRows<T>;
    // A block writes whole vectors, also where some of their cells are outside.
    const int64_t before = diagonals.begin - kBlockRows<T>, count = diagonals.end - before + kBlockRows<T>;
    T* to = scratch.reserve(count * stride) - before * stride;
    const auto y = [&](int64_t s) INLINE_LAMBDA { return pair.y + pair.m - 1 - s; };
    for (int64_t row = 0; row < diagonals.rows; row += kBlockRows<T>) {
        const auto keep = [&](int v, int64_t s, V<T> cost) INLINE_LAMBDA {
            const int64_t i = row + v * W<T>;
            store(to + (s + i) * stride + i, cost);
        };
        const int64_t begin = max(int64_t(0), diagonals.begin - row - (kBlockVectors - 1) * W<T>);
        const int64_t end = min(pair.m + W<T> - 1, diagonals.end - row);
        const Vectors<T> x{pair.x + top + row, W<T>, pair.x_stride};
        blocked_costs<kBlockVectors>(x, y, pair.y_stride, pair.channels, euclidean, begin, end, keep);
    }
    return {to, stride};
}

// The costs of one pair at a time, computed from frames or given.
template <class T> class PairCosts {
public:
    explicit PairCosts(const Problem& problem) : problem(problem) {}
    const Problem& problem;
    Packed<T> packed;
    int64_t n = 0, m = 0;

    // Costs of several channels are computed ahead, in blocks.
    bool ahead() const { return problem.ground != Ground::given && problem.channels >= 4; }
    const StripGround<T>& computed() const { return computed_; }

    void select(int64_t pair) {
        const int64_t row = row_of(problem, pair), column = column_of(problem, pair);
        n = problem.x_lengths[row];
        m = problem.y_lengths[column];
        if (problem.ground == Ground::given)
            matrix_ = static_cast<const T*>(problem.cost) + pair * problem.x_steps * problem.y_steps;
        else
            packed.pack(problem, row, column);
    }
    // Call body(ground) for the strip that `diagonals` describes and that begins at row `top`.
    template <class F> void strip(const Diagonals& diagonals, int64_t top, F&& body) {
        if (ahead()) {
            computed_ = blocked_strip(packed, diagonals, top, problem.ground == Ground::euclidean, skewed_);
            body(computed_);
        } else if (problem.ground == Ground::squared) {
            body(SquaredGround<T>(packed, top));
        } else if (problem.ground == Ground::euclidean) {
            body(EuclideanGround<T>{SquaredGround<T>(packed, top)});
        } else {
            T* to = skewed_.reserve(diagonals.storage);
            skew(diagonals, matrix_ + top * problem.y_steps, problem.y_steps, to);
            body(GivenGround<T>{to, diagonals.origin()});
        }
    }

private:
    const T* matrix_ = nullptr;
    Buffer<T> skewed_;
    StripGround<T> computed_{nullptr, 0};
};

// The row above an alignment: value(-1, j) is above[j + 1]. Unreachable but for the corner, or wholly free.
template <class T> void first_row(T* above, int64_t columns, bool open_begin, T free, T unreachable) {
    fill(above, columns + 1, open_begin ? free : unreachable);
    above[0] = free;
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
