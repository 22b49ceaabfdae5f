// One layer of the coupled GRU on a block of pairs: its weights in the order in which they are read, a step, and back.
#pragma once
#include "lanes.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> class Layers;

// What a step leaves for its derivative, and room for sums; as large as the largest layer needs.
template <class T> struct Scratch {
    Buffer<V<T>> sums, c, r[2], z[2], n[2], from_h[2], from_input;

    void reserve(const Layers<T>& layers);
};

// weights: (rows, columns), row by row. Groups of Group outputs, and in each, for every input, the weights to them.
// `input` and `output` say which weight it is; outputs past the last have weights of zero.
template <class T, class Weight>
void pack(Buffer<T>& to, int64_t group, int64_t inputs, int64_t outputs, const Weight weight) {
    const int64_t groups = (outputs + group - 1) / group;
    T* next = to.reserve(groups * inputs * group);
    for (int64_t g = 0; g < groups; ++g)
        for (int64_t input = 0; input < inputs; ++input)
            for (int64_t i = 0; i < group; ++i) {
                const int64_t output = g * group + i;
                *next++ = output < outputs ? weight(input, output) : T(0);
            }
}

template <class T> class Layer {
public:
    int64_t hidden = 0, inputs = 0, padded = 0;  // inputs: 0 in the first layer, whose projections are given

    // In memory: of all layers but the first W_i (3 hidden, inputs) and b_i; W_h (4 hidden, hidden) and b_h; r, z, n, c.
    int64_t size() const { return (inputs ? 3 * hidden * (inputs + 1) : 0) + 4 * hidden * (hidden + 1); }

    void read(const T* weights, int64_t states, int64_t below) {
        hidden = states;
        inputs = below;
        padded = (hidden + 7) / 8 * 8;
        const T* in = weights;
        const T* in_bias = in + 3 * hidden * inputs;
        const T* own = inputs ? in_bias + 3 * hidden : weights;
        const T* own_bias = own + 4 * hidden * hidden;
        // Two states at a time: r, r, z, z, n, n.
        const auto gate = [&](int64_t place) { return place % 6 / 2 * hidden + place / 6 * 2 + place % 2; };
        const auto is_state = [&](int64_t place) { return place / 6 * 2 + place % 2 < hidden; };
        const int64_t places = (hidden + 1) / 2 * 6;
        pack(gates_, 6, hidden, places,
             [&](int64_t k, int64_t p) { return is_state(p) ? own[gate(p) * hidden + k] : T(0); });
        pack(input_gates_, 6, inputs, places,
             [&](int64_t k, int64_t p) { return is_state(p) ? in[gate(p) * inputs + k] : T(0); });
        pack(gate_bias_, 1, 1, places, [&](int64_t, int64_t p) { return is_state(p) ? own_bias[gate(p)] : T(0); });
        pack(input_bias_, 1, inputs ? 1 : 0, places, [&](int64_t, int64_t p) { return is_state(p) ? in_bias[gate(p)] : T(0); });
        const T *couple = own + 3 * hidden * hidden, *couple_bias = own_bias + 3 * hidden;
        pack(couple_, 8, hidden, hidden, [&](int64_t k, int64_t o) { return couple[o * hidden + k]; });
        pack(couple_bias_, 8, 1, hidden, [&](int64_t, int64_t o) { return couple_bias[o]; });
        pack(couple_back_, 8, hidden, hidden, [&](int64_t o, int64_t k) { return couple[o * hidden + k]; });
        pack(gates_back_, 4, 3 * hidden, hidden, [&](int64_t o, int64_t k) { return own[o * hidden + k]; });
        pack(inputs_back_, 4, 3 * hidden, inputs, [&](int64_t o, int64_t k) { return in[o * inputs + k]; });
    }

    // From the states h of both sides to the next ones. input: the states of the layer below, or given projections.
    template <bool Keep>
    INLINE void step(const V<T>* const (&input)[2], const V<T>* const (&h)[2], const I<T> (&running)[2],
                     V<T>* const (&next)[2], Scratch<T>& scratch) const {
        couple(h, scratch);
        for (int64_t o = 0; o < hidden; o += 2) {
            V<T> sums[2][6];
            project(input, o, sums, scratch);
            add_products<T, 6, 2>(sums, gates_.get() + o / 2 * 6 * hidden, h, hidden);
            for (int i = 0; i < 2; ++i) {
                const int64_t k = o + i;
                V<T> z[2], n[2];
                for (int s = 0; s < 2; ++s) {
                    const V<T> r = sigmoid<T>(sums[s][i]);
                    z[s] = sigmoid<T>(sums[s][2 + i]);
                    const V<T> from_input = inputs ? scratch.from_input[2 * s + i] : input[s][2 * hidden + k];
                    n[s] = hyperbolic_tangent<T>(from_input + r * sums[s][4 + i]);
                    n[s] = running[s] ? n[s] : h[s][k];  // a side that has ended offers its last state
                    if constexpr (Keep) {
                        scratch.r[s][k] = r;
                        scratch.z[s][k] = z[s];
                        scratch.n[s][k] = n[s];
                        scratch.from_h[s][k] = sums[s][4 + i];
                    }
                }
                if constexpr (!Keep) {
                    for (int s = 0; s < 2; ++s) {
                        const V<T> mixed = n[s] + scratch.c[k] * (n[1 - s] - n[s]);
                        next[s][k] = running[s] ? mixed + z[s] * (h[s][k] - mixed) : h[s][k];
                    }
                }
            }
        }
    }

    // After step<true>: the derivative with respect to the next states becomes that to h, and that to the gates is kept:
    // r, z, W_hn h + b_hn, c and n, each (hidden,), of both sides; that of c, which they share, is the same for both.
    INLINE void step_back(const V<T>* const (&h)[2], const I<T> (&running)[2], V<T>* const (&h_grad)[2],
                          V<T>* const (&gates)[2], Scratch<T>& scratch) const {
        for (int64_t k = 0; k < hidden; ++k) {
            const V<T> c = scratch.c[k], zero = {};
            V<T> n[2], mixed_grad[2];
            for (int s = 0; s < 2; ++s) {
                n[s] = scratch.n[s][k];
                mixed_grad[s] = running[s] ? h_grad[s][k] * (T(1) - scratch.z[s][k]) : zero;
            }
            const V<T> c_grad = (mixed_grad[0] - mixed_grad[1]) * (n[1] - n[0]) * (c * (T(1) - c));
            for (int s = 0; s < 2; ++s) {
                const V<T> r = scratch.r[s][k], z = scratch.z[s][k], grad = h_grad[s][k];
                const V<T> mixed = n[s] + c * (n[1 - s] - n[s]);
                const V<T> n_grad = mixed_grad[s] + c * (mixed_grad[1 - s] - mixed_grad[s]);
                const V<T> inner = running[s] ? n_grad * (T(1) - n[s] * n[s]) : zero;
                gates[s][k] = inner * scratch.from_h[s][k] * (r * (T(1) - r));
                gates[s][hidden + k] = running[s] ? grad * (h[s][k] - mixed) * (z * (T(1) - z)) : zero;
                gates[s][2 * hidden + k] = inner * r;
                gates[s][3 * hidden + k] = c_grad;
                gates[s][4 * hidden + k] = inner;
                h_grad[s][k] = running[s] ? grad * z : grad + n_grad;
            }
        }
        for (int64_t k = 0; k < hidden; k += 8) {
            V<T> sums[1][8] = {};
            const V<T>* const shared[1] = {gates[0] + 3 * hidden};
            add_products<T, 8, 1>(sums, couple_back_.get() + k * hidden, shared, hidden);
            for (int i = 0; i < 8; ++i)
                for (int s = 0; s < 2; ++s) h_grad[s][k + i] += sums[0][i];
        }
        for (int64_t k = 0; k < hidden; k += 4) {
            V<T> sums[2][4];
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 4; ++i) sums[s][i] = h_grad[s][k + i];
            const V<T>* const from[2] = {gates[0], gates[1]};
            add_products<T, 4, 2>(sums, gates_back_.get() + k * 3 * hidden, from, 3 * hidden);
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 4; ++i) h_grad[s][k + i] = sums[s][i];
        }
    }

    // Adds the derivative with respect to the states of the layer below.
    INLINE void add_input_gradients(V<T>* const (&gates)[2], V<T>* const (&input_grad)[2]) const {
        for (int64_t k = 0; k < inputs; k += 4) {
            V<T> sums[2][4];
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 4; ++i) sums[s][i] = input_grad[s][k + i];
            const T* weights = inputs_back_.get() + k * 3 * hidden;
            const V<T>* const r_and_z[2] = {gates[0], gates[1]};
            const V<T>* const n[2] = {gates[0] + 4 * hidden, gates[1] + 4 * hidden};
            add_products<T, 4, 2>(sums, weights, r_and_z, 2 * hidden);
            add_products<T, 4, 2>(sums, weights + 4 * 2 * hidden, n, hidden);
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 4; ++i) input_grad[s][k + i] = sums[s][i];
        }
    }

    // Adds the derivative with respect to the weights, laid out as `read` has them. gates: `count` rows of 5 hidden, the
    // two sides of every step in turn; h and input: as many rows of states before and inputs.
    void add_weight_gradients(const V<T>* gates, const V<T>* h, const V<T>* input, int64_t input_stride, int64_t count,
                              T* grad) const {
        const int64_t stride = 5 * hidden;
        if (inputs) {
            add_outer<T>(gates, stride, 2 * hidden, input, input_stride, inputs, count, grad);
            add_outer<T>(gates + 4 * hidden, stride, hidden, input, input_stride, inputs, count, grad + 2 * hidden * inputs);
            grad += 3 * hidden * inputs;
            add_sums(gates, stride, 2 * hidden, count, 1, grad);
            add_sums(gates + 4 * hidden, stride, hidden, count, 1, grad + 2 * hidden);
            grad += 3 * hidden;
        }
        add_outer<T>(gates, stride, 4 * hidden, h, padded, hidden, count, grad);
        grad += 4 * hidden * hidden;
        add_sums(gates, stride, 3 * hidden, count, 1, grad);
        add_sums(gates + 3 * hidden, stride, hidden, count, 2, grad + 3 * hidden);  // the sides share it: one of them
    }

