// One layer of the coupled GRU on a block of pairs: its weights in the order of access, a step, and its derivative.
// The two sides are stored one after the other, a stride apart.
#pragma once
#include "../activations.h"
#include "lanes.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> class Layers;

INLINE int64_t to_multiple_of_8(int64_t count) { return (count + 7) / 8 * 8; }

// Memory for sums, enough for the largest layer.
template <class T> struct Scratch {
    Buffer<V<T>> both, c, gates, n, projected, sums;

    void reserve(const Layers<T>& layers);
};

template <class T> class Layer {
public:
    int64_t hidden = 0, inputs = 0;  // inputs: 0 in the first layer, whose projections are given
    int64_t padded = 0, wide = 0;    // strides of the sides of states and of three gates
    static constexpr int kParts = 5;  // derivatives of a state: W_hn h + b_hn, r, z, n and c

    // In memory: of all layers but the first W_i (3 hidden, inputs) and b_i; W_h (4 hidden, hidden) and b_h; r, z, n, c.
    int64_t size() const { return (inputs ? 3 * hidden * (inputs + 1) : 0) + 4 * hidden * (hidden + 1); }

    void read(const T* weights, int64_t states, int64_t below) {
        hidden = states;
        inputs = below;
        padded = to_multiple_of_8(hidden);
        wide = to_multiple_of_8(3 * hidden);
        const T* in = weights;
        const T* in_bias = in + 3 * hidden * inputs;
        const T* own = inputs ? in_bias + 3 * hidden : weights;
        const T* bias = own + 4 * hidden * hidden;
        const auto factor = [&](int64_t o) { return o < 2 * hidden ? kSigmoid<T> : kTangent<T>; };
        const auto no_bias = [](int64_t) { return T(0); };
        gates_.pack(3 * hidden, hidden, [&](int64_t o, int64_t k) { return factor(o) * own[o * hidden + k]; },
                    [&](int64_t o) { return factor(o) * bias[o]; });
        const T *couple = own + 3 * hidden * hidden, *couple_bias = bias + 3 * hidden;
        couple_.pack(hidden, hidden, [&](int64_t o, int64_t k) { return kSigmoid<T> * couple[o * hidden + k]; },
                     [&](int64_t o) { return kSigmoid<T> * couple_bias[o]; });
        couple_back_.pack(hidden, hidden, [&](int64_t k, int64_t o) { return couple[o * hidden + k]; }, no_bias);
        // From derivatives in their order: n's own first, then r and z.
        const auto gate = [&](int64_t place) { return (place + 2 * hidden) % (3 * hidden); };
        gates_back_.pack(hidden, 3 * hidden, [&](int64_t k, int64_t p) { return own[gate(p) * hidden + k]; }, no_bias);
        if (!inputs) return;
        input_gates_.pack(3 * hidden, inputs, [&](int64_t o, int64_t k) { return in[o * inputs + k]; },
                          [&](int64_t o) { return in_bias[o]; });
        inputs_back_.pack(inputs, 3 * hidden, [&](int64_t k, int64_t o) { return in[o * inputs + k]; }, no_bias);
    }

    // From the states h of both sides to the next ones. input: the states of the layer below, or given projections.
    INLINE void step(const V<T>* input, int64_t input_stride, const V<T>* h, const I<T> (&running)[2], V<T>* next,
                     Scratch<T>& scratch) const {
        find_gates(input, input_stride, h, running, scratch.both.get(), scratch);
        for (int64_t k = 0; k < hidden; ++k) {
            const V<T> n[2] = {scratch.n[k], scratch.n[padded + k]}, c = scratch.c[k];
            for (int s = 0; s < 2; ++s) {
                const V<T> before = h[s * padded + k], z = scratch.gates[s * wide + hidden + k];
                const V<T> mixed = n[s] + c * (n[1 - s] - n[s]);
                next[s * padded + k] = running[s] ? mixed + z * (before - mixed) : before;
            }
        }
    }

    // The derivative with respect to the next states becomes that to h. That to what goes into the gates is kept, kParts
    // times `hidden` of each side, the sides one after the other; that of c, which they share, is only with the first.
    // both: where h + h' is stored.
    INLINE void step_back(const V<T>* input, int64_t input_stride, const V<T>* h, const I<T> (&running)[2], V<T>* h_grad,
                          V<T>* derivatives, V<T>* both, Scratch<T>& scratch) const {
        find_gates(input, input_stride, h, running, both, scratch);
        const V<T> zero = {};
        for (int64_t k = 0; k < hidden; ++k) {
            const V<T>* gate[2] = {scratch.gates.get() + k, scratch.gates.get() + wide + k};
            const V<T> n[2] = {scratch.n[k], scratch.n[padded + k]}, c = scratch.c[k];
            V<T> mixed_grad[2];
            for (int s = 0; s < 2; ++s)
                mixed_grad[s] = running[s] ? h_grad[s * padded + k] * (T(1) - gate[s][hidden]) : zero;
            derivatives[4 * hidden + k] = (mixed_grad[0] - mixed_grad[1]) * (n[1] - n[0]) * (c * (T(1) - c));
            for (int s = 0; s < 2; ++s) {
                V<T>* to = derivatives + s * kParts * hidden + k;
                const V<T> r = gate[s][0], z = gate[s][hidden], from_h = gate[s][2 * hidden], grad = h_grad[s * padded + k];
                const V<T> mixed = n[s] + c * (n[1 - s] - n[s]);
                const V<T> n_grad = mixed_grad[s] + c * (mixed_grad[1 - s] - mixed_grad[s]);
                const V<T> inner = running[s] ? n_grad * (T(1) - n[s] * n[s]) : zero, from_inner = inner * r;
                to[0] = from_inner;
                to[hidden] = from_h * from_inner * ((T(1) - r) * (1 / kTangent<T>));
                to[2 * hidden] = running[s] ? grad * (h[s * padded + k] - mixed) * (z * (T(1) - z)) : zero;
                to[3 * hidden] = inner;
                h_grad[s * padded + k] = running[s] ? grad * z : grad + n_grad;
            }
        }
        V<T>* shared = scratch.sums.get();
        couple_back_.template products<Start::kBias>(derivatives + 4 * hidden, 0, shared, 0);
        for (int s = 0; s < 2; ++s)
            for (int64_t k = 0; k < hidden; ++k) h_grad[s * padded + k] += shared[k];
        gates_back_.template products<Start::kSum>(derivatives, kParts * hidden, h_grad, padded);
    }

    // Adds the derivative with respect to the states of the layer below.
    INLINE void add_input_gradients(const V<T>* derivatives, V<T>* input_grad, int64_t stride) const {
        inputs_back_.template products<Start::kSum>(derivatives + hidden, kParts * hidden, input_grad, stride);
    }

    // Adds the derivative with respect to the weights, laid out as `read` has them. derivatives: those of `count` steps;
    // h and input: as many states before and inputs; both: as many sums of the sides' states.
    void add_weight_gradients(const V<T>* derivatives, const V<T>* h, const V<T>* both, const V<T>* input,
                              int64_t input_stride, int64_t count, Scratch<T>& scratch, T* grad) const {
        const int64_t stride = kParts * hidden;
        V<T>* sums = scratch.sums.get();
        if (inputs) {
            add_outer<T>(derivatives + hidden, stride, 3 * hidden, input, input_stride, inputs, 2 * count, sums, grad);
            grad += 3 * hidden * inputs;
            add_columns<T>(derivatives + hidden, stride, 3 * hidden, 2 * count, sums, grad);
            grad += 3 * hidden;
        }
        add_outer<T>(derivatives + hidden, stride, 2 * hidden, h, padded, hidden, 2 * count, sums, grad);
        grad += 2 * hidden * hidden;
        add_outer<T>(derivatives, stride, hidden, h, padded, hidden, 2 * count, sums, grad);
        grad += hidden * hidden;
        add_outer<T>(derivatives + 4 * hidden, 2 * stride, hidden, both, padded, hidden, count, sums, grad);
        grad += hidden * hidden;
        add_columns<T>(derivatives + hidden, stride, 2 * hidden, 2 * count, sums, grad);
        add_columns<T>(derivatives, stride, hidden, 2 * count, sums, grad + 2 * hidden);
        add_columns<T>(derivatives + 4 * hidden, 2 * stride, hidden, count, sums, grad + 3 * hidden);
    }

private:
    Matrix<T, 2> gates_, input_gates_, gates_back_, inputs_back_;
    Matrix<T, 1> couple_, couple_back_;

    // Into scratch: c, r and z of both sides, kTangent (W_hn h + b_hn), and n; a side that has ended offers its last state
    // as n. One kind at a time, in short loops, so that many are computed at once, which a long chain for each state
    // would prevent.
    INLINE void find_gates(const V<T>* input, int64_t input_stride, const V<T>* h, const I<T> (&running)[2], V<T>* both,
                           Scratch<T>& scratch) const {
        for (int64_t k = 0; k < hidden; ++k) both[k] = h[k] + h[padded + k];
        couple_.template products<Start::kBias>(both, 0, scratch.c.get(), 0);
        gates_.template products<Start::kBias>(h, padded, scratch.gates.get(), wide);
        if (inputs) {
            input_gates_.template products<Start::kBias>(input, input_stride, scratch.projected.get(), wide);
            input = scratch.projected.get();
            input_stride = wide;
        }
        for (int64_t k = 0; k < hidden; ++k) scratch.c[k] = sigmoid<T>(scratch.c[k]);
        for (int s = 0; s < 2; ++s) {
            V<T>*gate = scratch.gates.get() + s * wide, *n = scratch.n.get() + s * padded;
            const V<T>*given = input + s * input_stride, *before = h + s * padded;
            for (int64_t k = 0; k < 2 * hidden; ++k) gate[k] = sigmoid<T>(given[k] * kSigmoid<T> + gate[k]);
            for (int64_t k = 0; k < hidden; ++k) {
                const V<T> inner = given[2 * hidden + k] * kTangent<T> + gate[k] * gate[2 * hidden + k];
                n[k] = running[s] ? hyperbolic_tangent<T>(inner) : before[k];
            }
        }
    }
};

