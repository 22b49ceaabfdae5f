// What the coupled GRU does with lanes: activations, products of a matrix and a vector of lanes, and the way between
// rows of numbers and lanes.
#pragma once
#include <utility>

#include "../simd.h"
#include "../soft_dtw/scaled.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// 1 / (1 + e^-a), absolute error about 1e-7 (2e-16); 0 where that is tiny, and of minus infinity. NaN stays NaN.
template <class T> INLINE V<T> sigmoid(V<T> a) {
    constexpr T most = Format<T>::bias + 1, least = 1 - Format<T>::bias;  // 2^most is infinite
    V<T> z = a * T(-1.44269504088896340736);
    z = z > splat(most) ? splat(most) : z;
    z = z < splat(least) ? splat(least) : z;
    const V<T> whole = (z + Format<T>::round) - Format<T>::round;
    const V<T> scale = (V<T>)((I<T>)(whole + (Format<T>::round + Format<T>::bias)) << Format<T>::mantissa);
    return T(1) / (exp2_fraction(z - whole) * scale + T(1));
}
template <class T> INLINE V<T> hyperbolic_tangent(V<T> a) { return sigmoid<T>(a + a) * T(2) - T(1); }

// sums[s][i] += sum over j of weights[j][i] * vectors[s][j].
template <class T, int Rows, int Sides>
INLINE void add_products(V<T> (&sums)[Sides][Rows], const T* weights, const V<T>* const (&vectors)[Sides], int64_t count) {
    for (int64_t j = 0; j < count; ++j, weights += Rows) {
        V<T> values[Sides];
        for (int s = 0; s < Sides; ++s) values[s] = vectors[s][j];
        for (int i = 0; i < Rows; ++i) {
            const V<T> weight = splat(weights[i]);
            for (int s = 0; s < Sides; ++s) sums[s][i] += weight * values[s];
        }
    }
}

template <class T> INLINE T sum_of_lanes(V<T> value) {
    T sum = 0;
    for (int l = 0; l < W<T>; ++l) sum += value[l];
    return sum;
}

// to[j][k] += sum over q and lanes of a[q][j] * b[q][k], for a block of Rows times Columns.
template <class T, int Rows, int Columns>
INLINE void add_outer_block(const V<T>* a, int64_t a_stride, const V<T>* b, int64_t b_stride, int64_t count, T* to,
                            int64_t to_stride) {
    V<T> sums[Rows][Columns] = {};
    for (int64_t q = 0; q < count; ++q, a += a_stride, b += b_stride)
        for (int j = 0; j < Rows; ++j)
            for (int k = 0; k < Columns; ++k) sums[j][k] += a[j] * b[k];
    for (int j = 0; j < Rows; ++j)
        for (int k = 0; k < Columns; ++k) to[j * to_stride + k] += sum_of_lanes<T>(sums[j][k]);
}

// The same for `rows` times `columns`: a product of matrices, summed over q and lanes.
template <class T>
void add_outer(const V<T>* a, int64_t a_stride, int64_t rows, const V<T>* b, int64_t b_stride, int64_t columns, int64_t count,
               T* to) {
    int64_t j = 0;
    const auto strip = [&](auto block_of_two, auto block_of_one) INLINE_LAMBDA {
        int64_t k = 0;
        for (; k + 2 <= columns; k += 2) block_of_two(a + j, a_stride, b + k, b_stride, count, to + j * columns + k, columns);
        if (k < columns) block_of_one(a + j, a_stride, b + k, b_stride, count, to + j * columns + k, columns);
    };
    for (; j + 4 <= rows; j += 4) strip(add_outer_block<T, 4, 2>, add_outer_block<T, 4, 1>);
    for (; j < rows; ++j) strip(add_outer_block<T, 1, 2>, add_outer_block<T, 1, 1>);
}

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

// Number k of every lane's row becomes vector k.
template <class T> INLINE void rows_to_lanes(const T* const* rows, int64_t count, V<T>* to) {
    for (int64_t k = 0; k < count; k += W<T>) {
        if (k + W<T> > count) {
            if (count < W<T>) {
                for (; k < count; ++k)
                    for (int l = 0; l < W<T>; ++l) to[k][l] = rows[l][k];
                return;
            }
            k = count - W<T>;  // the last ones once more
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
