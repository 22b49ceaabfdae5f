from collections.abc import Sequence

class Problem:
    def __init__(
        self,
        x: int,
        y: int,
        cost: int,
        x_lengths: int,
        y_lengths: int,
        rows: int,
        columns: int,
        x_steps: int,
        y_steps: int,
        channels: int,
        all_pairs: bool,
        float64: bool,
        ground: int,
        window: int,
        window_size: float,
        open_begin: bool,
        open_end: bool,
        gamma: float,
    ) -> None: ...

def watch(flag: int) -> None: ...
def instruction_sets() -> list[str]: ...
def window_row(kind: int, size: float, n: int, m: int, i: int) -> tuple[int, int]: ...
def first_nonfinite(
    isa: str, values: int, lengths: int, count: int, steps: int, channels: int, float64: bool
) -> int: ...
def lanes(isa: str, float64: bool) -> int: ...
def dtw_blocks(isa: str, problem: object, order: int, count: int, values: int, begin: int, end: int) -> None: ...
def dtw_tile(
    isa: str,
    problem: object,
    row_order: int,
    column_order: int,
    symmetric: bool,
    values: int,
    block: int,
    first: int,
    last: int,
) -> None: ...
def dtw_values(isa: str, problem: object, order: int, values: int, begin: int, end: int) -> None: ...
def dtw_group(isa: str, float64: bool) -> int: ...
def dtw_shared_values(
    isa: str, problem: object, pairs: int, first: int, count: int, state: int, rows: int, kept: int, values: int
) -> None: ...
def dtw_paths(isa: str, problem: object, paths: int, steps: int, begin: int, end: int) -> None: ...
def dtw_gradients(isa: str, problem: object, weights: int, x_grad: int, y_grad: int, begin: int, end: int) -> None: ...
def dtw_matched(
    isa: str,
    problem: object,
    order: int,
    count: int,
    weights: int,
    sums: int,
    counts: int,
    values: int,
    begin: int,
    end: int,
) -> None: ...
def dtw_rotations(
    isa: str,
    problem: object,
    y_channels: int,
    max_iter: int,
    bias: bool,
    start: int,
    order: int,
    count: int,
    first: int,
    rotations: int,
    offsets: int,
    values: int,
    converged: int,
) -> None: ...

class ElasticProblem:
    def __init__(
        self,
        problem: object,
        recurrence: int,
        x_gaps: int,
        y_gaps: int,
        x_reach: int,
        y_reach: int,
        weights: int,
        longest: int,
        border: int,
        penalty: float,
        slope: float,
        hit: float,
        miss: float,
        last_cost: bool,
        own_first: int,
        own_count: int,
    ) -> None: ...

def elastic_blocks(
    isa: str,
    problem: object,
    x_items: int,
    y_items: int,
    order: int,
    count: int,
    limits: int,
    values: int,
    begin: int,
    end: int,
) -> None: ...
def elastic_tile(
    isa: str,
    problem: object,
    row_order: int,
    column_order: int,
    symmetric: bool,
    values: int,
    block: int,
    first: int,
    last: int,
) -> None: ...
def elastic_paths(
    isa: str,
    problem: object,
    x_items: int,
    y_items: int,
    order: int,
    count: int,
    paths: int,
    steps: int,
    begin: int,
    end: int,
) -> None: ...
def elastic_gradients(
    isa: str,
    problem: object,
    x_items: int,
    y_items: int,
    order: int,
    count: int,
    weights: int,
    x_grad: int,
    y_grad: int,
    x_gaps_grad: int,
    y_gaps_grad: int,
    values: int,
    begin: int,
    end: int,
) -> None: ...
def soft_dtw_values(isa: str, problem: object, order: int, values: int, begin: int, end: int) -> None: ...
def soft_dtw_value_blocks(
    isa: str, problem: object, order: int, count: int, values: int, begin: int, end: int
) -> None: ...
def soft_dtw_gradient_blocks(
    isa: str,
    problem: object,
    order: int,
    count: int,
    weights: int,
    values: int,
    x_grad: int,
    y_grad: int,
    begin: int,
    end: int,
) -> None: ...
def soft_dtw_gradients(
    isa: str,
    problem: object,
    plan: bool,
    weights: int,
    values: int,
    x_grad: int,
    y_grad: int,
    begin: int,
    end: int,
) -> None: ...
def soft_dtw_hessian(isa: str, problem: object, tangent: int, product: int, begin: int, end: int) -> None: ...

class TransportSettings:
    def __init__(
        self,
        reg: float,
        inverse_difference: float,
        delta: float,
        time_weight: float,
        n_iter: int,
        tolerance: float,
        max_iter: int,
        x_mass: int,
        y_mass: int,
    ) -> None: ...

def transport_solve(
    isa: str,
    problem: object,
    settings: object,
    order: int,
    values: int,
    errors: int,
    plans: int,
    begin: int,
    end: int,
) -> None: ...

class WarpProblem:
    def __init__(
        self,
        x: int,
        y: int,
        x_lengths: int,
        y_lengths: int,
        x_times: int,
        y_times: int,
        reg: int,
        lower: int,
        upper: int,
        slope_min: int,
        slope_max: int,
        count: int,
        x_steps: int,
        y_steps: int,
        channels: int,
        float64: bool,
        subsequence: bool,
        huber: float,
        nodes: int,
        refinements: int,
    ) -> None: ...

class WarpGradients:
    def __init__(
        self,
        value: int,
        warp: int,
        x: int,
        y: int,
        reg: int,
        lower: int,
        upper: int,
        slope_min: int,
        slope_max: int,
    ) -> None: ...

