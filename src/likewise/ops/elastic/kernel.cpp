// Elastic distances: what the recurrences of moves.h give, for many pairs at once (sweep.h), and their paths (trace.h).
#include "kernel.h"

#include "trace.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

template <class T> struct Listed {
    const int64_t *x_items, *y_items, *order;
    int64_t count;
};

// The pairs of one block of lanes, with their sequences and gaps side by side.
template <class T> struct LaneInputs {
    int64_t used = 0, places[W<T>], x_items[W<T>], y_items[W<T>], n[W<T>], m[W<T>];
    LaneData<T> data{};

    void select_y(const ElasticProblem& given) {
        const Problem& problem = given.problem;
        const int64_t widest = lane_lengths<T>(problem.y_lengths, y_items, m);
        lay(problem.y, problem.y_lengths, problem.y_steps, problem.channels, y_items, widest, y_);
        if (given.y_gaps) lay(given.y_gaps, problem.y_lengths, problem.y_steps, 1, y_items, widest, y_gaps_);
        data.y = y_.get(), data.y_gaps = y_gaps_.get(), data.m = m;
    }
    void select_x(const ElasticProblem& given) {
        const Problem& problem = given.problem;
        const int64_t longest = lane_lengths<T>(problem.x_lengths, x_items, n);
        lay(problem.x, problem.x_lengths, problem.x_steps, problem.channels, x_items, longest, x_);
        if (given.x_gaps) lay(given.x_gaps, problem.x_lengths, problem.x_steps, 1, x_items, longest, x_gaps_);
        data.x = x_.get(), data.x_gaps = x_gaps_.get(), data.n = n, data.shared = false;
    }
    void share_x(const ElasticProblem& given, int64_t item) {
        const Problem& problem = given.problem;
        for (int l = 0; l < W<T>; ++l) x_items[l] = item, n[l] = problem.x_lengths[item];
        data.x = static_cast<const T*>(problem.x) + item * problem.x_steps * problem.channels;
        data.x_gaps = given.x_gaps ? static_cast<const T*>(given.x_gaps) + item * problem.x_steps : nullptr;
        data.n = n, data.shared = true;
    }
    void select(const ElasticProblem& given, const Listed<T>& listed, int64_t block) {
        used = lane_items<T>(listed.order, listed.count, block, places);
        for (int l = 0; l < W<T>; ++l) x_items[l] = listed.x_items[places[l]], y_items[l] = listed.y_items[places[l]];
        select_x(given);
        select_y(given);
    }

private:
    Buffer<T> x_, y_, x_gaps_, y_gaps_;
    static void lay(const void* from, const int64_t* lengths, int64_t steps, int64_t channels, const int64_t* items,
                    int64_t longest, Buffer<T>& to) {
        to.reserve(longest * channels * W<T>);
        interleave(static_cast<const T*>(from), lengths, steps, channels, items, longest, to.get());
    }
};

template <class T, class Moves> Moves moves_of(const ElasticProblem& given, const LaneInputs<T>& lanes) {
    Moves moves(given);
    if constexpr (std::is_same_v<Moves, Count<T>>)
        for (int l = 0; l < W<T>; ++l)
            moves.within[l] = max(static_cast<const T*>(given.x_reach)[lanes.x_items[l]],
                                  static_cast<const T*>(given.y_reach)[lanes.y_items[l]]);
    return moves;
}

