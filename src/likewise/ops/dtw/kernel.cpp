// DTW: R(i, j) = cost(i, j) + min(R(i-1, j-1), R(i-1, j), R(i, j-1)); ties prefer the diagonal, then the row above.
//
// Many pairs: each lane holds one pair (lanes.h). Few, long pairs, and paths: the lanes are rows of one (pair.h).
#include "kernel.h"

#include "../lanes.h"
#include "matched.h"
#include "pair.h"
#include "rotations.h"
#include "step.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T>
void blocks(const Problem& problem, const int64_t* order, int64_t count, T* values, int64_t begin, int64_t end) {
    LanePairs<T> lanes;
    LaneBlock<T, HardStep<T>> block(problem);
    for (int64_t b = begin; b < end; ++b) {
        lanes.select(problem, order, count, b);
        const HardStep<T> step{problem.open_begin};
        block.run(step, lanes.x.get(), false, lanes.n, lanes.y.get(), lanes.m, [&](int l, const auto* row) {
            if (l < lanes.used) values[lanes.pairs[l]] = HardStep<T>::value(problem, lanes.n[l], lanes.m[l], l, row);
        });
    }
}

template <class T>
void tile(const Problem& problem, const int64_t* row_order, const int64_t* column_order, bool symmetric, T* values,
          int64_t block, int64_t first, int64_t last) {
    const int64_t channels = problem.channels;
    int64_t items[W<T>], n[W<T>], m[W<T>];
    T result[W<T>];
    const int64_t used = lane_items<T>(column_order, problem.columns, block, items);
    const int64_t widest = lane_lengths<T>(problem.y_lengths, items, m);
    Buffer<T> y(widest * channels * W<T>);
    interleave(static_cast<const T*>(problem.y), problem.y_lengths, problem.y_steps, channels, items, widest, y.get());
    LaneBlock<T, HardStep<T>> lanes(problem);
    // Symmetric: rows and columns share one order, and the pairs below the diagonal are mirrored from above it.
    if (symmetric) last = min(last, block * W<T> + used);
    for (int64_t r = first; r < last; ++r) {
        const int64_t item = row_order[r];
        for (int l = 0; l < W<T>; ++l) n[l] = problem.x_lengths[item];
        const T* x = static_cast<const T*>(problem.x) + item * problem.x_steps * channels;
        lanes.run(HardStep<T>{problem.open_begin}, x, true, n, y.get(), m, [&](int l, const auto* row) {
            result[l] = HardStep<T>::value(problem, n[l], m[l], l, row);
        });
        for (int64_t l = 0; l < used; ++l) {
            if (symmetric && block * W<T> + l < r) continue;
            values[item * problem.columns + items[l]] = result[l];
            if (symmetric) values[items[l] * problem.columns + item] = result[l];
        }
    }
}

template <class T> void gradients(const Problem& problem, const T* weights, T* x_grad, T* y_grad, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    const int64_t channels = problem.channels;
    for (int64_t pair = begin; pair < end; ++pair) {
        const T weight = weights[pair];
        if (weight == T(0)) continue;
        const int64_t steps = aligner.path(pair);
        const int64_t* cells = aligner.cells();
        if (problem.ground == Ground::given) {
            T* plan = x_grad + pair * problem.x_steps * problem.y_steps;
            for (int64_t k = 0; k < steps; ++k) plan[cells[2 * k] * problem.y_steps + cells[2 * k + 1]] += weight;
            continue;
        }
        const int64_t row = row_of(problem, pair) * problem.x_steps, column = column_of(problem, pair) * problem.y_steps;
        for (int64_t k = 0; k < steps; ++k) {
            const int64_t at_x = (row + cells[2 * k]) * channels, at_y = (column + cells[2 * k + 1]) * channels;
            const T *x = static_cast<const T*>(problem.x) + at_x, *y = static_cast<const T*>(problem.y) + at_y;
            T factor = 2 * weight;
            if (problem.ground == Ground::euclidean) {
                T squared = 0;
                for (int64_t c = 0; c < channels; ++c) squared += (x[c] - y[c]) * (x[c] - y[c]);
                factor = squared > 0 ? weight / root(squared) : T(0);
            }
            for (int64_t c = 0; c < channels; ++c) {
                const T step = factor * (x[c] - y[c]);
                x_grad[at_x + c] += step;
                y_grad[at_y + c] -= step;
            }
        }
    }
}