def gdtw_solve(
    isa: str, problem: object, values: int, warps: int, holds: int, faults: int, begin: int, end: int
) -> None: ...
def gdtw_polish(
    isa: str, problem: object, values: int, warps: int, holds: int, faults: int, begin: int, end: int
) -> None: ...
def gdtw_gradients(
    isa: str, problem: object, warps: int, holds: int, gradients: object, begin: int, end: int
) -> None: ...

class CoupledProblem:
    def __init__(
        self,
        gx: int,
        gy: int,
        rows: int,
        columns: int,
        x_lengths: int,
        y_lengths: int,
        order: int,
        weights: int,
        hidden: int,
        layers: int,
        pairs: int,
        x_steps: int,
        y_steps: int,
        float64: bool,
    ) -> None: ...

def coupled_gru_lanes(isa: str, float64: bool) -> int: ...
def coupled_gru_states(isa: str, problem: object, states: int, every: bool, begin: int, end: int) -> None: ...
def coupled_gru_gradients(
    isa: str,
    problem: object,
    grad: int,
    every: bool,
    gx_grad: int,
    gy_grad: int,
    weights_grad: int,
    begin: int,
    end: int,
) -> None: ...

class TapProblem:
    def __init__(
        self,
        x: int,
        y: int,
        x_lengths: int,
        y_lengths: int,
        items: int,
        others: int,
        kept: int,
        sides: int,
        weights: int,
        unit: float,
        layers: int,
        x_steps: int,
        y_steps: int,
        channels: int,
        width: int,
        stride: int,
    ) -> None: ...

def tap_values(isa: str, problem: object, memory: int, values: int, begin: int, end: int) -> None: ...
def tap_gradients(
    isa: str,
    problem: object,
    memory: int,
    slopes: int,
    x_grad: int,
    y_grad: int,
    weights_grad: int,
    begin: int,
    end: int,
) -> None: ...

class Matches:
    def __init__(self, queries: int, k: int, within: float, radius: int) -> None: ...
    def wanted(self) -> int: ...
    def threshold(self, query: int) -> float: ...
    def forget(self) -> None: ...
    def count(self, counts: int) -> None: ...
    def copy(self, width: int, values: int, items: int, starts: int, ends: int) -> None: ...

class Candidates:
    def __init__(self, queries: int) -> None: ...
    def sort(self, query: int, radius: int, most: int) -> int: ...
    def clear(self) -> None: ...

class SearchProblem:
    def __init__(
        self,
        pairs: object,
        plane: int,
        upper: int,
        lower: int,
        padded: int,
        means: int,
        means_upper: int,
        means_lower: int,
        coarse: int,
        segment: int,
        means_error: float,
        turned: int,
        laid_means: int,
        laid_upper: int,
        laid_lower: int,
        highest: int,
        lowest: int,
        leads: int,
        unit: float,
        window: int,
        steps: int,
        channels: int,
        ordered_upper: int,
        ordered_lower: int,
        ordered_query: int,
        query_upper: int,
        query_lower: int,
        normalize: bool,
        error: float,
        by_lengths: bool,
        skip: int,
        skip_start: int,
        skip_radius: int,
        matches: Matches,
        candidates: Candidates | None,
        counts: int,
    ) -> None: ...

def search_lay(isa: str, x: int, items: int, stride: int, size: int, to: int, begin: int, end: int) -> None: ...
def search_round(isa: str, x: int, channels: int, padded: int, unit: float, to: int, begin: int, end: int) -> None: ...
def search_means(isa: str, x: int, stride: int, to_stride: int, means: int, begin: int, end: int) -> None: ...
def search_envelopes(
    isa: str,
    x: int,
    lengths: int,
    left: int,
    right: int,
    counts: int,
    stride: int,
    to_stride: int,
    upper: int,
    lower: int,
    begin: int,
    end: int,
) -> None: ...
def search_normalize(
    isa: str, source: int, float64: bool, length: int, channels: int, to: int, begin: int, end: int
) -> None: ...
def search_whole(isa: str, problem: object, order: int, first: int, last: int, begin: int, end: int) -> None: ...
def search_bounds(isa: str, problem: object, item: int, first: int, last: int, stride: int) -> None: ...
def search_stretches(
    isa: str,
    problem: object,
    query: int,
    samples: int,
    count: int,
    position: int,
    column: int,
    starts: int,
    values: int,
    found: int,
) -> None: ...
def search_compare(isa: str, problem: object, query: int, begin: int, end: int) -> None: ...

class Tape:
    def __init__(self, launch_kernel: int, record_event: int) -> None: ...
    def add(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        slots: list[int],
        values: list[int],
    ) -> None: ...
    def run(self, stream: int, event: int, addresses: Sequence[int]) -> bool: ...

class AttentionLayer:
    def __init__(
        self,
        values: int,
        inward: int,
        outward: int,
        wanted: int,
        mask: int,
        channels: int,
        positions: int,
        features: int,
        float64: bool,
    ) -> None: ...

def attention_forward(
    isa: str, layer: object, weights: int, summaries: int, stride: int, items: int, parts: int, threads: int
) -> None: ...
def attention_backward(
    isa: str,
    layer: object,
    weights: int,
    by_summaries: int,
    stride: int,
    by_weights: int,
    by_values: int,
    by_wanted: int,
    by_rest: int,
    items: int,
    parts: int,
    threads: int,
) -> None: ...