// Calls ended(l, value) for every lane; with limits, stops when every lane is above its own.
template <class T, class Moves, class Ended>
void values_of(Block<T, Moves>& block, typename Block<T, Moves>::State& state, const ElasticProblem& given,
               const LaneInputs<T>& lanes, const T* limits, const Ended& ended) {
    constexpr int64_t kLook = 16;  // rows between two looks at the limits
    const Moves moves = moves_of<T, Moves>(given, lanes);
    block.begin(lanes.data, state);
    for (int64_t done = 0, look = kLook; done < block.longest();) {
        int64_t until = block.longest();  // stop where a lane ends, to read its value
        for (int l = 0; l < W<T>; ++l)
            if (lanes.n[l] > done) until = min(until, lanes.n[l]);
        if (limits) until = min(until, look);
        block.advance(moves, state, done, until);
        done = until;
        int64_t column;
        for (int l = 0; l < W<T>; ++l)
            if (lanes.n[l] == done) ended(l, block.value(moves, state, l, column));
        if (!limits || done < look) continue;
        look = done + kLook;
        const V<T> lowest = block.lowest(state, done);
        bool hopeless = true;
        for (int l = 0; l < lanes.used; ++l) hopeless &= lanes.n[l] <= done || lowest[l] > limits[lanes.places[l]];
        if (!hopeless) continue;
        for (int l = 0; l < W<T>; ++l)
            if (lanes.n[l] > done) ended(l, kInfinity<T>);
        return;
    }
}

// Calls body.template operator()<T, Moves>() for the recurrence of the problem.
template <template <class> class M> struct Chosen {
    template <class T> using Moves = M<T>;
};
template <class F> void choose(const ElasticProblem& given, const F& body) {
    switch (given.recurrence) {
        case Recurrence::warp: return body(Chosen<Warp>());
        case Recurrence::edit: return body(Chosen<Edit>());
        case Recurrence::carry: return body(Chosen<Carry>());
        case Recurrence::count: return body(Chosen<Count>());
        case Recurrence::ball: return body(Chosen<Ball>());
        case Recurrence::follow: return body(Chosen<Follow>());
    }
}
template <class F> void choose_type(const ElasticProblem& given, const F& body) {
    choose(given, [&](auto chosen) {
        using M = decltype(chosen);
        if (given.problem.float64) body(double(), static_cast<typename M::template Moves<double>*>(nullptr));
        else body(float(), static_cast<typename M::template Moves<float>*>(nullptr));
    });
}

}  // namespace

void elastic_blocks(const ElasticProblem& given, const int64_t* x_items, const int64_t* y_items, const int64_t* order,
                    int64_t count, const void* limits, void* values, int64_t begin, int64_t end) {
    choose_type(given, [&](auto zero, auto* chosen) {
        using T = decltype(zero);
        using Moves = std::remove_pointer_t<decltype(chosen)>;
        LaneInputs<T> lanes;
        Block<T, Moves> block(given, false);
        typename Block<T, Moves>::State state;
        for (int64_t b = begin; b < end; ++b) {
            lanes.select(given, {x_items, y_items, order, count}, b);
            values_of<T, Moves>(block, state, given, lanes, static_cast<const T*>(limits), [&](int l, T value) {
                if (l < lanes.used) static_cast<T*>(values)[lanes.places[l]] = value;
            });
        }
    });
}

void elastic_tile(const ElasticProblem& given, const int64_t* row_order, const int64_t* column_order, bool symmetric,
                  void* values, int64_t block_index, int64_t first, int64_t last) {
    choose_type(given, [&](auto zero, auto* chosen) {
        using T = decltype(zero);
        using Moves = std::remove_pointer_t<decltype(chosen)>;
        const int64_t columns = given.problem.columns;
        LaneInputs<T> lanes;
        Block<T, Moves> block(given, false);
        typename Block<T, Moves>::State state;
        lanes.used = lane_items<T>(column_order, columns, block_index, lanes.y_items);
        lanes.select_y(given);
        // Symmetric: rows and columns share one order, and the pairs below the diagonal are mirrored from above it.
        const int64_t begin = block_index * W<T>, until = symmetric ? min(last, begin + lanes.used) : last;
        for (int64_t r = first; r < until; ++r) {
            const int64_t item = row_order[r];
            lanes.share_x(given, item);
            values_of<T, Moves>(block, state, given, lanes, static_cast<const T*>(nullptr), [&](int l, T value) {
                if (l >= lanes.used || (symmetric && begin + l < r)) return;
                static_cast<T*>(values)[item * columns + lanes.y_items[l]] = value;
                if (symmetric) static_cast<T*>(values)[lanes.y_items[l] * columns + item] = value;
            });
        }
    });
}

