// The coupled GRU: each lane holds one pair, both sides of which go through the layers together, step by step.
#include "kernel.h"

#include "../stop.h"
#include "layer.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kSteps = 16;  // whose derivatives are kept for the weights' gradient

// The pairs in the lanes of one block.
template <class T> class Block {
public:
    int lanes;      // lanes in use; the others repeat the last pair
    int64_t steps;  // of the longest sequence
    int64_t pair[W<T>];

    Block(const CoupledProblem& problem, int64_t number) : problem_(problem) {
        const int64_t first = number * W<T>, left = problem.pairs - first;
        lanes = int(left < W<T> ? left : W<T>);
        steps = 0;
        for (int l = 0; l < W<T>; ++l) {
            const int64_t p = problem.order[first + (l < lanes ? l : lanes - 1)];
            pair[l] = p;
            sequence_[0][l] = problem.rows ? problem.rows[p] : p;
            sequence_[1][l] = problem.columns ? problem.columns[p] : p;
            length_[0][l] = problem.x_lengths[sequence_[0][l]];
            length_[1][l] = problem.y_lengths[sequence_[1][l]];
            for (int s = 0; s < 2; ++s) steps = max(steps, length_[s][l]);
        }
        shortest_ = steps;
        for (int s = 0; s < 2; ++s)
            for (int l = 0; l < W<T>; ++l) shortest_ = min(shortest_, length_[s][l]);
    }

    // Which lanes of each side are still running at a step: all bits set.
    INLINE void running(int64_t t, I<T> (&mask)[2]) const {
        for (int s = 0; s < 2; ++s) {
            if (t < shortest_) mask[s] = I<T>{} - 1;
            else
                for (int l = 0; l < W<T>; ++l) mask[s][l] = t < length_[s][l] ? -1 : 0;
        }
    }

    // The projections of step t, as lanes; those of a side that has ended are not used, but must be numbers.
    INLINE void read(int64_t t, int64_t width, V<T>* to, int64_t stride) const {
        for (int s = 0; s < 2; ++s) {
            const T* rows[W<T>];
            for (int l = 0; l < W<T>; ++l) rows[l] = base(s) + at(s, l, min(t, length_[s][l] - 1)) * width;
            rows_to_lanes<T>(rows, width, to + s * stride);
        }
    }

    // Adds derivatives of the projections of step t.
    INLINE void add(int64_t t, int64_t width, const V<T>* from, int s, T* grad) const {
        T* rows[W<T>];
        for (int l = 0; l < lanes; ++l) rows[l] = t < length_[s][l] ? grad + at(s, l, t) * width : nullptr;
        lanes_to_rows<true, T>(from, width, rows, lanes);
    }

private:
    const CoupledProblem& problem_;
    int64_t sequence_[2][W<T>], length_[2][W<T>], shortest_;

    INLINE const T* base(int s) const { return static_cast<const T*>(s ? problem_.gy : problem_.gx); }
    INLINE int64_t at(int s, int l, int64_t t) const {
        return sequence_[s][l] * (s ? problem_.y_steps : problem_.x_steps) + t;
    }
};

