// The second derivative of soft-DTW, times a tangent.
#pragma once
#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

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

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
