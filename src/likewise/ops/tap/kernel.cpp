// TAP: distances of pairs, and their gradients.
#include "kernel.h"

#include "pair.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

constexpr int64_t kPairs = 8;  // whose derivatives are added in float32, before they are in double

}  // namespace

void tap_values(const TapProblem& problem, void* memory, float* values, int64_t begin, int64_t end) {
    Pair pair(problem);
    for (int64_t k = begin; k < end; ++k)
        values[k] = pair.value(k, memory ? static_cast<float*>(memory) + problem.kept[k] : nullptr);
}

void tap_gradients(const TapProblem& problem, const void* memory, const float* slopes, float* x_grad, float* y_grad,
                   double* weights_grad, int64_t begin, int64_t end) {
    const Layout layout(problem);
    Pair pair(problem);
    Buffer<float> own, sums(layout.size() + kGradRows * layout.stride);
    fill(sums.get(), layout.size(), 0.0f);
    for (int64_t k = begin; k < end; ++k) {
        const float* kept;
        if (memory) kept = static_cast<const float*>(memory) + problem.kept[k];
        else {
            const int64_t cells = problem.x_lengths[problem.items[k]] * problem.y_lengths[problem.others[k]];
            kept = own.reserve(layout.kept(cells));
            pair.value(k, own.get());
        }
        pair.gradients(k, slopes[k], kept, x_grad, y_grad, sums.get());
        if (k + 1 < end && (k + 1 - begin) % kPairs) continue;
        for (int64_t w = 0; w < layout.size(); ++w) weights_grad[w] += double(sums[w]);
        fill(sums.get(), layout.size(), 0.0f);
    }
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