template <class T> class Network {
public:
    explicit Network(const CoupledProblem& problem) : problem_(problem), layers_(problem.layers) {
        const T* weights = static_cast<const T*>(problem.weights);
        int64_t inputs = 0;
        for (int64_t l = 0; l < problem.layers; ++l) {
            layers_[l].read(weights, problem.hidden[l], inputs);
            weights += layers_[l].size();
            inputs = problem.hidden[l];
        }
        scratch_.reserve(layers_);
        projected_.reserve(2 * layers_[0].wide);
    }

    // States of the last layer, at every step or the last.
    void states(T* out, bool every, int64_t begin, int64_t end) {
        const int64_t steps = every ? all_steps() : 1, width = last().hidden;
        for (int64_t number = begin; number < end; ++number) {
            const Block<T> block(problem_, number);
            reserve_states(1);
            for (int64_t t = 0; t < block.steps; ++t) {
                step(block, t, t % 2, (t + 1) % 2);
                if (every) write(block, state(problem_.layers - 1, (t + 1) % 2), out, steps, t, t + 1, width);
            }
            const int64_t from = every ? block.steps : 0;
            write(block, state(problem_.layers - 1, block.steps % 2), out, steps, from, steps, width);
        }
    }

    void gradients(const T* grad, bool every, T* gx_grad, T* gy_grad, T* weights_grad, int64_t begin, int64_t end) {
        T* const to[2] = {gx_grad, gy_grad};
        for (int64_t number = begin; number < end; ++number) {
            const Block<T> block(problem_, number);
            reserve_states(block.steps);
            for (int64_t t = 0; t < block.steps; ++t) step(block, t, t, t + 1);
            reserve_derivatives();
            begin_derivatives(block, grad, every);
            for (int64_t last = block.steps; last > 0; last -= kSteps) {
                const int64_t first = max<int64_t>(0, last - kSteps);
                for (int64_t t = last - 1; t >= first; --t) step_back(block, t, t - first, grad, every, to);
                add_weights(first, last - first, weights_grad);
            }
        }
    }

private:
    const CoupledProblem& problem_;
    Layers<T> layers_;
    Scratch<T> scratch_;
    Buffer<V<T>> projected_, states_, derivatives_, both_, state_grads_;
    int64_t kept_ = 0;  // the number of steps of states in memory

    const Layer<T>& last() const { return layers_[problem_.layers - 1]; }
    int64_t all_steps() const { return max(problem_.x_steps, problem_.y_steps); }

    // States before step t, both sides of them, one after the other.
    INLINE V<T>* state(int64_t layer, int64_t t) const {
        return states_.get() + 2 * ((kept_ + 1) * layers_.offset(layer) + t * layers_[layer].padded);
    }

    void reserve_states(int64_t kept) {
        kept_ = kept;
        states_.reserve(2 * (kept + 1) * layers_.width());
        for (int64_t l = 0; l < problem_.layers; ++l)
            for (int64_t k = 0; k < 2 * layers_[l].padded; ++k) state(l, 0)[k] = V<T>{};
    }

    // One step of all layers, from the states in place `from` to those in place `to`.
    void step(const Block<T>& block, int64_t t, int64_t from, int64_t to) {
        I<T> running[2] = {};
        block.running(t, running);
        if (t % 64 == 0) stop_if_asked();
        block.read(t, 3 * layers_[0].hidden, projected_.get(), layers_[0].wide);
        for (int64_t l = 0; l < problem_.layers; ++l) {
            const V<T>* input = l > 0 ? state(l - 1, to) : projected_.get();
            layers_[l].step(input, input_stride(l), state(l, from), running, state(l, to), scratch_);
        }
    }

    int64_t input_stride(int64_t layer) const { return layer > 0 ? layers_[layer - 1].padded : layers_[0].wide; }

    // Writes the last layer's state to the steps from `first` up to `end` of the output.
    void write(const Block<T>& block, const V<T>* h, T* out, int64_t steps, int64_t first, int64_t end, int64_t width) {
        for (int s = 0; s < 2; ++s)
            for (int64_t t = first; t < end; ++t) {
                T* rows[W<T>];
                for (int l = 0; l < block.lanes; ++l) rows[l] = out + ((2 * block.pair[l] + s) * steps + t) * width;
                lanes_to_rows<false, T>(h + s * last().padded, width, rows, block.lanes);
            }
    }

    INLINE V<T>* state_grad(int64_t layer) const { return state_grads_.get() + 2 * layers_.offset(layer); }
    // For some steps: derivatives of the inputs of a layer's gates, and the sums of both sides' states.
    INLINE V<T>* derivative(int64_t layer, int64_t t) const {
        return derivatives_.get() + 2 * Layer<T>::kParts * (kSteps * layers_.sum(layer) + t * layers_[layer].hidden);
    }
    INLINE V<T>* both(int64_t layer, int64_t t) const {
        return both_.get() + kSteps * layers_.offset(layer) + t * layers_[layer].padded;
    }

    void reserve_derivatives() {
        derivatives_.reserve(2 * Layer<T>::kParts * kSteps * layers_.sum(problem_.layers));
        both_.reserve(kSteps * layers_.width());
        state_grads_.reserve(2 * layers_.width());
        for (int64_t k = 0; k < 2 * layers_.width(); ++k) state_grads_[k] = V<T>{};
    }

    // The derivatives of states past the end of the block: all of them are its last.
    void begin_derivatives(const Block<T>& block, const T* grad, bool every) {
        if (!every) add_given(block, grad, 1, 0);
        else
            for (int64_t t = block.steps; t < all_steps(); ++t) add_given(block, grad, all_steps(), t);
    }

    void add_given(const Block<T>& block, const T* grad, int64_t steps, int64_t t) {
        const int64_t width = last().hidden;
        V<T>* given = scratch_.sums.get();
        for (int s = 0; s < 2; ++s) {
            const T* rows[W<T>];
            for (int l = 0; l < W<T>; ++l) rows[l] = grad + ((2 * block.pair[l] + s) * steps + t) * width;
            rows_to_lanes<T>(rows, width, given);
            V<T>* to = state_grad(problem_.layers - 1) + s * last().padded;
            for (int64_t k = 0; k < width; ++k) to[k] += keep<T>(given[k], block.lanes);
        }
    }

    void step_back(const Block<T>& block, int64_t t, int64_t place, const T* grad, bool every, T* const (&to)[2]) {
        if (every) add_given(block, grad, all_steps(), t);
        I<T> running[2] = {};
        block.running(t, running);
        block.read(t, 3 * layers_[0].hidden, projected_.get(), layers_[0].wide);
        for (int64_t l = problem_.layers - 1; l >= 0; --l) {
            const Layer<T>& layer = layers_[l];
            const V<T>* input = l > 0 ? state(l - 1, t + 1) : projected_.get();
            V<T>* found = derivative(l, place);
            layer.step_back(input, input_stride(l), state(l, t), running, state_grad(l), found, both(l, place), scratch_);
            if (l > 0) layer.add_input_gradients(found, state_grad(l - 1), input_stride(l));
            else
                for (int s = 0; s < 2; ++s)
                    block.add(t, 3 * layer.hidden, found + (s * Layer<T>::kParts + 1) * layer.hidden, s, to[s]);
        }
    }

    // Adds the contribution of `count` steps from `first` to the weights.
    void add_weights(int64_t first, int64_t count, T* grad) {
        for (int64_t l = 0; l < problem_.layers; ++l) {
            const V<T>* input = l > 0 ? state(l - 1, first + 1) : nullptr;
            layers_[l].add_weight_gradients(derivative(l, 0), state(l, first), both(l, 0), input, input_stride(l), count,
                                            scratch_, grad);
            grad += layers_[l].size();
        }
    }
};