void elastic_paths(const ElasticProblem& given, const int64_t* x_items, const int64_t* y_items, const int64_t* order,
                   int64_t count, int64_t* paths, int64_t* steps, int64_t begin, int64_t end) {
    choose_type(given, [&](auto zero, auto* chosen) {
        using T = decltype(zero);
        using Moves = std::remove_pointer_t<decltype(chosen)>;
        const int64_t longest = given.problem.x_steps + given.problem.y_steps - 1;
        LaneInputs<T> lanes;
        Tracer<T, Moves> tracer(given);
        Buffer<int64_t> cells(longest * 2 * W<T>);  // backwards
        for (int64_t b = begin; b < end; ++b) {
            lanes.select(given, {x_items, y_items, order, count}, b);
            int64_t found[W<T>] = {};
            tracer.run(moves_of<T, Moves>(given, lanes), lanes.data, [&](int l, int64_t i, int64_t j, int) {
                // A step along the border is drawn along the first row or column.
                i = max(i, int64_t(0)), j = max(j, int64_t(0));
                int64_t* to = cells.get() + (l * longest + found[l]) * 2;
                if (found[l] > 0 && to[-2] == i && to[-1] == j) return;
                to[0] = i, to[1] = j, ++found[l];
            });
            for (int64_t l = 0; l < lanes.used; ++l) {
                const int64_t place = lanes.places[l], total = tracer.found(int(l)) < 0 ? 0 : found[l];
                steps[place] = total;
                for (int64_t k = 0; paths && k < total; ++k)
                    for (int c = 0; c < 2; ++c)
                        paths[(place * longest + k) * 2 + c] = cells[(l * longest + total - 1 - k) * 2 + c];
            }
        }
    });
}

void elastic_gradients(const ElasticProblem& given, const int64_t* x_items, const int64_t* y_items, const int64_t* order,
                       int64_t count, const void* weights, void* x_grad, void* y_grad, void* x_gaps_grad,
                       void* y_gaps_grad, void* values, int64_t begin, int64_t end) {
    choose_type(given, [&](auto zero, auto* chosen) {
        using T = decltype(zero);
        using Moves = std::remove_pointer_t<decltype(chosen)>;
        const Problem& problem = given.problem;
        LaneInputs<T> lanes;
        Tracer<T, Moves> tracer(given);
        const auto of = [](const void* values, int64_t at) { return static_cast<const T*>(values) + at; };
        const auto into = [](void* values, int64_t at) { return values ? static_cast<T*>(values) + at : nullptr; };
        const auto slopes = [&](int l) -> Slopes<T> {
            const int64_t x = lanes.x_items[l] * problem.x_steps, y = lanes.y_items[l] * problem.y_steps, c = problem.channels;
            return {given, of(problem.x, x * c), of(problem.y, y * c), of(given.x_gaps, x), of(given.y_gaps, y),
                    into(x_grad, x * c), into(y_grad, y * c), into(x_gaps_grad, x), into(y_gaps_grad, y),
                    lanes.n[l], lanes.m[l], static_cast<const T*>(weights)[lanes.places[l]]};
        };
        for (int64_t b = begin; b < end; ++b) {
            lanes.select(given, {x_items, y_items, order, count}, b);
            tracer.run(moves_of<T, Moves>(given, lanes), lanes.data, [&](int l, int64_t i, int64_t j, int move) {
                if (l < lanes.used) slopes(l)(i, j, move);
            });
            for (int l = 0; values && l < lanes.used; ++l) static_cast<T*>(values)[lanes.places[l]] = tracer.value(l);
            for (int l = 0; l < lanes.used && given.last_cost; ++l)
                if (tracer.found(l) >= 0) slopes(l).add_cost(lanes.n[l] - 1, tracer.found(l), T(1));
        }
    });
}

}  // namespace LIKEWISE_ISA
}  // namespace likewise
