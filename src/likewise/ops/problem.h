// The problem for a kernel: the sequences or costs, how they are paired, and the rules. Filled in by ops/cpu.py.
#pragma once
#include <cstdint>

namespace likewise {

enum class Ground : int { squared = 0, euclidean = 1, given = 2 };
enum class WindowKind : int { none = 0, steps = 1, fraction = 2, itakura = 3 };

struct Window {
    WindowKind kind = WindowKind::none;
    double size = 0;
};

struct Problem {
    // Either x (rows, x_steps, channels) and y (columns, y_steps, channels), or cost (rows, x_steps, y_steps).
    const void* x = nullptr;
    const void* y = nullptr;
    const void* cost = nullptr;
    const int64_t* x_lengths = nullptr;
    const int64_t* y_lengths = nullptr;
    int64_t rows = 0, columns = 0, x_steps = 0, y_steps = 0, channels = 0;
    bool all_pairs = false;  // pair p is (p / columns, p % columns); otherwise (p, p)
    bool float64 = false;
    Ground ground = Ground::squared;
    Window window;
    bool open_begin = false, open_end = false;
    double gamma = 0;
};

namespace {  // unnamed: each instruction set keeps its own copy

inline int64_t row_of(const Problem& problem, int64_t pair) { return problem.all_pairs ? pair / problem.columns : pair; }
inline int64_t column_of(const Problem& problem, int64_t pair) { return problem.all_pairs ? pair % problem.columns : pair; }

inline int64_t itakura_first(double slope, int64_t n, int64_t m, int64_t i) {
    const double q = n > 1 ? double(m - 1) / double(n - 1) : 0.0;
    const double from_start = q / slope * i, from_end = (m - 1) - slope * q * (n - 1 - i);
    return int64_t(__builtin_ceil((from_start > from_end ? from_start : from_end) - 1e-9));
}

inline int64_t itakura_last(double slope, int64_t n, int64_t m, int64_t i) {
    if (i == n - 1) return m - 1;
    const double q = double(m - 1) / double(n - 1);
    const double from_start = slope * q * i, from_end = (m - 1) - q / slope * (n - 1 - i);
    return int64_t(__builtin_floor((from_start < from_end ? from_start : from_end) + 1e-9));
}

// The columns first..last that row i of an n x m alignment may visit. Both are non-decreasing in i, and corner to
// corner is always connected. ops/rules.py defines them.
inline void window_row(const Window& window, int64_t n, int64_t m, int64_t i, int64_t& first, int64_t& last) {
    first = 0;
    last = m - 1;
    if (window.kind == WindowKind::none) return;
    if (window.kind == WindowKind::itakura) {
        const int64_t reach = i == 0 ? 0 : itakura_last(window.size, n, m, i - 1) + 1;
        first = i == 0 ? 0 : itakura_first(window.size, n, m, i);
        last = itakura_last(window.size, n, m, i);
        if (first > reach) first = reach;
        if (last < first) last = first;
        return;
    }
    const int64_t shorter = n < m ? n : m;
    const double steps = window.kind == WindowKind::fraction ? window.size * double(shorter) : window.size;
    const int64_t radius = steps < double(n + m) ? int64_t(steps) : n + m;
    const int64_t low = i - radius + (m < n ? m - n : 0), high = i + radius + (m > n ? m - n : 0);
    if (low > first) first = low;
    if (high < last) last = high;
}

}  // namespace

}  // namespace likewise