template <class T> void run_states(const CoupledProblem& problem, void* states, bool every, int64_t begin, int64_t end) {
    Network<T>(problem).states(static_cast<T*>(states), every, begin, end);
}

template <class T>
void run_gradients(const CoupledProblem& problem, const void* grad, bool every, void* gx_grad, void* gy_grad,
                   void* weights_grad, int64_t begin, int64_t end) {
    Network<T>(problem).gradients(static_cast<const T*>(grad), every, static_cast<T*>(gx_grad), static_cast<T*>(gy_grad),
                                  static_cast<T*>(weights_grad), begin, end);
}

}  // namespace

int64_t coupled_gru_lanes(bool float64) { return float64 ? W<double> : W<float>; }

void coupled_gru_states(const CoupledProblem& problem, void* states, bool every, int64_t begin, int64_t end) {
    (problem.float64 ? run_states<double> : run_states<float>)(problem, states, every, begin, end);
}

void coupled_gru_gradients(const CoupledProblem& problem, const void* grad, bool every, void* gx_grad, void* gy_grad,
                           void* weights_grad, int64_t begin, int64_t end) {
    const FlushTiny flush;
    (problem.float64 ? run_gradients<double> : run_gradients<float>)(problem, grad, every, gx_grad, gy_grad, weights_grad,
                                                                    begin, end);
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
