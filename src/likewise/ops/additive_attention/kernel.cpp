// Additive attention: a = softmax over positions p of w . tanh(W1 q_p + W2 u), and the summary sum_p a_p q_p. Lanes are
// positions. A map is read once forwards; backwards tanh is computed again, which is cheaper than keeping it.
#include "kernel.h"

#include "../activations.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int kFeatures = 8;  // whose sums stay in registers

template <class T> class Attention {
public:
    explicit Attention(const AttentionLayer& layer)
        : layer_(layer), rows_((layer.features + kFeatures - 1) / kFeatures * kFeatures),
          width_((layer.positions + W<T> - 1) / W<T> * W<T>) {
        // W1 by channels, with zeros for features beyond the last: those have no weight in the scores.
        inward_.reserve(layer.channels * rows_);
        for (int64_t c = 0; c < layer.channels; ++c)
            for (int64_t r = 0; r < rows_; ++r) inward_[c * rows_ + r] = r < layer.features ? weight(layer.inward)[r * layer.channels + c] : T(0);
        clean_.reserve(layer.channels * width_);
        hidden_.reserve(rows_ * width_);
        scores_.reserve(width_);
        slopes_.reserve(width_);
    }

    void forward(int64_t item, T* weights, T* summary) {
        select(item);
        const int64_t positions = layer_.positions;
        fill(scores_.get(), width_, T(0));
        for (int64_t r = 0; r < rows_; r += kFeatures) hide(item, r);
        for (int64_t r = 0; r < layer_.features; ++r) {
            const V<T> w = splat(weight(layer_.outward)[r]);
            for (int64_t p = 0; p < width_; p += W<T>)
                store(scores_.get() + p, load(scores_.get() + p) + w * load(hidden_.get() + r * width_ + p));
        }
        const bool* mask = layer_.mask ? layer_.mask + item * positions : nullptr;
        T top = -kInfinity<T>, total = 0;
        for (int64_t p = 0; p < positions; ++p)
            if (!mask || mask[p]) top = max(top, scores_[p]);
        const V<T> shift = splat(top);
        for (int64_t p = 0; p < width_; p += W<T>) {
            // e^x is s / (1 - s) of the sigmoid s, but loses digits: by powers of two instead.
            const Scaled<T> found = scaled_exp2<T>(max((load(scores_.get() + p) - shift) * T(1.44269504088896340736), splat(T(-Format<T>::bias))));
            store(scores_.get() + p, found.mantissa * power_of_two<T>(found.exponent));
        }
        for (int64_t p = 0; p < width_; ++p) {
            if (p >= positions || (mask && !mask[p])) scores_[p] = 0;
            total += scores_[p];
        }
        for (int64_t p = 0; p < positions; ++p) weights[p] = scores_[p] = scores_[p] / total;
        for (int64_t c = 0; c < layer_.channels; ++c) {
            V<T> sum = {};
            for (int64_t p = 0; p < width_; p += W<T>) sum += load(scores_.get() + p) * load(map_ + c * stride_ + p);
            summary[c] = sum_of<T>(sum);
        }
    }

    void backward(int64_t item, const T* weights, const T* by_summary, const T* by_weights, T* by_values, T* by_wanted,
                  T* by_inward, T* by_outward) {
        select(item);
        const int64_t positions = layer_.positions, channels = layer_.channels;
        fill(scores_.get(), width_, T(0));  // the weights
        fill(slopes_.get(), width_, T(0));  // by the scores
        for (int64_t p = 0; p < positions; ++p) scores_[p] = weights[p], slopes_[p] = by_weights ? by_weights[p] : T(0);
        for (int64_t c = 0; c < channels; ++c) {
            const V<T> factor = splat(by_summary[c]);
            for (int64_t p = 0; p < width_; p += W<T>)
                store(slopes_.get() + p, load(slopes_.get() + p) + factor * load(map_ + c * stride_ + p));
        }
        V<T> mean = {};
        for (int64_t p = 0; p < width_; p += W<T>) mean += load(slopes_.get() + p) * load(scores_.get() + p);
        const V<T> middle = splat(sum_of<T>(mean));
        for (int64_t p = 0; p < width_; p += W<T>)
            store(slopes_.get() + p, load(scores_.get() + p) * (load(slopes_.get() + p) - middle));
        for (int64_t r = 0; r < rows_; r += kFeatures) hide(item, r);
        // tanh becomes the derivative by its argument.
        for (int64_t r = 0; r < layer_.features; ++r) {
            const V<T> w = splat(weight(layer_.outward)[r]);
            V<T> total = {}, outward = {};
            for (int64_t p = 0; p < width_; p += W<T>) {
                const V<T> hidden = load(hidden_.get() + r * width_ + p), slope = load(slopes_.get() + p);
                const V<T> before = slope * w * (T(1) - hidden * hidden);
                outward += slope * hidden;
                total += before;
                store(hidden_.get() + r * width_ + p, before);
            }
            by_outward[r] += sum_of<T>(outward);
            by_wanted[r] = sum_of<T>(total);
        }
        for (int64_t r = layer_.features; r < rows_; ++r) fill(hidden_.get() + r * width_, width_, T(0));
        for (int64_t r = 0; r < rows_; r += kFeatures) add_inward(r, by_inward);
        if (by_values) write_values(by_summary, by_values);
    }

private:
    const AttentionLayer& layer_;
    const int64_t rows_, width_;  // features and positions in whole blocks and vectors
    const T* map_ = nullptr;
    int64_t stride_ = 0;
    Buffer<T> inward_, clean_, hidden_, scores_, slopes_;

    static const T* weight(const void* from) { return static_cast<const T*>(from); }

    // The map of an item; padding is zeroed in a copy, and so is what fills the last vector.
    void select(int64_t item) {
        const int64_t channels = layer_.channels, positions = layer_.positions;
        map_ = weight(layer_.values) + item * channels * positions;
        stride_ = positions;
        if (!layer_.mask && width_ == positions) return;
        const bool* mask = layer_.mask ? layer_.mask + item * positions : nullptr;
        for (int64_t c = 0; c < channels; ++c) {
            T* to = clean_.get() + c * width_;
            for (int64_t p = 0; p < positions; ++p) to[p] = !mask || mask[p] ? map_[c * positions + p] : T(0);
            fill(to + positions, width_ - positions, T(0));
        }
        map_ = clean_.get(), stride_ = width_;
    }

    // tanh(W1 q + W2 u) of kFeatures features.
    void hide(int64_t item, int64_t first) {
        const T *wanted = weight(layer_.wanted) + item * layer_.features, *inward = inward_.get() + first;
        for (int64_t p = 0; p < width_; p += W<T>) {
            V<T> sum[kFeatures];
            for (int r = 0; r < kFeatures; ++r) sum[r] = splat(first + r < layer_.features ? wanted[first + r] : T(0));
            for (int64_t c = 0; c < layer_.channels; ++c) {
                const V<T> q = load(map_ + c * stride_ + p);
                for (int r = 0; r < kFeatures; ++r) sum[r] += splat(inward[c * rows_ + r]) * q;
            }
            for (int r = 0; r < kFeatures; ++r)
                store(hidden_.get() + (first + r) * width_ + p, hyperbolic_tangent<T>(sum[r] * kTangent<T>));
        }
    }

    void add_inward(int64_t first, T* by_inward) {
        for (int64_t c = 0; c < layer_.channels; ++c) {
            V<T> sum[kFeatures] = {};
            for (int64_t p = 0; p < width_; p += W<T>) {
                const V<T> q = load(map_ + c * stride_ + p);
                for (int r = 0; r < kFeatures; ++r) sum[r] += load(hidden_.get() + (first + r) * width_ + p) * q;
            }
            for (int64_t r = 0; r < min(int64_t(kFeatures), layer_.features - first); ++r)
                by_inward[(first + r) * layer_.channels + c] += sum_of<T>(sum[r]);
        }
    }

    void write_values(const T* by_summary, T* by_values) {
        const int64_t positions = layer_.positions;
        constexpr int kChannels = 4;
        for (int64_t c = 0; c < layer_.channels; c += kChannels) {
            const int64_t count = min(int64_t(kChannels), layer_.channels - c);
            for (int64_t p = 0; p < width_; p += W<T>) {
                V<T> sum[kChannels];
                const V<T> share = load(scores_.get() + p);
                for (int k = 0; k < kChannels; ++k) sum[k] = k < count ? share * by_summary[c + k] : V<T>{};
                for (int64_t r = 0; r < rows_; ++r) {
                    const V<T> before = load(hidden_.get() + r * width_ + p);
                    for (int k = 0; k < kChannels; ++k) sum[k] += before * inward_[(c + min(int64_t(k), count - 1)) * rows_ + r];
                }
                for (int64_t k = 0; k < count; ++k) {
                    T* to = by_values + (c + k) * positions + p;
                    if (p + W<T> <= positions) store(to, sum[k]);
                    else for (int64_t l = 0; p + l < positions; ++l) to[l] = sum[k][l];
                }
            }
        }
    }
};

