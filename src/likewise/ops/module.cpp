// Bindings of likewise._native. Kernels take plain addresses: ops/cpu.py checks the tensors and keeps them alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "additive_attention/kernel.h"
#include "coupled_gru/kernel.h"
#include "dtw/kernel.h"
#include "elastic/kernel.h"
#include "finite/kernel.h"
#include "gdtw/kernel.h"
#include "launch/tape.h"
#include "problem.h"
#include "search/kernel.h"
#include "soft_dtw/kernel.h"
#include "stop.h"
#include "tap/kernel.h"
#include "team.h"
#include "transport/kernel.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace likewise;

namespace {

using Address = uintptr_t;
template <class T> T* at(Address address) { return reinterpret_cast<T*>(address); }

// The instruction sets that this build has and this machine runs, the best first.
std::vector<std::string> instruction_sets() {
    std::vector<std::string> found;
#if defined(LIKEWISE_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back("avx512");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back("avx2");
#endif
    found.push_back("baseline");
    return found;
}

#if defined(LIKEWISE_X86)
#define CALL(isa, function, ...)                                                            \
    (isa == "avx512"   ? avx512::function(__VA_ARGS__)                                      \
     : isa == "avx2"   ? avx2::function(__VA_ARGS__)                                        \
                       : baseline::function(__VA_ARGS__))
#else
#define CALL(isa, function, ...) baseline::function(__VA_ARGS__)
#endif

}  // namespace