// A stack of layers.
template <class T> class Layers {
public:
    explicit Layers(int64_t count) : count_(count), layers_(new Layer<T>[count]) {}
    ~Layers() { delete[] layers_; }
    Layers(const Layers&) = delete;
    Layers& operator=(const Layers&) = delete;
    Layer<T>& operator[](int64_t l) { return layers_[l]; }
    const Layer<T>& operator[](int64_t l) const { return layers_[l]; }
    // States of the layers before one, with and without the room between them; and of all.
    int64_t offset(int64_t layer) const { return total(layer, [](const Layer<T>& l) { return l.padded; }); }
    int64_t sum(int64_t layer) const { return total(layer, [](const Layer<T>& l) { return l.hidden; }); }
    int64_t width() const { return offset(count_); }
    int64_t widest() const {
        int64_t most = 0;
        for (int64_t l = 0; l < count_; ++l) most = max(most, layers_[l].padded);
        return most;
    }

private:
    int64_t count_;
    Layer<T>* layers_;

    template <class Size> int64_t total(int64_t end, const Size size) const {
        int64_t sum = 0;
        for (int64_t l = 0; l < end; ++l) sum += size(layers_[l]);
        return sum;
    }
};

template <class T> void Scratch<T>::reserve(const Layers<T>& layers) {
    const int64_t most = layers.widest();
    both.reserve(most);
    c.reserve(most);
    gates.reserve(6 * most);
    n.reserve(2 * most);
    projected.reserve(6 * most);
    sums.reserve(4 * most);
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