template <class T> void forward_of(const AttentionLayer& layer, T* weights, T* summaries, int64_t stride, int64_t begin, int64_t end) {
    Attention<T> attention(layer);
    for (int64_t b = begin; b < end; ++b) attention.forward(b, weights + b * layer.positions, summaries + b * stride);
}

template <class T>
void backward_of(const AttentionLayer& layer, const T* weights, const T* by_summaries, int64_t stride, const T* by_weights,
                 T* by_values, T* by_wanted, T* by_inward, T* by_outward, int64_t begin, int64_t end) {
    Attention<T> attention(layer);
    const int64_t positions = layer.positions, size = layer.channels * positions;
    for (int64_t b = begin; b < end; ++b)
        attention.backward(b, weights + b * positions, by_summaries + b * stride, by_weights ? by_weights + b * positions : nullptr,
                           by_values ? by_values + b * size : nullptr, by_wanted + b * layer.features, by_inward, by_outward);
}

}  // namespace

void attention_forward(const AttentionLayer& layer, void* weights, void* summaries, int64_t stride, int64_t begin, int64_t end) {
    if (layer.float64) forward_of(layer, static_cast<double*>(weights), static_cast<double*>(summaries), stride, begin, end);
    else forward_of(layer, static_cast<float*>(weights), static_cast<float*>(summaries), stride, begin, end);
}

void attention_backward(const AttentionLayer& layer, const void* weights, const void* by_summaries, int64_t stride,
                        const void* by_weights, void* by_values, void* by_wanted, void* by_inward, void* by_outward,
                        int64_t begin, int64_t end) {
    const auto run = [&](auto* values) {
        using T = typename std::remove_pointer<decltype(values)>::type;
        backward_of<T>(layer, static_cast<const T*>(weights), static_cast<const T*>(by_summaries), stride,
                       static_cast<const T*>(by_weights), values, static_cast<T*>(by_wanted), static_cast<T*>(by_inward),
                       static_cast<T*>(by_outward), begin, end);
    };
    if (layer.float64) run(static_cast<double*>(by_values));
    else run(static_cast<float*>(by_values));
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