private:
    Buffer<T> gates_, gate_bias_, input_gates_, input_bias_, couple_, couple_bias_, gates_back_, inputs_back_, couple_back_;

    // c = sigmoid(W_hc (h + h') + b_hc).
    INLINE void couple(const V<T>* const (&h)[2], Scratch<T>& scratch) const {
        V<T>* both = scratch.sums.get();
        for (int64_t k = 0; k < hidden; ++k) both[k] = h[0][k] + h[1][k];
        for (int64_t o = 0; o < hidden; o += 8) {
            V<T> sums[1][8];
            for (int i = 0; i < 8; ++i) sums[0][i] = splat(couple_bias_[o + i]);
            const V<T>* const from[1] = {both};
            add_products<T, 8, 1>(sums, couple_.get() + o * hidden, from, hidden);
            for (int i = 0; i < 8; ++i) scratch.c[o + i] = sigmoid<T>(sums[0][i]);
        }
    }

    // What the gates of states o and o + 1 make of the input, with all biases; but what n makes of it waits in memory,
    // since registers are few.
    INLINE void project(const V<T>* const (&input)[2], int64_t o, V<T> (&sums)[2][6], Scratch<T>& scratch) const {
        const T* bias = gate_bias_.get() + 3 * o;
        if (inputs) {
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 6; ++i) sums[s][i] = splat(input_bias_[3 * o + i]);
            add_products<T, 6, 2>(sums, input_gates_.get() + o / 2 * 6 * inputs, input, inputs);
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 2; ++i) scratch.from_input[2 * s + i] = sums[s][4 + i];
        } else {
            for (int s = 0; s < 2; ++s)
                for (int i = 0; i < 4; ++i) sums[s][i] = input[s][i / 2 * hidden + o + i % 2];
        }
        for (int s = 0; s < 2; ++s)
            for (int i = 0; i < 6; ++i) sums[s][i] = i < 4 ? sums[s][i] + bias[i] : splat(bias[i]);
    }

    // to[j] += the sum over lanes, and over every step-th row, of column j.
    void add_sums(const V<T>* from, int64_t stride, int64_t columns, int64_t rows, int64_t step, T* to) const {
        for (int64_t j = 0; j < columns; ++j) {
            V<T> sum = {};
            for (int64_t q = 0; q < rows; q += step) sum += from[q * stride + j];
            to[j] += sum_of_lanes<T>(sum);
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
    sums.reserve(most);
    c.reserve(most);
    from_input.reserve(4);
    for (int s = 0; s < 2; ++s)
        for (Buffer<V<T>>* buffer : {&r[s], &z[s], &n[s], &from_h[s]}) buffer->reserve(most);
}

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
