// One pair after the other: values row by row, and gradients in the same order. A layer's rows are computed when the next
// layer needs them, and only some are in memory: these stay in the cache.
#pragma once
#include "../stop.h"
#include "../scaled.h"
#include "layout.h"
#include "winograd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

#if defined(__AVX512F__)
using Bits = uint16_t;
INLINE Bits positive(Vec value) { return _mm512_cmp_ps_mask((__m512)value, _mm512_setzero_ps(), _CMP_GT_OQ); }
INLINE Vec where(Bits bits, Vec value) { return (Vec)_mm512_maskz_mov_ps(bits, (__m512)value); }
#else
using Bits = uint8_t;
INLINE Bits positive(Vec value) {
#if defined(__AVX2__)
    return Bits(_mm256_movemask_ps((__m256)(value > Vec{})));
#elif defined(__SSE2__)
    return Bits(_mm_movemask_ps((__m128)(value > Vec{})));
#else
    int bits = 0;
    for (int l = 0; l < kLanes; ++l) bits |= (value[l] > 0) << l;
    return Bits(bits);
#endif
}
INLINE Vec where(Bits bits, Vec value) {
    const I<float> lane = (I<float>{} + 1) << counting<float>();
    return ((I<float>{} + int32_t(bits)) & lane) != 0 ? value : Vec{};
}
#endif

INLINE int64_t power_of_two_of(int64_t least) {
    int64_t found = 1;
    while (found < least) found *= 2;
    return found;
}

constexpr int64_t kTimesBytes = 1 << 21;  // beyond, reading takes as long as computing

