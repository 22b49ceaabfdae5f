// Additive attention: a = softmax over positions p of w . tanh(W1 q_p + W2 u), and the summary sum_p a_p q_p. Lanes are
// positions. A map is read once in each direction, and not where it ends in padding; backwards, tanh is computed again,
// which is cheaper than keeping it.
#include "kernel.h"

#include "../activations.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Sums of kFeatures features and two channels or two vectors of positions stay in registers.
constexpr int kFeatures = kBytes == 64 ? 8 : 4;
template <class T> constexpr T kLog2e = T(1.44269504088896340736);

template <class T> class Attention {
public:
    explicit Attention(const AttentionLayer& layer)
        : layer_(layer), rows_((layer.features + kFeatures - 1) / kFeatures * kFeatures),
          width_((layer.positions + W<T> - 1) / W<T> * W<T>) {
        // W1 by channels, with zeros for features beyond the last: those have no weight in the scores.
        inward_.reserve((layer.channels + 1) * rows_);
        fill(inward_.get(), (layer.channels + 1) * rows_, T(0));
        for (int64_t r = 0; r < layer.features; ++r)
            for (int64_t c = 0; c < layer.channels; ++c) inward_[c * rows_ + r] = weight(layer.inward)[r * layer.channels + c];
        clean_.reserve(layer.channels * width_);
        real_.reserve(width_);
        hidden_.reserve(rows_ * width_);
        scores_.reserve(width_);
        slopes_.reserve(width_);
    }

    void forward(int64_t item, T* weights, T* summary) {
        select(item);
        hide(item);
        fill(scores_.get(), here_, T(0));
        for (int64_t r = 0; r < layer_.features; ++r) {
            const V<T> w = splat(weight(layer_.outward)[r]);
            for (int64_t p = 0; p < here_; p += W<T>)
                store(scores_.get() + p, load(scores_.get() + p) + w * load(hidden_.get() + r * width_ + p));
        }
        V<T> highest = splat(-kInfinity<T>), total = {};
        for (int64_t p = 0; p < here_; p += W<T>)
            highest = max(highest, load(real_.get() + p) > V<T>{} ? load(scores_.get() + p) : splat(-kInfinity<T>));
        T top = highest[0];
        for (int l = 1; l < W<T>; ++l) top = max(top, highest[l]);
        for (int64_t p = 0; p < here_; p += W<T>) {
            const V<T> power = (load(scores_.get() + p) - splat(top)) * kLog2e<T>;  // of 2
            const Scaled<T> found = scaled_exp2<T>(max(power, splat(T(-Format<T>::bias))));
            const V<T> share = load(real_.get() + p) > V<T>{} ? found.mantissa * power_of_two<T>(found.exponent) : V<T>{};
            total += share;
            store(scores_.get() + p, share);
        }
        const V<T> all = splat(sum_of<T>(total));
        for (int64_t p = 0; p < here_; p += W<T>) store(scores_.get() + p, load(scores_.get() + p) / all);
        for (int64_t p = 0; p < layer_.positions; ++p) weights[p] = p < here_ ? scores_[p] : T(0);
        for (int64_t c = 0; c < layer_.channels; c += W<T>) {
            const int64_t count = min(int64_t(W<T>), layer_.channels - c);
            V<T> sums[W<T>] = {};
            for (int64_t k = 0; k < count; ++k)
                for (int64_t p = 0; p < here_; p += W<T>) sums[k] += load(scores_.get() + p) * load(map_ + (c + k) * stride_ + p);
            const V<T> found = sums_of_each<T>(sums);
            for (int64_t k = 0; k < count; ++k) summary[c + k] = found[k];
        }
    }

    // Before and after the gradients of some items.
    void begin() {
        fill(inward_sums_.reserve(layer_.channels * rows_), layer_.channels * rows_, V<T>{});
        fill(outward_sums_.reserve(layer_.features), layer_.features, V<T>{});
    }
    void finish(T* by_rest) const {
        const int64_t channels = layer_.channels;
        for (int64_t r = 0; r < layer_.features; ++r, by_rest += channels + 1) {
            for (int64_t c = 0; c < channels; ++c) by_rest[c] = sum_of<T>(inward_sums_[c * rows_ + r]);
            by_rest[channels] = sum_of<T>(outward_sums_[r]);
        }
    }

    void backward(int64_t item, const T* weights, const T* by_summary, const T* by_weights, T* by_values,
                  T* by_wanted) {
        select(item);
        const int64_t positions = layer_.positions;
        for (int64_t p = 0; p < here_; ++p) {
            scores_[p] = p < positions ? weights[p] : T(0);
            slopes_[p] = by_weights && p < positions ? by_weights[p] : T(0);  // by the scores
        }
        for (int64_t c = 0; c < layer_.channels; ++c) {
            const V<T> factor = splat(by_summary[c]);
            for (int64_t p = 0; p < here_; p += W<T>)
                store(slopes_.get() + p, load(slopes_.get() + p) + factor * load(map_ + c * stride_ + p));
        }
        V<T> mean = {};
        for (int64_t p = 0; p < here_; p += W<T>) mean += load(slopes_.get() + p) * load(scores_.get() + p);
        const V<T> middle = splat(sum_of<T>(mean));
        for (int64_t p = 0; p < here_; p += W<T>)
            store(slopes_.get() + p, load(scores_.get() + p) * (load(slopes_.get() + p) - middle));
        hide(item);
        // tanh becomes the derivative by its argument.
        for (int64_t r = 0; r < layer_.features; ++r) {
            const V<T> w = splat(weight(layer_.outward)[r]);
            V<T> total = {}, outward = {};
            for (int64_t p = 0; p < here_; p += W<T>) {
                const V<T> hidden = load(hidden_.get() + r * width_ + p), slope = load(slopes_.get() + p);
                const V<T> before = slope * w * (T(1) - hidden * hidden);
                outward += slope * hidden;
                total += before;
                store(hidden_.get() + r * width_ + p, before);
            }
            outward_sums_[r] += outward;
            by_wanted[r] = sum_of<T>(total);
        }
        for (int64_t r = layer_.features; r < rows_; ++r) fill(hidden_.get() + r * width_, here_, T(0));
        const int64_t channels = layer_.channels;
        for (int64_t r = 0; r < rows_; r += kFeatures) {
            for (int64_t c = 0; c + 2 <= channels; c += 2) add_inward<2>(c, r);
            if (channels % 2) add_inward<1>(channels - 1, r);
        }
        if (!by_values) return;
        for (int64_t c = 0; c < channels; c += kFeatures)
            write_values(c, min(int64_t(kFeatures), channels - c), by_summary, by_values);
    }

private:
    const AttentionLayer& layer_;
    const int64_t rows_, width_;  // features and positions in whole blocks and vectors
    const T *map_ = nullptr, *next_ = nullptr;
    int64_t stride_ = 0, here_ = 0;  // here_: positions up to the last real one, in whole vectors
    Buffer<T> inward_, clean_, real_, hidden_, scores_, slopes_;
    Buffer<V<T>> inward_sums_, outward_sums_;

    static const T* weight(const void* from) { return static_cast<const T*>(from); }

    // The map of an item; in a copy, padding before the last real position is zero, and so is the rest of a vector.
    void select(int64_t item) {
        const int64_t channels = layer_.channels, positions = layer_.positions;
        const bool* mask = layer_.mask ? layer_.mask + item * positions : nullptr;
        map_ = weight(layer_.values) + item * channels * positions;
        next_ = map_ + channels * positions;
        stride_ = positions;
        int64_t last = positions, count = positions;
        if (mask) {
            while (last > 1 && !mask[last - 1]) --last;
            count = 0;
            for (int64_t p = 0; p < last; ++p) count += mask[p];
        }
        here_ = (last + W<T> - 1) / W<T> * W<T>;
        T* real = real_.get();
        for (int64_t p = 0; p < here_; ++p) real[p] = p < last && (!mask || mask[p]) ? T(1) : T(0);
        if (count == here_) return;
        const int64_t whole = min(here_, positions / W<T> * W<T>);
        for (int64_t c = 0; c < channels; ++c) {
            const T* from = map_ + c * positions;
            T* to = clean_.get() + c * width_;
            for (int64_t p = 0; p < whole; p += W<T>) store(to + p, load(real + p) > V<T>{} ? load(from + p) : V<T>{});
            for (int64_t p = whole; p < here_; ++p) to[p] = real[p] > 0 ? from[p] : T(0);
        }
        map_ = clean_.get(), stride_ = width_;
    }

    // tanh(W1 q + W2 u).
    void hide(int64_t item) {
        for (int64_t r = 0; r < rows_; r += kFeatures) {
            int64_t p = 0;
            for (; p + 2 * W<T> <= here_; p += 2 * W<T>) hide<2>(item, r, p);
            if (p < here_) hide<1>(item, r, p);
        }
    }

    template <int N> void hide(int64_t item, int64_t first, int64_t p) {
        const T *wanted = weight(layer_.wanted) + item * layer_.features, *inward = inward_.get() + first;
        V<T> sum[kFeatures][N];
        for (int r = 0; r < kFeatures; ++r)
            for (int n = 0; n < N; ++n) sum[r][n] = splat(first + r < layer_.features ? wanted[first + r] : T(0));
        for (int64_t c = 0; c < layer_.channels; ++c) {
            V<T> q[N];
            for (int n = 0; n < N; ++n) q[n] = load(map_ + c * stride_ + p + n * W<T>);
            if (first == 0)  // the next item's map, which is not in the cache
                for (int n = 0; n < N; ++n) __builtin_prefetch(next_ + c * layer_.positions + p + n * W<T>, 0, 2);
            for (int r = 0; r < kFeatures; ++r)
                for (int n = 0; n < N; ++n) sum[r][n] += splat(inward[c * rows_ + r]) * q[n];
        }
        for (int r = 0; r < kFeatures; ++r)
            for (int n = 0; n < N; ++n)
                store(hidden_.get() + (first + r) * width_ + p + n * W<T>, hyperbolic_tangent<T>(sum[r][n] * kTangent<T>));
    }

    // The lanes of a sum are added up once, after all items.
    template <int N> void add_inward(int64_t channel, int64_t first) {
        V<T>* to = inward_sums_.get() + channel * rows_ + first;
        V<T> sum[N][kFeatures];
        for (int n = 0; n < N; ++n)
            for (int r = 0; r < kFeatures; ++r) sum[n][r] = to[n * rows_ + r];
        for (int64_t p = 0; p < here_; p += W<T>) {
            V<T> q[N];
            for (int n = 0; n < N; ++n) q[n] = load(map_ + (channel + n) * stride_ + p);
            for (int r = 0; r < kFeatures; ++r) {
                const V<T> before = load(hidden_.get() + (first + r) * width_ + p);
                for (int n = 0; n < N; ++n) sum[n][r] += before * q[n];
            }
        }
        for (int n = 0; n < N; ++n)
            for (int r = 0; r < kFeatures; ++r) to[n * rows_ + r] = sum[n][r];
    }

    // Gradients by `count` channels of the map, at most kFeatures, from `first` on.
    void write_values(int64_t first, int64_t count, const T* by_summary, T* by_values) {
        const int64_t positions = layer_.positions;
        const T* inward[kFeatures];
        T factor[kFeatures];
        for (int k = 0; k < kFeatures; ++k) {  // beyond the last channel, zeros
            inward[k] = inward_.get() + (k < count ? first + k : layer_.channels) * rows_;
            factor[k] = k < count ? by_summary[first + k] : T(0);
        }
        for (int64_t p = 0; p < here_; p += W<T>) {
            V<T> sum[kFeatures];
            const V<T> share = load(scores_.get() + p);
            for (int k = 0; k < kFeatures; ++k) sum[k] = share * factor[k];
            for (int64_t r = 0; r < rows_; ++r) {
                const V<T> before = load(hidden_.get() + r * width_ + p);
                for (int k = 0; k < kFeatures; ++k) sum[k] += before * inward[k][r];
            }
            for (int64_t k = 0; k < count; ++k) {
                T* to = by_values + (first + k) * positions + p;
                if (p + W<T> <= positions) store(to, sum[k]);
                else for (int64_t l = 0; p + l < positions; ++l) to[l] = sum[k][l];
            }
        }
        for (int64_t k = first; k < first + count; ++k)
            for (int64_t p = here_; p < positions; ++p) by_values[k * positions + p] = 0;
    }
};

