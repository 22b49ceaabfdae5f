// Where the weights of a network are, and what is kept of a pair.
#pragma once
#include "kernel.h"
#include "winograd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// Where the parts of the weights are, and in the same places their derivatives, which end before `back`.
struct Layout {
    int64_t layers, width, stride;
    const int64_t* sides;

    explicit Layout(const TapProblem& p) : layers(p.layers), width(p.width), stride(p.stride), sides(p.sides) {}
    int64_t square(int64_t layer) const { return sides[layer] * sides[layer]; }
    // (2, side, side, stride) of the first convolution, (64, width, stride) of those after it, (side, side, stride) of the
    // last; each is followed by its bias (stride,).
    int64_t weights(int64_t layer) const {
        if (layer == 0) return 0;
        return (2 * square(0) + 1) * stride + (layer - 1) * (kPoints * width + 1) * stride;
    }
    int64_t bias(int64_t layer) const {
        return weights(layer) + (layer == 0 ? 2 * square(0) : layer < layers - 1 ? kPoints * width : square(layer)) * stride;
    }
    int64_t size() const { return bias(layers - 1) + stride; }
    // What the slopes are multiplied with: those of the layers between (64, width, stride), of the first convolution for D
    // (side, side, stride), and of the last (side, side, stride).
    int64_t back(int64_t layer) const {
        const int64_t between = size() + (layers - 2) * kPoints * width * stride;
        return layer == 0 ? between : layer < layers - 1 ? size() + (layer - 1) * kPoints * width * stride
                                                         : between + square(0) * stride;
    }
    // In floats: the share of each cell, a bit for each number of the last image, and the derivative of the last weights.
    int64_t kept_bits(int64_t cells) const { return cells; }
    int64_t kept_last(int64_t cells) const { return cells + cells * stride / 16; }
    int64_t kept(int64_t cells) const { return kept_last(cells) + square(layers - 1) * stride; }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