// Scratch for pairs of one size after the other.
class Pair {
public:
    explicit Pair(const TapProblem& problem)
        : p_(problem), at_(problem), hidden_(new Image[problem.layers]), slopes_(new Image[problem.layers]) {}
    ~Pair() {
        delete[] hidden_;
        delete[] slopes_;
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    // The distance of a pair; what its gradients need is written to `kept`, unless that is null.
    float value(int64_t pair, float* kept) {
        begin(pair);
        const int64_t last = at_.layers - 1, half = at_.sides[last] / 2, stride = at_.stride;
        bits_ = kept ? reinterpret_cast<Bits*>(kept + at_.kept_bits(n_ * m_)) : nullptr;
        float* const to_last = kept ? kept + at_.kept_last(n_ * m_) : nullptr;
        if (kept) fill(to_last, at_.square(last) * stride, 0.0f);
        const float bias = p_.weights[at_.bias(last)];
        double total = 0;
        for (int64_t i = 0; i < n_; ++i) {
            need_hidden(last, i + half + 1);
            const float* D = planes_[0].row(i);
            gather(hidden_[last], at_.sides[last], p_.weights + at_.weights(last), i, m_, [&](int64_t j, Vec g) INLINE_LAMBDA {
                store(score_.get() + j, -(load(D + j) + (g + bias)));
            });
            const float mean = shares(D, kept ? kept + i * m_ : nullptr);
            total += mean;
            if (!kept) continue;
            slopes_of_scores(kept + i * m_, D, mean, -1.0f / float(n_), slope_.row(0));
            for (int64_t a = 0; a < at_.sides[last]; ++a)  // image rows that the kernel's row a meets
                add_row(hidden_[last].row(i + a - half), stride, slope_.row(0) + half, -1, m_, at_.sides[last],
                        to_last + a * at_.sides[last] * stride);
        }
        return float(total / double(n_));
    }

    // Adds slope times the gradients of a pair; kept is what `value` has written.
    void gradients(int64_t pair, float slope, const float* kept, float* x_grad, float* y_grad, float* sums) {
        begin(pair);
        begin_back();
        sums_ = sums;
        const int64_t last = at_.layers - 1, stride = at_.stride, side = at_.sides[0], half = side / 2;
        bits_ = reinterpret_cast<Bits*>(const_cast<float*>(kept + at_.kept_bits(n_ * m_)));
        const float* from_last = kept + at_.kept_last(n_ * m_);
        for (int64_t k = 0; k < at_.square(last) * stride; ++k) sums[at_.weights(last) + k] += slope * from_last[k];
        for (int64_t i = 0; i < n_; ++i) {
            const float *share = kept + i * m_, *D = planes_[0].row(i);
            float mean = 0;
            for (int64_t j = 0; j < m_; ++j) mean += share[j] * D[j];
            slopes_of_scores(share, D, mean, -slope / float(n_), slope_.row(i));
            for (int64_t j = 0; j < m_; ++j) sums[at_.bias(last)] += slope_.row(i)[j];
        }
        const int64_t item = p_.items[pair], other = p_.others[pair];
        for (int64_t i = 0; i < n_; ++i) {
            need_slopes(0, i + half + 1);
            const float* image = slopes_[0].row(i);
            for (int64_t plane = 0; plane < 2; ++plane)
                for (int64_t a = 0; a < side; ++a)
                    add_row(image, stride, planes_[plane].row(i + a - half) - half, 1, m_, side,
                            sums + at_.weights(0) + (plane * side + a) * side * stride);
            const float *D = planes_[0].row(i), *share = kept + i * m_, *direct = slope_.row(i);
            gather(slopes_[0], side, p_.weights + at_.back(0), i, m_, [&](int64_t j, Vec through) INLINE_LAMBDA {
                const Vec own = keep<float>(load(D + j), m_ - j), given = keep<float>(load_up_to(share + j, m_ - j), m_ - j);
                const Vec total = through + load(direct + j) + given * (slope / float(n_));
                store(score_.get() + j, own > Vec{} ? total * (p_.unit / own) : Vec{});
            });
            add_to_frames(i, item, other, x_grad, y_grad);
        }
    }

private:
    const TapProblem& p_;
    const Layout at_;
    int64_t n_ = 0, m_ = 0;
    bool backwards_ = false;
    Plane planes_[2], slope_;   // D and time; derivatives of g
    Image *hidden_, *slopes_;   // images after each layer, and their derivatives before its ReLU; [0] is the first's
    Bits* bits_ = nullptr;      // where the last image is positive
    float* sums_ = nullptr;
    Buffer<float> score_, columns_, more_columns_, points_, more_points_;
    Buffer<float> times_;       // what times add to the first convolution: (n, m, stride)
    bool times_known_ = false;

    INLINE int64_t results_of(int64_t layer) const { return kTile + 1 - at_.sides[layer]; }
    INLINE Vec load_up_to(const float* from, int64_t count) const {
        if (count >= kLanes) return load(from);
        Vec found = {};
        for (int64_t l = 0; l < count; ++l) found[l] = from[l];
        return found;
    }

    Group group(int64_t layer, int64_t first) const {
        const int64_t size = results_of(layer), across = (m_ + size - 1) / size;
        const int64_t left = (n_ - first + size - 1) / size;
        return {first, across, min(left, max<int64_t>(1, kTilesAtOnce / across))};
    }

    // Rows that may be needed at once: those of a group's tiles, and as many again for each layer that is ahead.
    int64_t rows_in_memory() const {
        int64_t most = 2 * kTile;
        for (int64_t l = 1; l < at_.layers - 1; ++l) most = max(most, group(l, 0).down * results_of(l) + kTile);
        return power_of_two_of(min((at_.layers - 1) * most, n_ + 4 * Image::kTop + most));
    }

    void begin(int64_t pair) {
        stop_if_asked();
        const int64_t item = p_.items[pair], other = p_.others[pair], n = p_.x_lengths[item], m = p_.y_lengths[other];
        const bool same = n == n_ && m == m_;
        n_ = n;
        m_ = m;
        if (same && !times_known_) know_times();
        if (!same) {
            backwards_ = times_known_ = false;
            score_.reserve(m + 2 * kLanes);
            for (int q = 0; q < 2; ++q) planes_[q].reshape(n, m);
            slope_.reshape(n, m);
            for (int64_t l = 1; l < at_.layers - 1; ++l) {
                const Group most = group(l, 0);
                const int64_t points = most.points(at_.stride), each = results_of(l);
                points_.reserve(points);
                more_points_.reserve(points);
                columns_.reserve(most.rows(each, kTile - each, at_.stride));
                more_columns_.reserve(most.rows(each, 0, at_.stride));
            }
            for (int64_t i = 0; i < n; ++i)
                for (int64_t j = 0; j < m; ++j)
                    planes_[1].row(i)[j] = std::fabs(float(i + 1) / float(n) - float(j + 1) / float(m));
            for (int64_t l = 1; l < at_.layers; ++l) hidden_[l].reshape(rows_in_memory(), m, at_.stride);
        }
        for (int64_t l = 1; l < at_.layers; ++l) hidden_[l].begin();
        const float *x = p_.x + item * p_.x_steps * p_.channels, *y = p_.y + other * p_.channels * p_.y_steps;
        for (int64_t i = 0; i < n; ++i, x += p_.channels)
            for (int64_t j = 0; j < m; j += kLanes) {
                Vec total = {};
                for (int64_t c = 0; c < p_.channels; ++c) {
                    const Vec apart = load(y + c * p_.y_steps + j) - x[c];
                    total += apart * apart;
                }
                store(planes_[0].row(i) + j, keep<float>(square_root<float>(total) * p_.unit, m - j));
            }
    }

    // Pairs of one size have the same times: what these add to the first convolution is computed once. (In the same order
    // as for other pairs, so that no result depends on the pairs before it.)
    void know_times() {
        if (times_size() * int64_t(sizeof(float)) > kTimesBytes) return;
        times_known_ = true;
        times_.reserve(times_size());
        const int64_t side = at_.sides[0], stride = at_.stride;
        for (int64_t i = 0; i < n_; ++i) {
            float* to = times_row(i);
            spread(planes_ + 1, 1, side, p_.weights + side * side * stride, Start{p_.weights + at_.bias(0), 0}, stride, i,
                   m_, [&](int64_t j, int64_t v, Vec value) INLINE_LAMBDA { store(to + j * stride + v * kLanes, value); });
        }
    }
    float* times_row(int64_t i) const { return times_.get() + i * m_ * at_.stride; }
    int64_t times_size() const { return (n_ * m_ + kRows) * at_.stride; }  // a block reads beyond the last cell

    void begin_back() {
        if (!backwards_)
            for (int64_t l = 0; l < at_.layers - 1; ++l) slopes_[l].reshape(rows_in_memory(), m_, at_.stride);
        backwards_ = true;
        for (int64_t l = 0; l < at_.layers - 1; ++l) slopes_[l].begin();
    }

    // Shares exp(score) of a row, which are written unless `to` is null; returns their mean of D.
    float shares(const float* D, float* to) {
        float* score = score_.get();
        for (int64_t j = m_; j < m_ + kLanes; ++j) score[j] = -kInfinity<float>;
        float most = -kInfinity<float>;
        bool number = true;
        for (int64_t j = 0; j < m_; ++j) {
            most = max(most, score[j]);
            number &= score[j] == score[j];
        }
        if (!number || most == kInfinity<float>) return std::numeric_limits<float>::quiet_NaN();
        Vec all = {}, weighted = {};
        for (int64_t j = 0; j < m_; j += kLanes) {
            const Vec z = max(Vec{} - 127.0f, (load(score + j) - most) * 1.44269504f);
            const Vec whole = (z + Format<float>::round) - Format<float>::round;
            const Vec share = exp2_fraction(z - whole) * power_of_two<float>(whole);
            store(score + j, share);
            all += share;
            weighted += share * load(D + j);
        }
        const float sum = sum_of<float>(all);
        if (to)
            for (int64_t j = 0; j < m_; ++j) to[j] = score[j] / sum;
        return sum_of<float>(weighted) / sum;
    }

    // factor times share (D - mean): the derivative with respect to the scores, times factor.
    INLINE void slopes_of_scores(const float* share, const float* D, float mean, float factor, float* to) const {
        for (int64_t j = 0; j < m_; ++j) to[j] = factor * share[j] * (D[j] - mean);
    }

    // hidden_[layer] is what goes into convolution `layer`: the results of the one before, after its ReLU.
    void need_hidden(int64_t layer, int64_t rows) {
        Image& image = hidden_[layer];
        const bool last = layer == at_.layers - 1;
        const int64_t vectors = at_.stride / kLanes;
        while (image.made < rows) {
            if (image.made >= n_) {
                image.clear(image.made++);
                continue;
            }
            const auto finish = [&](float* to, int64_t i, int64_t j, int64_t v, Vec value) INLINE_LAMBDA {
                const Vec found = value > Vec{} ? value : value != value ? value : Vec{};
                store(to + j * at_.stride + v * kLanes, found);
                if (last && bits_) bits_[(i * m_ + j) * vectors + v] = positive(found);
            };
            if (layer == 1) {
                const int64_t i = image.made++;
                float* to = image.row(i);
                const Start start = times_known_ ? Start{times_row(i), at_.stride} : Start{p_.weights + at_.bias(0), 0};
                spread(planes_, times_known_ ? 1 : 2, at_.sides[0], p_.weights, start, at_.stride, i, m_,
                       [&](int64_t j, int64_t v, Vec value) INLINE_LAMBDA { finish(to, i, j, v, value); });
                continue;
            }
            const int64_t size = results_of(layer - 1);
            const Group here = group(layer - 1, image.made);
            const float* bias = p_.weights + at_.bias(layer - 1);
            multiply(hidden_[layer - 1], layer - 1, here, p_.weights + at_.weights(layer - 1), false,
                     [&](int64_t i, int64_t j, int64_t v, Vec value) INLINE_LAMBDA {
                         finish(image.row(i), i, j, v, value + load(bias + v * kLanes));
                     });
            image.made = min(n_, here.first + here.down * size);
        }
    }

    // slopes_[layer] is the derivative with respect to the results of convolution `layer`.
    void need_slopes(int64_t layer, int64_t rows) {
        Image& image = slopes_[layer];
        const int64_t vectors = at_.stride / kLanes;
        while (image.made < rows) {
            if (image.made >= n_) {
                image.clear(image.made++);
                continue;
            }
            const int64_t first = image.made;
            if (layer == at_.layers - 2) {
                float* to = image.row(first);
                spread(&slope_, 1, at_.sides[layer + 1], p_.weights + at_.back(layer + 1), Start{nullptr, 0}, at_.stride, first, m_,
                       [&](int64_t j, int64_t v, Vec value) INLINE_LAMBDA {
                           store(to + j * at_.stride + v * kLanes, where(bits_[(first * m_ + j) * vectors + v], value));
                       });
                image.made++;
            } else {
                const Group here = group(layer + 1, first);
                need_hidden(layer + 1, first + here.down * results_of(layer + 1) + kTile);
                const Image& known = hidden_[layer + 1];
                multiply(slopes_[layer + 1], layer + 1, here, p_.weights + at_.back(layer + 1), true,
                         [&](int64_t i, int64_t j, int64_t v, Vec value) INLINE_LAMBDA {
                             const int64_t cell = j * at_.stride + v * kLanes;
                             store(image.row(i) + cell, load(known.row(i) + cell) > Vec{} ? value : Vec{});
                         });
                image.made = min(n_, first + here.down * results_of(layer + 1));
                add_products(layer + 1, here);
            }
            float* bias = sums_ + at_.bias(layer);
            for (int64_t v = 0; v < at_.stride; v += kLanes) {
                Vec sum = load(bias + v);
                for (int64_t i = first; i < image.made; ++i)
                    for (int64_t j = 0; j < m_; ++j) sum += load(image.row(i) + j * at_.stride + v);
                store(bias + v, sum);
            }
        }
    }

    // The convolution `layer` of the tiles of a group.
    template <class Finish>
    void multiply(const Image& image, int64_t layer, const Group& here, const float* weights, bool back, const Finish& finish) {
        const int64_t size = results_of(layer), rows = here.first + here.down * size + kTile;
        if (back) need_slopes(layer, rows);
        else need_hidden(layer, rows);
        const auto run = [&](auto results_each) INLINE_LAMBDA {
            constexpr int M = decltype(results_each)::value;
            input_columns<M>(image, here, columns_.get());
            for (int64_t q = 0; q < kTile; ++q) {
                const int64_t stride = at_.stride;
                input_points<M>(columns_.get() + q * here.row(M, kTile - M, stride), here, stride, points_.get());
                products(points_.get(), weights + q * kTile * at_.width * stride, here, at_.width, stride, more_points_.get());
                columns_of<M>(more_points_.get(), here, stride, more_columns_.get() + q * here.row(M, 0, stride));
            }
            results<M>(more_columns_.get(), here, at_.stride, n_, m_, finish);
        };
        for_size(size, run);
    }

    // Adds to the derivative of the weights of convolution `layer` what the tiles of a group give.
    void add_products(int64_t layer, const Group& here) {
        for_size(results_of(layer), [&](auto results_each) INLINE_LAMBDA {
            constexpr int M = decltype(results_each)::value;
            input_columns<M>(hidden_[layer], here, columns_.get());
            result_columns<M>(slopes_[layer], here, more_columns_.get());
            for (int64_t q = 0; q < kTile; ++q) {
                const int64_t stride = at_.stride;
                input_points<M>(columns_.get() + q * here.row(M, kTile - M, stride), here, stride, points_.get());
                result_points<M>(more_columns_.get() + q * here.row(M, 0, stride), here, stride, more_points_.get());
                outer_products(points_.get(), more_points_.get(), here, at_.width, stride,
                               sums_ + at_.weights(layer) + q * kTile * at_.width * stride);
            }
        });
    }

    template <class Run> INLINE static void for_size(int64_t size, const Run& run) {
        if (size == 4) run(Constant<4>());
        else if (size == 6) run(Constant<6>());
        else if (size == 2) run(Constant<2>());
        else run(Constant<8>());
    }

    // From derivatives by D, divided by D, to those of the frames.
    void add_to_frames(int64_t i, int64_t item, int64_t other, float* x_grad, float* y_grad) const {
        const float *x = p_.x + (item * p_.x_steps + i) * p_.channels, *y = p_.y + other * p_.channels * p_.y_steps;
        float *to_x = x_grad + (item * p_.x_steps + i) * p_.channels, *to_y = y_grad + other * p_.channels * p_.y_steps;
        for (int64_t c = 0; c < p_.channels; ++c) {
            Vec total = {};
            for (int64_t j = 0; j < m_; j += kLanes) {
                const Vec step = load(score_.get() + j) * (x[c] - load(y + c * p_.y_steps + j));
                total += step;
                store(to_y + c * p_.y_steps + j, load(to_y + c * p_.y_steps + j) - step);
            }
            to_x[c] += sum_of<float>(total);
        }
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
