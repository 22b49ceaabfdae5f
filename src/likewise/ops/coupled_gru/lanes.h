// The coupled GRU's operations on lanes: products of matrices, and conversions between rows of numbers and lanes.
#pragma once
#include <utility>

#include "../simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Whether `products` sets `to` to the bias plus the products, or adds them to it.
enum class Start { kBias, kSum };

// to[s][p] = (bias[p], or itself) + sum over j of weights[p][j] * from[s][j], for Rows outputs at a time. A function of
// its own, since otherwise the compiler keeps constants of later code in registers instead of all sums.
template <class T, int Rows, int Sides, Start Begin>
__attribute__((noinline)) void products_by(const T* weights, const T* bias, const V<T>* from, int64_t from_stride,
                                           int64_t inputs, int64_t outputs, V<T>* to, int64_t to_stride) {
    for (int64_t p = 0; p < outputs; p += Rows) {
        V<T> sums[Sides][Rows];
        for (int s = 0; s < Sides; ++s)
            for (int i = 0; i < Rows; ++i) sums[s][i] = Begin == Start::kBias ? splat(bias[p + i]) : to[s * to_stride + p + i];
        for (int64_t j = 0; j < inputs; ++j, weights += Rows) {
            V<T> values[Sides];
            for (int s = 0; s < Sides; ++s) values[s] = from[s * from_stride + j];
            for (int i = 0; i < Rows; ++i) {
                const V<T> weight = splat(weights[i]);
                for (int s = 0; s < Sides; ++s) sums[s][i] += weight * values[s];
            }
        }
        for (int s = 0; s < Sides; ++s)
            for (int i = 0; i < Rows; ++i) to[s * to_stride + p + i] = sums[s][i];
    }
}

// A matrix in the order in which `products_by` reads it, and by how many outputs at a time.
template <class T, int Sides> class Matrix {
public:
    // `weight(output, input)` and `bias(output)` say what is in it; outputs past the last are zero.
    template <class Weight, class Bias> void pack(int64_t outputs, int64_t inputs, const Weight weight, const Bias bias) {
        outputs_ = outputs;
        inputs_ = inputs;
        rows_ = best_rows(outputs);
        const int64_t padded = (outputs + rows_ - 1) / rows_ * rows_;
        T* next = weights_.reserve(padded * inputs);
        for (int64_t p = 0; p < padded; p += rows_)
            for (int64_t j = 0; j < inputs; ++j)
                for (int64_t i = p; i < p + rows_; ++i) *next++ = i < outputs ? weight(i, j) : T(0);
        bias_.reserve(padded);
        for (int64_t i = 0; i < padded; ++i) bias_[i] = i < outputs ? bias(i) : T(0);
    }

    // Outputs past the last, up to a multiple of 8, are written too, but meaningless.
    template <Start Begin>
    INLINE void products(const V<T>* from, int64_t from_stride, V<T>* to, int64_t to_stride) const {
        const auto run = rows_ == kMost ? products_by<T, kMost, Sides, Begin>
                         : rows_ == kMost - kLess ? products_by<T, kMost - kLess, Sides, Begin>
                                                  : products_by<T, kMost - 2 * kLess, Sides, Begin>;
        run(weights_.get(), bias_.get(), from, from_stride, inputs_, outputs_, to, to_stride);
    }

private:
    // Twelve sums fill the 16 registers; fewer, if that leaves fewer outputs past the last.
    static constexpr int kMost = 12 / Sides, kLess = 2 / Sides;
    Buffer<T> weights_, bias_;
    int64_t outputs_ = 0, inputs_ = 0;
    int rows_ = kMost;

    static int best_rows(int64_t outputs) {
        int best = kMost;
        const auto padded = [&](int rows) { return (outputs + rows - 1) / rows * rows; };
        for (int rows = kMost - kLess; rows >= kMost - 2 * kLess; rows -= kLess)
            if (padded(rows) < padded(best)) best = rows;
        return best;
    }
};

template <class T, int Step, bool Low, int... L>
INLINE V<T> woven(V<T> a, V<T> b, std::integer_sequence<int, L...>) {
    // Lanes of a block of Step: the low half of every two from a, the high half from b, or the other way round.
#if defined(__clang__) || __GNUC__ >= 12
    return Low ? __builtin_shufflevector(a, b, (L & Step ? W<T> + L - Step : L)...)
               : __builtin_shufflevector(a, b, (L & Step ? W<T> + L : L + Step)...);
#else
    return Low ? V<T>{(L & Step ? b[(L - Step) & (W<T> - 1)] : a[L])...} : V<T>{(L & Step ? b[L] : a[(L + Step) & (W<T> - 1)])...};
#endif
}

template <class T, int Step = 1> INLINE void transpose(V<T> (&rows)[W<T>]) {
    using Sequence = std::make_integer_sequence<int, W<T>>;
    for (int i = 0; i < W<T>; ++i) {
        if (i & Step) continue;
        const V<T> a = rows[i], b = rows[i + Step];
        rows[i] = woven<T, Step, true>(a, b, Sequence());
        rows[i + Step] = woven<T, Step, false>(a, b, Sequence());
    }
    if constexpr (2 * Step < W<T>) transpose<T, 2 * Step>(rows);
}