template <class T> void forward_of(const AttentionLayer& layer, T* weights, T* summaries, int64_t stride, int64_t begin, int64_t end) {
    Attention<T> attention(layer);
    for (int64_t b = begin; b < end; ++b) attention.forward(b, weights + b * layer.positions, summaries + b * stride);
}

template <class T>
void backward_of(const AttentionLayer& layer, const T* weights, const T* by_summaries, int64_t stride, const T* by_weights,
                 T* by_values, T* by_wanted, T* by_rest, int64_t begin, int64_t end) {
    Attention<T> attention(layer);
    attention.begin();
    const int64_t positions = layer.positions, size = layer.channels * positions;
    for (int64_t b = begin; b < end; ++b)
        attention.backward(b, weights + b * positions, by_summaries + b * stride, by_weights ? by_weights + b * positions : nullptr,
                           by_values ? by_values + b * size : nullptr, by_wanted + b * layer.features);
    attention.finish(by_rest);
}

}  // namespace

void attention_forward(const AttentionLayer& layer, void* weights, void* summaries, int64_t stride, int64_t begin, int64_t end) {
    if (layer.float64) forward_of(layer, static_cast<double*>(weights), static_cast<double*>(summaries), stride, begin, end);
    else forward_of(layer, static_cast<float*>(weights), static_cast<float*>(summaries), stride, begin, end);
}

void attention_backward(const AttentionLayer& layer, const void* weights, const void* by_summaries, int64_t stride,
                        const void* by_weights, void* by_values, void* by_wanted, void* by_rest, int64_t begin,
                        int64_t end) {
    const auto run = [&](auto* values) {
        using T = typename std::remove_pointer<decltype(values)>::type;
        backward_of<T>(layer, static_cast<const T*>(weights), static_cast<const T*>(by_summaries), stride,
                       static_cast<const T*>(by_weights), values, static_cast<T*>(by_wanted), static_cast<T*>(by_rest), begin,
                       end);
    };
    if (layer.float64) run(static_cast<double*>(by_values));
    else run(static_cast<float*>(by_values));
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