NB_MODULE(_native, module) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::set_leak_warnings(false);  // tables of launches live as long as the interpreter does

    nb::class_<Problem>(module, "Problem")
        .def("__init__",
             [](Problem* self, Address x, Address y, Address cost, Address x_lengths, Address y_lengths, int64_t rows,
                int64_t columns, int64_t x_steps, int64_t y_steps, int64_t channels, bool all_pairs, bool float64,
                int ground, int window, double window_size, bool open_begin, bool open_end, double gamma) {
                 new (self) Problem{at<void>(x), at<void>(y), at<void>(cost), at<int64_t>(x_lengths), at<int64_t>(y_lengths),
                                    rows, columns, x_steps, y_steps, channels, all_pairs, float64, static_cast<Ground>(ground),
                                    Window{static_cast<WindowKind>(window), window_size}, open_begin, open_end, gamma};
             },
             "x"_a, "y"_a, "cost"_a, "x_lengths"_a, "y_lengths"_a, "rows"_a, "columns"_a, "x_steps"_a, "y_steps"_a,
             "channels"_a, "all_pairs"_a, "float64"_a, "ground"_a, "window"_a, "window_size"_a, "open_begin"_a, "open_end"_a,
             "gamma"_a);

    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
        try {
            std::rethrow_exception(error);
        } catch (const Stopped&) {
            PyErr_SetNone(PyExc_KeyboardInterrupt);
        }
    });
    module.def("watch", [](Address flag) { stop_flag = at<const uint8_t>(flag); });

    module.def("instruction_sets", &instruction_sets);
    module.def("window_row", [](int kind, double size, int64_t n, int64_t m, int64_t i) {
        int64_t first, last;
        window_row(Window{static_cast<WindowKind>(kind), size}, n, m, i, first, last);
        return std::pair<int64_t, int64_t>(first, last);
    });
    module.def(
        "first_nonfinite",
        [](const std::string& isa, Address values, Address lengths, int64_t count, int64_t steps, int64_t channels, bool float64) {
            return CALL(isa, first_nonfinite, at<void>(values), at<int64_t>(lengths), count, steps, channels, float64);
        },
        Release());

    module.def("lanes", [](const std::string& isa, bool float64) { return CALL(isa, dtw_lanes, float64); });
    module.def(
        "dtw_blocks",
        [](const std::string& isa, const Problem& problem, Address order, int64_t count, Address values, int64_t begin, int64_t end) {
            CALL(isa, dtw_blocks, problem, at<int64_t>(order), count, at<void>(values), begin, end);
        },
        Release());
    module.def(
        "dtw_tile",
        [](const std::string& isa, const Problem& problem, Address row_order, Address column_order, bool symmetric,
           Address values, int64_t block, int64_t first, int64_t last) {
            CALL(isa, dtw_tile, problem, at<int64_t>(row_order), at<int64_t>(column_order), symmetric, at<void>(values), block,
                 first, last);
        },
        Release());
    module.def(
        "dtw_values",
        [](const std::string& isa, const Problem& problem, Address order, Address values, int64_t begin, int64_t end) {
            CALL(isa, dtw_values, problem, at<int64_t>(order), at<void>(values), begin, end);
        },
        Release());
    module.def("dtw_group", [](const std::string& isa, bool float64) { return CALL(isa, dtw_group, float64); });
    module.def(
        "dtw_shared_values",
        [](const std::string& isa, const Problem& problem, Address pairs, Address first, int64_t count, Address state,
           Address rows, int64_t kept, Address values) {
            int64_t* const own = at<int64_t>(state);
            CALL(isa, dtw_shared_values, problem,
                 SharedGroups{at<int64_t>(pairs), at<int64_t>(first), count, own, own + 1, own + 2, at<void>(rows), kept},
                 at<void>(values));
        },
        Release());
    module.def(
        "dtw_paths",
        [](const std::string& isa, const Problem& problem, Address paths, Address steps, int64_t begin, int64_t end) {
            CALL(isa, dtw_paths, problem, at<int64_t>(paths), at<int64_t>(steps), begin, end);
        },
        Release());
    module.def(
        "dtw_gradients",
        [](const std::string& isa, const Problem& problem, Address weights, Address x_grad, Address y_grad, int64_t begin, int64_t end) {
            CALL(isa, dtw_gradients, problem, at<void>(weights), at<void>(x_grad), at<void>(y_grad), begin, end);
        },
        Release());

    nb::class_<ElasticProblem>(module, "ElasticProblem")
        .def("__init__",
             [](ElasticProblem* self, const Problem& problem, int recurrence, Address x_gaps, Address y_gaps, Address x_reach,
                Address y_reach, Address weights, int64_t longest, int border, double penalty, double slope, double hit,
                double miss, bool last_cost, int64_t own_first, int64_t own_count) {
                 new (self) ElasticProblem{problem, static_cast<Recurrence>(recurrence), at<void>(x_gaps), at<void>(y_gaps),
                                           at<void>(x_reach), at<void>(y_reach), at<void>(weights), longest,
                                           static_cast<Border>(border), penalty, slope, hit, miss, last_cost, own_first,
                                           own_count};
             },
             "problem"_a, "recurrence"_a, "x_gaps"_a, "y_gaps"_a, "x_reach"_a, "y_reach"_a, "weights"_a, "longest"_a,
             "border"_a, "penalty"_a, "slope"_a, "hit"_a, "miss"_a, "last_cost"_a,
             "own_first"_a, "own_count"_a);
    module.def(
        "elastic_blocks",
        [](const std::string& isa, const ElasticProblem& problem, Address x_items, Address y_items, Address order,
           int64_t count, Address limits, Address values, int64_t begin, int64_t end) {
            CALL(isa, elastic_blocks, problem, at<int64_t>(x_items), at<int64_t>(y_items), at<int64_t>(order), count,
                 at<void>(limits), at<void>(values), begin, end);
        },
        Release());
    module.def(
        "elastic_tile",
        [](const std::string& isa, const ElasticProblem& problem, Address row_order, Address column_order, bool symmetric,
           Address values, int64_t block, int64_t first, int64_t last) {
            CALL(isa, elastic_tile, problem, at<int64_t>(row_order), at<int64_t>(column_order), symmetric, at<void>(values),
                 block, first, last);
        },
        Release());
    module.def(
        "elastic_paths",
        [](const std::string& isa, const ElasticProblem& problem, Address x_items, Address y_items, Address order,
           int64_t count, Address paths, Address steps, int64_t begin, int64_t end) {
            CALL(isa, elastic_paths, problem, at<int64_t>(x_items), at<int64_t>(y_items), at<int64_t>(order), count,
                 at<int64_t>(paths), at<int64_t>(steps), begin, end);
        },
        Release());
    module.def(
        "elastic_gradients",
        [](const std::string& isa, const ElasticProblem& problem, Address x_items, Address y_items, Address order,
           int64_t count, Address weights, Address x_grad, Address y_grad, Address x_gaps_grad, Address y_gaps_grad,
           Address values, int64_t begin, int64_t end) {
            CALL(isa, elastic_gradients, problem, at<int64_t>(x_items), at<int64_t>(y_items), at<int64_t>(order), count,
                 at<void>(weights), at<void>(x_grad), at<void>(y_grad), at<void>(x_gaps_grad), at<void>(y_gaps_grad),
                 at<void>(values), begin, end);
        },
        Release());

    module.def(
        "dtw_matched",
        [](const std::string& isa, const Problem& problem, Address order, int64_t count, Address weights, Address sums,
           Address counts, Address values, int64_t begin, int64_t end) {
            CALL(isa, dtw_matched, problem, at<int64_t>(order), count, at<double>(weights), at<double>(sums), at<double>(counts),
                 at<void>(values), begin, end);
        },
        Release());
    module.def(
        "dtw_rotations",
        [](const std::string& isa, const Problem& problem, int64_t y_channels, int64_t max_iter, bool bias, Address start,
           Address order, int64_t count, Address next, Address rotations, Address offsets, Address values, Address converged) {
            const RotationProblem given{problem, y_channels, max_iter, bias, at<void>(start), at<int64_t>(order), count,
                                        at<int64_t>(next),
                                        at<void>(rotations), at<void>(offsets), at<void>(values), at<bool>(converged)};
            CALL(isa, dtw_rotations, given);
        },
        Release());

    module.def(
        "soft_dtw_values",
        [](const std::string& isa, const Problem& problem, Address order, Address values, int64_t begin, int64_t end) {
            CALL(isa, soft_dtw_values, problem, at<int64_t>(order), at<void>(values), begin, end);
        },
        Release());
    module.def(
        "soft_dtw_value_blocks",
        [](const std::string& isa, const Problem& problem, Address order, int64_t count, Address values, int64_t begin, int64_t end) {
            CALL(isa, soft_dtw_value_blocks, problem, at<int64_t>(order), count, at<void>(values), begin, end);
        },
        Release());
    module.def(
        "soft_dtw_gradient_blocks",
        [](const std::string& isa, const Problem& problem, Address order, int64_t count, Address weights, Address values,
           Address x_grad, Address y_grad, int64_t begin, int64_t end) {
            CALL(isa, soft_dtw_gradient_blocks, problem, at<int64_t>(order), count, at<void>(weights), at<void>(values),
                 at<void>(x_grad), at<void>(y_grad), begin, end);
        },
        Release());
    module.def(
        "soft_dtw_gradients",
        [](const std::string& isa, const Problem& problem, bool plan, Address weights, Address values, Address x_grad,
           Address y_grad, int64_t begin, int64_t end) {
            CALL(isa, soft_dtw_gradients, problem, plan, at<void>(weights), at<void>(values), at<void>(x_grad), at<void>(y_grad),
                 begin, end);
        },
        Release());
    module.def(
        "soft_dtw_hessian",
        [](const std::string& isa, const Problem& problem, Address tangent, Address product, int64_t begin, int64_t end) {
            CALL(isa, soft_dtw_hessian, problem, at<void>(tangent), at<void>(product), begin, end);
        },
        Release());

    nb::class_<TransportSettings>(module, "TransportSettings")
        .def("__init__",
             [](TransportSettings* self, double reg, double inverse_difference, double delta, double time_weight, int64_t n_iter,
                double tolerance, int64_t max_iter, Address x_mass, Address y_mass) {
                 new (self) TransportSettings{reg, inverse_difference, delta, time_weight, n_iter, tolerance, max_iter,
                                              at<double>(x_mass), at<double>(y_mass)};
             },
             "reg"_a, "inverse_difference"_a, "delta"_a, "time_weight"_a, "n_iter"_a, "tolerance"_a, "max_iter"_a, "x_mass"_a,
             "y_mass"_a);
    module.def(
        "transport_solve",
        [](const std::string& isa, const Problem& problem, const TransportSettings& settings, Address order, Address values,
           Address errors, Address plans, int64_t begin, int64_t end) {
            CALL(isa, transport_solve, problem, settings, at<int64_t>(order), at<void>(values), at<double>(errors),
                 at<void>(plans), begin, end);
        },
        Release());

    nb::class_<WarpProblem>(module, "WarpProblem")
        .def("__init__",
             [](WarpProblem* self, Address x, Address y, Address x_lengths, Address y_lengths, Address x_times, Address y_times,
                Address reg, Address lower, Address upper, Address slope_min, Address slope_max, int64_t count, int64_t x_steps,
                int64_t y_steps, int64_t channels, bool float64, bool subsequence, double huber, int64_t nodes,
                int64_t refinements) {
                 new (self) WarpProblem{at<void>(x), at<void>(y), at<int64_t>(x_lengths), at<int64_t>(y_lengths),
                                        at<double>(x_times), at<double>(y_times), at<double>(reg), at<double>(lower),
                                        at<double>(upper), at<double>(slope_min), at<double>(slope_max), count, x_steps,
                                        y_steps, channels, float64, subsequence, huber, nodes, refinements};
             },
             "x"_a, "y"_a, "x_lengths"_a, "y_lengths"_a, "x_times"_a, "y_times"_a, "reg"_a, "lower"_a, "upper"_a,
             "slope_min"_a, "slope_max"_a, "count"_a, "x_steps"_a, "y_steps"_a, "channels"_a, "float64"_a, "subsequence"_a,
             "huber"_a, "nodes"_a, "refinements"_a);
    nb::class_<WarpGradients>(module, "WarpGradients")
        .def("__init__",
             [](WarpGradients* self, Address value, Address warp, Address x, Address y, Address reg, Address lower, Address upper,
                Address slope_min, Address slope_max) {
                 new (self) WarpGradients{at<double>(value), at<double>(warp), at<void>(x), at<void>(y), at<double>(reg),
                                          at<double>(lower), at<double>(upper), at<double>(slope_min), at<double>(slope_max)};
             },
             "value"_a, "warp"_a, "x"_a, "y"_a, "reg"_a, "lower"_a, "upper"_a, "slope_min"_a, "slope_max"_a);
    module.def(
        "gdtw_solve",
        [](const std::string& isa, const WarpProblem& problem, Address values, Address warps, Address holds, Address faults,
           int64_t begin, int64_t end) {
            CALL(isa, gdtw_solve, problem, at<double>(values), at<double>(warps), at<int32_t>(holds), at<int64_t>(faults), begin, end);
        },
        Release());
    module.def(
        "gdtw_polish",
        [](const std::string& isa, const WarpProblem& problem, Address values, Address warps, Address holds, Address faults,
           int64_t begin, int64_t end) {
            CALL(isa, gdtw_polish, problem, at<double>(values), at<double>(warps), at<int32_t>(holds), at<int64_t>(faults), begin, end);
        },
        Release());
    module.def(
        "gdtw_gradients",
        [](const std::string& isa, const WarpProblem& problem, Address warps, Address holds, const WarpGradients& gradients,
           int64_t begin, int64_t end) {
            CALL(isa, gdtw_gradients, problem, at<double>(warps), at<int32_t>(holds), gradients, begin, end);
        },
        Release());

    nb::class_<CoupledProblem>(module, "CoupledProblem")
        .def("__init__",
             [](CoupledProblem* self, Address gx, Address gy, Address rows, Address columns, Address x_lengths,
                Address y_lengths, Address order, Address weights, Address hidden, int64_t layers, int64_t pairs,
                int64_t x_steps, int64_t y_steps, bool float64) {
                 new (self) CoupledProblem{at<void>(gx), at<void>(gy), at<int64_t>(rows), at<int64_t>(columns),
                                           at<int64_t>(x_lengths), at<int64_t>(y_lengths), at<int64_t>(order),
                                           at<void>(weights), at<int64_t>(hidden), layers, pairs, x_steps, y_steps, float64};
             },
             "gx"_a, "gy"_a, "rows"_a, "columns"_a, "x_lengths"_a, "y_lengths"_a, "order"_a, "weights"_a, "hidden"_a,
             "layers"_a, "pairs"_a, "x_steps"_a, "y_steps"_a, "float64"_a);
    module.def("coupled_gru_lanes", [](const std::string& isa, bool float64) { return CALL(isa, coupled_gru_lanes, float64); });
    module.def(
        "coupled_gru_states",
        [](const std::string& isa, const CoupledProblem& problem, Address states, bool every, int64_t begin, int64_t end) {
            CALL(isa, coupled_gru_states, problem, at<void>(states), every, begin, end);
        },
        Release());
    module.def(
        "coupled_gru_gradients",
        [](const std::string& isa, const CoupledProblem& problem, Address grad, bool every, Address gx_grad, Address gy_grad,
           Address weights_grad, int64_t begin, int64_t end) {
            CALL(isa, coupled_gru_gradients, problem, at<void>(grad), every, at<void>(gx_grad), at<void>(gy_grad),
                 at<void>(weights_grad), begin, end);
        },
        Release());

    nb::class_<TapProblem>(module, "TapProblem")
        .def("__init__",
             [](TapProblem* self, Address x, Address y, Address x_lengths, Address y_lengths, Address items, Address others,
                Address kept, Address sides, Address weights, float unit, int64_t layers, int64_t x_steps,
                int64_t y_steps, int64_t channels, int64_t width, int64_t stride) {
                 new (self) TapProblem{at<float>(x), at<float>(y), at<int64_t>(x_lengths), at<int64_t>(y_lengths),
                                       at<int64_t>(items), at<int64_t>(others), at<int64_t>(kept), at<int64_t>(sides),
                                       at<float>(weights), unit, layers, x_steps, y_steps, channels, width, stride};
             },
             "x"_a, "y"_a, "x_lengths"_a, "y_lengths"_a, "items"_a, "others"_a, "kept"_a, "sides"_a, "weights"_a, "unit"_a,
             "layers"_a, "x_steps"_a, "y_steps"_a, "channels"_a, "width"_a, "stride"_a);
    module.def(
        "tap_values",
        [](const std::string& isa, const TapProblem& problem, Address memory, Address values, int64_t begin, int64_t end) {
            CALL(isa, tap_values, problem, at<void>(memory), at<float>(values), begin, end);
        },
        Release());
    module.def(
        "tap_gradients",
        [](const std::string& isa, const TapProblem& problem, Address memory, Address slopes, Address x_grad, Address y_grad,
           Address weights_grad, int64_t begin, int64_t end) {
            CALL(isa, tap_gradients, problem, at<void>(memory), at<float>(slopes), at<float>(x_grad), at<float>(y_grad),
                 at<double>(weights_grad), begin, end);
        },
        Release());

    nb::class_<AttentionLayer>(module, "AttentionLayer")
        .def("__init__",
             [](AttentionLayer* self, Address values, Address inward, Address outward, Address wanted, Address mask,
                int64_t channels, int64_t positions, int64_t features, bool float64) {
                 new (self) AttentionLayer{at<void>(values), at<void>(inward), at<void>(outward), at<void>(wanted),
                                           at<bool>(mask), channels, positions, features, float64};
             },
             "values"_a, "inward"_a, "outward"_a, "wanted"_a, "mask"_a, "channels"_a, "positions"_a, "features"_a,
             "float64"_a);
    module.def(
        "attention_forward",
        [](const std::string& isa, const AttentionLayer& layer, Address weights, Address summaries, int64_t stride,
           int64_t items, int64_t parts, int64_t threads) {
            on_team(parts, threads, [&](int64_t part) {
                CALL(isa, attention_forward, layer, at<void>(weights), at<void>(summaries), stride, items * part / parts,
                     items * (part + 1) / parts);
            });
        },
        Release());
    module.def(
        "attention_backward",
        [](const std::string& isa, const AttentionLayer& layer, Address weights, Address by_summaries, int64_t stride,
           Address by_weights, Address by_values, Address by_wanted, Address by_rest, int64_t items, int64_t parts,
           int64_t threads) {
            const int64_t rest = layer.features * (layer.channels + 1) * (layer.float64 ? 8 : 4);
            on_team(parts, threads, [&](int64_t part) {
                CALL(isa, attention_backward, layer, at<void>(weights), at<void>(by_summaries), stride,
                     at<void>(by_weights), at<void>(by_values), at<void>(by_wanted), at<void>(by_rest + part * rest),
                     items * part / parts, items * (part + 1) / parts);
            });
        },
        Release());

    nb::class_<Matches>(module, "Matches")
        .def(nb::init<int64_t, int64_t, double, int64_t>(), "queries"_a, "k"_a, "within"_a, "radius"_a)
        .def("wanted", &Matches::wanted)
        .def("threshold", &Matches::threshold)
        .def("forget", &Matches::forget)
        .def("count", [](const Matches& self, Address counts) { self.count(at<int64_t>(counts)); })
        .def("copy", [](Matches& self, int64_t width, Address values, Address items, Address starts, Address ends) {
            self.copy(width, at<double>(values), at<int64_t>(items), at<int64_t>(starts), at<int64_t>(ends));
        });
    nb::class_<Candidates>(module, "Candidates")
        .def(nb::init<int64_t>())
        .def("sort", &Candidates::sort, Release())
        .def("clear", &Candidates::clear);
    nb::class_<SearchProblem>(module, "SearchProblem")
        .def("__init__",
             [](SearchProblem* self, const Problem& pairs, Address plane, Address upper, Address lower, int64_t padded,
                Address means, Address means_upper, Address means_lower, int64_t coarse, int64_t segment, double means_error,
                Address turned, Address laid_means, Address laid_upper, Address laid_lower, Address highest, Address lowest,
                Address leads, double unit, int64_t window, Address steps,
                Address channels, Address ordered_upper, Address ordered_lower, Address ordered_query, Address query_upper, Address query_lower, bool normalize, double error, bool by_lengths,
                Address skip, Address skip_start, int64_t skip_radius, Matches* matches, Candidates* candidates, Address counts) {
                 new (self) SearchProblem{pairs, at<float>(plane), at<float>(upper), at<float>(lower), padded,
                                          at<float>(means), at<float>(means_upper), at<float>(means_lower), coarse, segment,
                                          means_error, at<float>(turned), at<float>(laid_means), at<float>(laid_upper),
                                          at<float>(laid_lower), at<float>(highest), at<float>(lowest), at<int16_t>(leads), unit, window,
                                          at<int32_t>(steps), at<int32_t>(channels), at<float>(ordered_upper),
                                          at<float>(ordered_lower), at<float>(ordered_query), at<float>(query_upper),
                                          at<float>(query_lower), normalize, error, by_lengths, at<int64_t>(skip),
                                          at<int64_t>(skip_start), skip_radius, matches, candidates, at<int64_t>(counts)};
             },
             "pairs"_a, "plane"_a, "upper"_a, "lower"_a, "padded"_a, "means"_a, "means_upper"_a, "means_lower"_a, "coarse"_a, "segment"_a,
             "means_error"_a, "turned"_a, "laid_means"_a, "laid_upper"_a, "laid_lower"_a, "highest"_a, "lowest"_a,
             "leads"_a, "unit"_a, "window"_a, "steps"_a, "channels"_a, "ordered_upper"_a,
             "ordered_lower"_a, "ordered_query"_a, "query_upper"_a, "query_lower"_a, "normalize"_a, "error"_a, "by_lengths"_a,
             "skip"_a, "skip_start"_a, "skip_radius"_a, "matches"_a, "candidates"_a.none(), "counts"_a);
    module.def(
        "search_envelopes",
        [](const std::string& isa, Address x, Address lengths, Address left, Address right, Address counts, int64_t stride,
           int64_t to_stride, Address upper, Address lower, int64_t begin, int64_t end) {
            CALL(isa, search_envelopes, at<float>(x), at<int64_t>(lengths), at<int64_t>(left), at<int64_t>(right),
                 at<int64_t>(counts), stride, to_stride, at<float>(upper), at<float>(lower), begin, end);
        },
        Release());
    module.def(
        "search_lay",
        [](const std::string& isa, Address x, int64_t items, int64_t stride, int64_t size, Address to, int64_t begin, int64_t end) {
            CALL(isa, search_lay, at<float>(x), items, stride, size, at<float>(to), begin, end);
        },
        Release());
    module.def(
        "search_round",
        [](const std::string& isa, Address x, int64_t channels, int64_t padded, double unit, Address to, int64_t begin, int64_t end) {
            CALL(isa, search_round, at<float>(x), channels, padded, unit, at<int16_t>(to), begin, end);
        },
        Release());
    module.def(
        "search_means",
        [](const std::string& isa, Address x, int64_t stride, int64_t to_stride, Address means, int64_t begin, int64_t end) {
            CALL(isa, search_means, at<float>(x), stride, to_stride, at<float>(means), begin, end);
        },
        Release());
    module.def(
        "search_normalize",
        [](const std::string& isa, Address from, bool float64, int64_t length, int64_t channels, Address to, int64_t begin, int64_t end) {
            CALL(isa, search_normalize, at<void>(from), float64, length, channels, at<void>(to), begin, end);
        },
        Release());
    module.def(
        "search_whole",
        [](const std::string& isa, const SearchProblem& problem, Address order, int64_t first, int64_t last, int64_t begin, int64_t end) {
            CALL(isa, search_whole, problem, at<int64_t>(order), first, last, begin, end);
        },
        Release());
    module.def(
        "search_bounds",
        [](const std::string& isa, const SearchProblem& problem, int64_t item, int64_t first, int64_t last, int64_t stride) {
            CALL(isa, search_bounds, problem, item, first, last, stride);
        },
        Release());
    module.def(
        "search_stretches",
        [](const std::string& isa, const Problem& problem, int64_t query, Address samples, int64_t count, int64_t position,
           Address column, Address starts, Address values, Address found) {
            CALL(isa, search_stretches, problem, query, at<void>(samples), count, position, at<void>(column), at<int64_t>(starts),
                 at<void>(values), at<int64_t>(found));
        },
        Release());
    module.def(
        "search_compare",
        [](const std::string& isa, const SearchProblem& problem, int64_t query, int64_t begin, int64_t end) {
            CALL(isa, search_compare, problem, query, begin, end);
        },
        Release());

    nb::class_<Tape>(module, "Tape")
        .def("__init__",
             [](Tape* self, Address launch_kernel, Address record_event) {
                 new (self) Tape(reinterpret_cast<LaunchKernel>(launch_kernel), reinterpret_cast<RecordEvent>(record_event));
             })
        .def("add",
             [](Tape& self, Address function, std::vector<unsigned> grid, unsigned threads, unsigned shared,
                std::vector<int> slots, std::vector<int64_t> values) {
                 self.add(at<void>(function), std::move(grid), threads, shared, std::move(slots), std::move(values));
             })
        .def(
            "run",
            [](const Tape& self, Address stream, Address event, const std::vector<int64_t>& addresses) {
                return self.run(at<void>(stream), at<void>(event), addresses);
            },
            Release());
}