// to[i] += the sum of the lanes of from[i].
template <class T> INLINE void add_sums_of_lanes(const V<T>* from, int64_t count, T* to) {
    int64_t i = 0;
    for (; i + W<T> <= count; i += W<T>) {
        V<T> block[W<T>];
        for (int l = 0; l < W<T>; ++l) block[l] = from[i + l];
        transpose<T>(block);
        for (int step = W<T> / 2; step > 0; step /= 2)
            for (int l = 0; l < step; ++l) block[l] += block[l + step];
        store(to + i, load(to + i) + block[0]);
    }
    for (; i < count; ++i) {
        T sum = 0;
        for (int l = 0; l < W<T>; ++l) sum += from[i][l];
        to[i] += sum;
    }
}

// sums[j][k] = sum over q of a[q][j] * b[q][k], for a block of Rows times Columns.
template <class T, int Rows, int Columns>
INLINE void outer_block(const V<T>* a, int64_t a_stride, const V<T>* b, int64_t b_stride, int64_t count, V<T>* to,
                        int64_t to_stride) {
    V<T> sums[Rows][Columns] = {};
    for (int64_t q = 0; q < count; ++q, a += a_stride, b += b_stride) {
        V<T> values[Columns];
        for (int k = 0; k < Columns; ++k) values[k] = b[k];
        for (int j = 0; j < Rows; ++j) {
            const V<T> value = a[j];
            for (int k = 0; k < Columns; ++k) sums[j][k] += value * values[k];
        }
    }
    for (int j = 0; j < Rows; ++j)
        for (int k = 0; k < Columns; ++k) to[j * to_stride + k] = sums[j][k];
}

// to[j][k] += sum over q and lanes of a[q][j] * b[q][k]: a product of matrices. scratch: 4 times `columns`.
template <class T>
void add_outer(const V<T>* a, int64_t a_stride, int64_t rows, const V<T>* b, int64_t b_stride, int64_t columns, int64_t count,
               V<T>* scratch, T* to) {
    const auto strip = [&](int64_t j, auto block_of_three, auto block_of_one) INLINE_LAMBDA {
        int64_t k = 0;
        for (; k + 3 <= columns; k += 3) block_of_three(a + j, a_stride, b + k, b_stride, count, scratch + k, columns);
        for (; k < columns; ++k) block_of_one(a + j, a_stride, b + k, b_stride, count, scratch + k, columns);
    };
    int64_t j = 0;
    for (; j + 4 <= rows; j += 4) {
        strip(j, outer_block<T, 4, 3>, outer_block<T, 4, 1>);
        add_sums_of_lanes<T>(scratch, 4 * columns, to + j * columns);
    }
    for (; j < rows; ++j) {
        strip(j, outer_block<T, 1, 3>, outer_block<T, 1, 1>);
        add_sums_of_lanes<T>(scratch, columns, to + j * columns);
    }
}

// to[j] += the sum over lanes and rows of column j. scratch: `columns`.
template <class T>
void add_columns(const V<T>* from, int64_t stride, int64_t columns, int64_t rows, V<T>* scratch, T* to) {
    for (int64_t j = 0; j < columns; ++j) scratch[j] = from[j];
    for (int64_t q = 1; q < rows; ++q)
        for (int64_t j = 0; j < columns; ++j) scratch[j] += from[q * stride + j];
    add_sums_of_lanes<T>(scratch, columns, to);
}

// Number k of every lane's row becomes vector k.
template <class T> INLINE void rows_to_lanes(const T* const* rows, int64_t count, V<T>* to) {
    for (int64_t k = 0; k < count; k += W<T>) {
        if (k + W<T> > count) {
            if (count < W<T>) {
                for (; k < count; ++k)
                    for (int l = 0; l < W<T>; ++l) to[k][l] = rows[l][k];
                return;
            }
            k = count - W<T>;  // repeats the last ones
        }
        V<T> block[W<T>];
        for (int l = 0; l < W<T>; ++l) block[l] = load(rows[l] + k);
        transpose<T>(block);
        for (int i = 0; i < W<T>; ++i) to[k + i] = block[i];
    }
}

// And back: sets, or adds to, the rows of the first `lanes` lanes; rows that are null are left out.
template <bool Add, class T> INLINE void lanes_to_rows(const V<T>* from, int64_t count, T* const* rows, int lanes) {
    int64_t k = 0;
    for (; k + W<T> <= count; k += W<T>) {
        V<T> block[W<T>];
        for (int i = 0; i < W<T>; ++i) block[i] = from[k + i];
        transpose<T>(block);
        for (int l = 0; l < lanes; ++l)
            if (rows[l]) store(rows[l] + k, Add ? load(rows[l] + k) + block[l] : block[l]);
    }
    for (; k < count; ++k)
        for (int l = 0; l < lanes; ++l)
            if (rows[l]) rows[l][k] = Add ? rows[l][k] + from[k][l] : from[k][l];
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