// Whether a comparison holds in any lane.
template <class T> INLINE bool any(I<T> mask) {
#if defined(__AVX512F__)
    __m512i bits;
    std::memcpy(&bits, &mask, sizeof(bits));
    return _mm512_test_epi32_mask(bits, bits) != 0;
#elif defined(__AVX2__)
    __m256i bits;
    std::memcpy(&bits, &mask, sizeof(bits));
    return !_mm256_testz_si256(bits, bits);
#else
    int64_t bits[2];
    std::memcpy(bits, &mask, sizeof(bits));
    return (bits[0] | bits[1]) != 0;
#endif
}

// Lanes are candidates of one query. Once every lane's least cell and what must still follow exceed the limit, none of
// them can be among the nearest.
template <class T>
int64_t abandoning(const Problem& problem, const T* x, int64_t steps, const T* y, const int64_t* m, const T* suffix, T limit,
                   T* values, int64_t from, int64_t to, T* state, DtwKept& kept) {
    int64_t n[W<T>], cells = 0;
    for (int l = 0; l < W<T>; ++l) {
        n[l] = steps;
        values[l] = kInfinity<T>;
    }
    using Block = LaneBlock<T, HardStep<T>>;
    if (!kept.block) kept.block = new Block(problem), kept.destroy = [](void* block) { delete static_cast<Block*>(block); };
    Block& block = *static_cast<Block*>(kept.block);
    const auto ended = [&](int l, const auto* row) { values[l] = HardStep<T>::value(problem, steps, m[l], l, row); };
    const auto going = [&](int64_t done, const auto* row, int64_t first, int64_t last) {
        cells = done;
        if (done % (2 * HardStep<T>::kRows) || done == to) return true;  // looking takes as long as half a row
        V<T> least = row[first].value, other = least;
        for (int64_t j = first + 1; j < last; j += 2) {
            least = min(least, row[j].value);
            other = min(other, row[j + 1].value);
        }
        least = min(min(least, other), row[last].value);
        if (suffix) least += load(suffix + done * W<T>);
        const I<T> alive = least <= splat(limit);
        return any<T>(alive);
    };
    using Cell = typename HardStep<T>::Cell;
    static_assert(sizeof(Cell) == W<T> * sizeof(T), "a row of cells is one of numbers");
    Part<Cell> part;
    if (to < steps || from > 0) part = {from, to, from > 0 ? reinterpret_cast<const Cell*>(state) : nullptr};
    block.run(HardStep<T>{false}, x, true, n, y, m, ended, going, part);
    if (to < steps && cells == to) {
        int64_t lo = 0, hi = m[0] - 1;
        if (problem.window.kind != WindowKind::none) window_row(problem.window, steps, m[0], to - 1, lo, hi);
        for (int64_t j = lo; j <= hi; ++j) store(state + j * W<T>, block.row()[j].value);
    }
    return cells;
}

template <class T> void values_of(const Problem& problem, const int64_t* order, T* values, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    for (int64_t k = begin; k < end; ++k) values[order[k]] = aligner.value(order[k]);
}

// One of several threads that share the groups of all pairs. Each takes the next group. The row above it is
// the last row of the group taken before, by a thread that is still running or has finished it.
template <class T> void shared_values(const Problem& problem, const SharedGroups& groups, T* values) {
    Aligner<T> aligner(problem);
    const auto row = [&](int64_t task) {
        return static_cast<T*>(groups.rows) + task % groups.kept * Aligner<T>::row_size(problem.y_steps) + kGroup<T>;
    };
    try {
        for (int64_t p = 0, task; (task = __atomic_fetch_add(groups.next, 1, __ATOMIC_RELAXED)) < groups.first[groups.count];) {
            while (groups.first[p + 1] <= task) ++p;
            const int64_t pair = groups.pairs[p], k = task - groups.first[p];
            int64_t* here = groups.done + task;
            const Behind<T> ready{k > 0 ? here - 1 : nullptr, here, groups.failed};
            if (aligner.group(pair, k, row(task + groups.kept - 1), row(task), ready)) values[pair] = aligner.value_in(row(task));
            __atomic_store_n(here, Behind<T>::kAll, __ATOMIC_RELEASE);
        }
    } catch (...) {
        __atomic_store_n(groups.failed, 1, __ATOMIC_RELAXED);
        throw;
    }
}

template <class T> void paths_of(const Problem& problem, int64_t* paths, int64_t* steps, int64_t begin, int64_t end) {
    Aligner<T> aligner(problem);
    const int64_t longest = problem.x_steps + problem.y_steps - 1;
    for (int64_t pair = begin; pair < end; ++pair) {
        steps[pair] = aligner.path(pair);
        if (!paths) continue;
        int64_t* to = paths + pair * longest * 2;
        for (int64_t k = 0; k < steps[pair]; ++k) {
            to[2 * k] = aligner.cells()[2 * (steps[pair] - 1 - k)];
            to[2 * k + 1] = aligner.cells()[2 * (steps[pair] - 1 - k) + 1];
        }
    }
}

}  // namespace

int64_t dtw_lanes(bool float64) { return float64 ? W<double> : W<float>; }

void dtw_blocks(const Problem& problem, const int64_t* order, int64_t count, void* values, int64_t begin, int64_t end) {
    if (problem.float64) blocks(problem, order, count, static_cast<double*>(values), begin, end);
    else blocks(problem, order, count, static_cast<float*>(values), begin, end);
}

void dtw_tile(const Problem& problem, const int64_t* row_order, const int64_t* column_order, bool symmetric, void* values,
              int64_t block, int64_t first, int64_t last) {
    if (problem.float64) tile(problem, row_order, column_order, symmetric, static_cast<double*>(values), block, first, last);
    else tile(problem, row_order, column_order, symmetric, static_cast<float*>(values), block, first, last);
}

int64_t dtw_abandoning(const Problem& problem, const void* x, int64_t steps, const void* y, const int64_t* m, const void* suffix,
                       double limit, void* values, DtwKept& kept) {
    return dtw_advance(problem, x, steps, y, m, suffix, limit, 0, steps, nullptr, values, kept);
}

int64_t dtw_strip(bool float64) { return 2 * (float64 ? HardStep<double>::kRows : HardStep<float>::kRows); }

int64_t dtw_advance(const Problem& problem, const void* x, int64_t steps, const void* y, const int64_t* m, const void* suffix,
                    double limit, int64_t from, int64_t to, void* row, void* values, DtwKept& kept) {
    if (problem.float64)
        return abandoning<double>(problem, static_cast<const double*>(x), steps, static_cast<const double*>(y), m,
                                  static_cast<const double*>(suffix), limit, static_cast<double*>(values), from, to,
                                  static_cast<double*>(row), kept);
    // Rounded upwards: what is equal to the limit goes on.
    const float rounded = float(limit), up = rounded < limit ? __builtin_nextafterf(rounded, kInfinity<float>) : rounded;
    return abandoning<float>(problem, static_cast<const float*>(x), steps, static_cast<const float*>(y), m,
                             static_cast<const float*>(suffix), up, static_cast<float*>(values), from, to,
                             static_cast<float*>(row), kept);
}

void dtw_values(const Problem& problem, const int64_t* order, void* values, int64_t begin, int64_t end) {
    if (problem.float64) values_of(problem, order, static_cast<double*>(values), begin, end);
    else values_of(problem, order, static_cast<float*>(values), begin, end);
}

int64_t dtw_group(bool float64) { return float64 ? kGroup<double> : kGroup<float>; }

void dtw_shared_values(const Problem& problem, const SharedGroups& groups, void* values) {
    if (problem.float64) shared_values(problem, groups, static_cast<double*>(values));
    else shared_values(problem, groups, static_cast<float*>(values));
}

void dtw_paths(const Problem& problem, int64_t* paths, int64_t* steps, int64_t begin, int64_t end) {
    if (problem.float64) paths_of<double>(problem, paths, steps, begin, end);
    else paths_of<float>(problem, paths, steps, begin, end);
}

void dtw_gradients(const Problem& problem, const void* weights, void* x_grad, void* y_grad, int64_t begin, int64_t end) {
    if (problem.float64)
        gradients(problem, static_cast<const double*>(weights), static_cast<double*>(x_grad), static_cast<double*>(y_grad), begin, end);
    else
        gradients(problem, static_cast<const float*>(weights), static_cast<float*>(x_grad), static_cast<float*>(y_grad), begin, end);
}

void dtw_matched(const Problem& problem, const int64_t* order, int64_t count, const double* weights, double* sums,
                 double* counts, void* values, int64_t begin, int64_t end) {
    const auto run = [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        visit_paths<T>(problem, order, count, Matcher<T>(problem, weights, sums, counts), to, begin, end);
    };
    if (problem.float64) run(static_cast<double*>(values));
    else run(static_cast<float*>(values));
}

void dtw_rotations(const RotationProblem& given) {
    if (given.problem.float64) Rotations<double>(given).run();
    else Rotations<float>(given).run();
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
