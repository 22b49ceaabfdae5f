"""Random problems for every kernel, run in a build with sanitisers: ``make sanitize``.

Sizes are odd, lengths unequal, padding is NaN, and every array ends where its memory ends, so a kernel that reads or
writes one number too many is caught. Other tests check what the kernels compute.
"""

import argparse
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def import_with(library: Path) -> None:
    """Let likewise be imported from src, with that library as its kernels."""
    spec = importlib.util.spec_from_file_location("likewise._native", library)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    sys.modules["likewise._native"] = native
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
    sys.path.insert(0, str(ROOT / "src"))


class Problems:
    """Draws problems and gives them to one op after the other."""

    def __init__(self, seed: int, longest: int) -> None:
        import torch

        self.torch, self.random, self.longest, self.done = torch, random.Random(seed), longest, 0
        self.generator = torch.Generator().manual_seed(seed)

    def pair(self, *, paired: bool, channels: int | None = None, least: int = 1):
        """x, y and their lengths, or None for lengths that are full."""
        torch, draw = self.torch, self.random
        rows = draw.choice([1, 2, 3, 7, 17, 33])
        columns = rows if paired else draw.choice([1, 2, 5, 16, 19])
        dtype = draw.choice([torch.float32, torch.float64])
        channels = channels or draw.choice([1, 1, 2, 3, 5, 8, 17, 40])
        found = []
        for count in (rows, columns):
            steps = draw.choice(
                [max(least, n) for n in (1, 2, 3, 8, 9, 16, 17, 31, 33)] + [draw.randint(least, self.longest)]
            )
            values = torch.randn(count, steps, channels, generator=self.generator, dtype=torch.float64).to(dtype)
            lengths = None
            if draw.random() < 0.7:
                lengths = torch.tensor([draw.randint(least, steps) for _ in range(count)])
                for item, length in enumerate(lengths.tolist()):
                    values[item, length:] = torch.nan
            found.append((values, lengths))
        (x, n), (y, m) = found
        return x, y, n, m

    def rules(self):
        from likewise.ops.rules import Rules

        draw, options = self.random, {}
        match draw.randint(0, 5):
            case 0:
                options["band"] = draw.choice([0, 1, 3, 0.1, 0.5, 1.0])
            case 1:
                options["itakura"] = draw.choice([1.0, 1.5, 3.0])
            case 2:
                options["subsequence"] = True
            case 3:
                options["open_end"] = True
        return Rules.of("sanitize", **options)

    def ground(self) -> str:
        return self.random.choice(["sqeuclidean", "euclidean", "cosine"])

    def dtw(self) -> None:
        from likewise.ops import dtw as op
        from likewise.ops.dtw_rotation import dtw_rotation

        rules, ground = self.rules(), self.ground()
        x, y, n, m = self.pair(paired=True)
        x.requires_grad_()
        y.requires_grad_()
        op.dtw(x, y, n, m, ground=ground, rules=rules).sum().backward()
        op.dtw_path(x, y, n, m, ground=ground, rules=rules)
        wider = self.torch.cat([y, y], 2)
        dtw_rotation(x, wider, n, m, max_iter=3, bias=self.random.random() < 0.3, rules=rules)
        cost = self.torch.rand(len(x), x.shape[1], y.shape[1], dtype=x.dtype, requires_grad=True)
        op.dtw_cost(cost, n, m, rules=rules).sum().backward()
        op.dtw_cost_path(cost, n, m, rules=rules)
        x, y, n, m = self.pair(paired=False)
        x.requires_grad_()
        op.dtw_matrix(x, y, n, m, ground=ground, rules=rules).sum().backward()
        op.dtw_matrix(x.detach(), None, n, ground=ground, rules=rules)
        op.dtw_steps(x.detach(), x.detach(), n, n, ground=ground, rules=rules)
        rows = self.torch.tensor([self.random.randrange(len(x)) for _ in range(len(y))])
        weights = self.torch.rand(len(y), dtype=self.torch.float64)
        op.dtw_matched(x.detach(), y, rows, weights, n, m, root=self.random.random() < 0.3, rules=rules)

    def elastic(self) -> None:
        import likewise as lw

        draw, torch = self.random, self.torch
        window = draw.choice([{}, {}, {"band": 0.3}, {"band": 3}, {"itakura": 1.5}])
        free = draw.choice([window, {"open_end": True}, {"subsequence": True}])
        stretch = draw.choice([window, {"subsequence": True}])
        kinds = [lw.ADTW(0.3, **free), lw.ShapeDTW(3, **free), lw.WDTW(**window), lw.ERP(0.5, **window)]
        kinds += [lw.EDR(free_start=draw.random() < 0.5, **window), lw.TWE(0.1, **window), lw.MSM(0.5, **stretch)]
        kinds += [lw.MSM(independent=False, **window), lw.DDTW(**window), lw.LCSS(0.8, **window), lw.WDDTW(**window)]
        distance = kinds[self.done % len(kinds)]
        least = 3 if isinstance(distance, lw.DDTW | lw.WDDTW) else 1  # slopes need three steps
        x, y, n, m = self.pair(paired=True, least=least)
        if not isinstance(distance, lw.EDR | lw.LCSS):  # these count matches, and have no derivative
            x.requires_grad_()
            y.requires_grad_()
        values = distance(lw.Batch(x, n), lw.Batch(y, m))
        if values.requires_grad:
            values.sum().backward()
        if not isinstance(distance, lw.MSM) or not distance.independent or x.shape[2] == 1:
            distance.align(lw.Batch(x.detach(), n), lw.Batch(y.detach(), m)).path(0)
        x, y, n, m = self.pair(paired=False, least=least)
        distance.matrix(lw.Batch(x, n), lw.Batch(y, m))
        distance.matrix(lw.Batch(x, n))
        self.elastic_pairs(x, y, n, m)
        index = lw.Index(lw.MSM(0.5) if torch.rand((), generator=self.generator) < 0.5 else lw.ERP(0.5))
        index.add(lw.Batch(y, m))
        index.search(lw.Batch(x, n), k=min(3, len(y)))

    def elastic_pairs(self, x, y, n, m) -> None:
        """Listed pairs, some of which are given up."""
        from likewise.ops.elastic import Moves, Recurrence, Side, elastic_pairs

        torch, count = self.torch, self.random.choice([1, 3, 16, 37])
        columns = [[self.random.randrange(len(side)) for _ in range(count)] for side in (x, y)]
        limits = self.random.choice([None, 10 * torch.rand(count, generator=self.generator)])
        moves = Moves(Recurrence.WARP, penalty=0.2)
        elastic_pairs(Side(x, n), Side(y, m), torch.tensor(columns).T.contiguous(), moves, limits=limits)

    def soft_dtw(self) -> None:
        from likewise.ops import soft_dtw as op

        rules, ground, gamma = self.rules(), self.ground(), self.random.choice([0.01, 0.5, 10.0])
        x, y, n, m = self.pair(paired=True)
        op.soft_dtw(x, y, n, m, gamma=gamma, ground=ground, rules=rules)
        x.requires_grad_()
        y.requires_grad_()
        op.soft_dtw(x, y, n, m, gamma=gamma, ground=ground, rules=rules).sum().backward()
        cost = self.torch.rand(len(x), x.shape[1], y.shape[1], dtype=x.dtype, requires_grad=True)
        plan = op.soft_dtw_plan(cost, n, m, gamma=gamma, rules=rules)
        (plan * self.torch.rand_like(plan)).sum().backward()
        op.soft_dtw_matrix(x, None, n, gamma=gamma, ground=ground, rules=rules).sum().backward()

    def gdtw(self) -> None:
        import likewise as lw
        from likewise.ops import cpu
        from likewise.ops import gdtw as op

        draw, run = self.random, op._run

        def polish_too(kernel, problem, values, *found) -> None:
            """Warps from a GPU are polished on the CPU: so are these."""
            run(kernel, problem, values, *found)
            if kernel is cpu.native.gdtw_solve:
                run(cpu.native.gdtw_polish, problem, values.clone(), *(each.clone() for each in found))

        x, y, n, m = self.pair(paired=True, least=2)
        x.requires_grad_()
        options = {
            "band": draw.choice([None, 0.3, 3]),
            "subsequence": draw.random() < 0.3,
            "grid": draw.choice([None, 5, 33]),
        }
        options |= {"huber": draw.choice([None, None, 0.5]), "knots": draw.choice([None, 4])}
        distance = lw.GDTW(draw.choice([0.01, 1.0]), **options)
        op._run = polish_too
        try:
            distance(lw.Batch(x, n), lw.Batch(y, m)).sum().backward()
        finally:
            op._run = run

    def transport(self) -> None:
        from likewise.ops import transport as op

        draw = self.random
        settings = op.Settings(reg=draw.choice([0.05, 1.0]), n_iter=draw.choice([None, 5]), max_iter=50)
        x, y, n, m = self.pair(paired=True)
        op.transport(x, y, n, m, settings=settings, ground=self.ground())
        x.requires_grad_()
        op.transport(x, y, n, m, settings=settings).sum().backward()
        op.transport_matrix(x.detach(), None, n, settings=settings)

    def coupled_gru(self) -> None:
        import likewise as lw

        draw = self.random
        x, y, n, m = self.pair(paired=True)
        hidden = tuple(draw.choice([1, 3, 8, 20]) for _ in range(draw.randint(1, 2)))
        distance = lw.CoupledGRU(x.shape[2], hidden, standardize=False).to(x.dtype)
        distance(lw.Batch(x, n), lw.Batch(y, m)).sum().backward()
        with self.torch.no_grad():
            distance.matrix(lw.Batch(x, n))

    def tap(self) -> None:
        import likewise as lw

        draw = self.random
        x, y, n, m = (None if given is None else given[:4] for given in self.pair(paired=True))
        kernels = draw.choice([(5, 5, 3), (3, 3), (1, 3), (7, 3, 5, 3)])
        distance = lw.TAP(draw.choice([1, 3, 8, 17, 30]), kernels, symmetric=draw.random() < 0.3).to(x.dtype)
        x.requires_grad_()
        distance(lw.Batch(x, n), lw.Batch(y, m)).sum().backward()
        distance.matrix(lw.Batch(x, n)).sum().backward()
        with self.torch.no_grad():
            distance.matrix(lw.Batch(x, n), lw.Batch(y, m))

    def additive_attention(self) -> None:
        from likewise.ops.additive_attention import Layer, additive_attention

        draw, torch = self.random, self.torch
        dtype, items, width = (
            draw.choice([torch.float32, torch.float64]),
            draw.choice([1, 3, 9]),
            draw.choice([1, 5, 16]),
        )

        def random(*shape: int):
            return torch.randn(*shape, generator=self.generator, dtype=dtype).requires_grad_()

        layers = []
        for _ in range(draw.randint(1, 3)):
            channels, positions, features = draw.choice([1, 3, 17]), draw.choice([1, 7, 16, 33]), draw.choice([1, 2, 5])
            mask = None
            if draw.random() < 0.5:
                mask = torch.arange(positions) < torch.randint(1, positions + 1, (items, 1), generator=self.generator)
            q, first, second, last = (
                random(*shape)
                for shape in ((items, channels, positions), (features, channels), (features, width), (1, features))
            )
            layers.append(Layer(q, mask, first, second, last))
        found, weights = additive_attention(random(items, width), layers)
        (found.sum() + sum((w * w).sum() for w in weights)).backward()

    def search(self) -> None:
        import likewise as lw

        draw = self.random
        x, y, n, m = self.pair(paired=False, channels=draw.choice([1, 3]))
        distance = lw.DTW(band=draw.choice([None, 2, 0.2]), ground=draw.choice(["sqeuclidean", "euclidean"]))
        index = lw.Index(distance)
        index.add(lw.Batch(y, m))
        index.search(lw.Batch(x, n), k=min(3, len(y)))
        index.search(lw.Batch(x, n), within=draw.choice([0.5, 20.0]))
        if draw.random() < 0.3:  # full lengths from 64 steps: bounds of means come first
            steps = draw.choice([64, 71, 131])
            x, y = (self.torch.randn(count, steps, x.shape[2], generator=self.generator) for count in (2, len(y)))
            lw.Index(distance, y).search(x, k=min(2, len(y)))
        else:  # many channels that vary together: leading channels come first
            steps, mix = draw.choice([64, 71]), self.torch.randn(3, 7, generator=self.generator)
            x, y = (self.torch.randn(count, steps, 3, generator=self.generator) @ mix for count in (2, len(y) + 20))
            lw.Index(lw.DTW(band=draw.choice([2, 0.2])), y).search(x, k=2)

    def windows(self) -> None:
        """Windows of one length, stretches of any, all windows against each other, and a series that arrives in pieces."""
        import likewise as lw

        draw, torch = self.random, self.torch
        channels, length = draw.choice([1, 1, 2]), draw.choice([4, 7, 16, 17])
        dtype = draw.choice([torch.float32, torch.float64])
        series, query = (
            torch.randn(1, steps, channels, generator=self.generator, dtype=dtype)
            for steps in (length + draw.choice([draw.randint(1, 3 * self.longest)] * 9 + [8300]), length)
        )
        normalize = draw.choice([None, "window"])
        band = draw.choice([None, 1, 0.2])
        index = lw.Index(lw.DTW(band=band), series, length=length, normalize=normalize)
        index.search(query, k=2)
        index.search(query, within=2.0)
        lw.Index(lw.DTW(), series, subsequence=True).search(query, k=1)
        watch = lw.Index(lw.DTW(subsequence=True), query).watch(query[0], within=5.0)
        for piece in series[0].split(draw.choice([1, 5, 64])):
            watch.push(piece)
        if 2 * length <= series.shape[1] < 8192:
            index.self_join()

    def long(self) -> None:
        """Pairs that are computed alone, shared by threads, in pieces of their paths, or too wide for the cache."""
        import likewise as lw
        from likewise.ops import cpu, soft_dtw
        from likewise.ops import dtw as op
        from likewise.ops.dtw.cpu import _share_pair
        from likewise.ops.rules import Rules

        torch, draw = self.torch, self.random
        dtype = draw.choice([torch.float32, torch.float64])

        def walks(count: int, steps: int, channels: int = 1):
            found = torch.randn(count, steps, channels, generator=self.generator, dtype=dtype)
            lengths = torch.tensor([draw.randint(steps - 9, steps) for _ in range(count)])
            return found.cumsum(1), lengths

        (x, n), (y, m) = walks(1, 1100), walks(1, 1055)
        x.requires_grad_()
        op.dtw(x, y, n, m).sum().backward()
        soft_dtw.soft_dtw(x, y, n, m, gamma=0.5).sum().backward()
        problem = cpu.problem("long", x.detach(), y, n, m, Rules.of("long"))
        _share_pair(problem, torch.tensor([0]), x.new_empty(1), threads=4)
        (x, n), (y, m) = walks(1, 5900), walks(1, 5800)
        op.dtw_path(x, y, n, m)
        lw.ADTW(0.3).align(lw.Batch(x, n), lw.Batch(y, m)).path(0)
        (x, n), (y, m) = walks(2, 300, 128), walks(9, 310, 128)
        op.dtw_matrix(x, y, n, m)
        soft_dtw.soft_dtw_matrix(x, y, n, m, gamma=0.5)
        (x, n), (y, m) = walks(1, 520), walks(17, 510)
        op.dtw_matched(x, y, torch.zeros(17, dtype=torch.int64), torch.rand(17, dtype=torch.float64), n, m)


OPS = (
    "dtw",
    "soft_dtw",
    "gdtw",
    "transport",
    "coupled_gru",
    "tap",
    "additive_attention",
    "elastic",
    "search",
    "windows",
    "long",
)
FEWER = {"long": 15}  # one in so many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("--kind", default="address")
    parser.add_argument("--problems", type=int, default=30, help="of each op and instruction set")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--longest", type=int, default=70)
    parser.add_argument("ops", nargs="*", default=OPS)
    options = parser.parse_args()
    import_with(options.library)
    import warnings

    import torch

    from likewise.ops import cpu

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # PyTorch's own threads are not built with the sanitiser, which would blame them
    if options.threads > 1:
        divide: Callable = cpu.share_out

        def share_out(count: int, cells: int, work: Callable[[int, int], None], threads: int | None = None) -> None:
            """Divide small problems as well."""
            divide(count, max(cells, 1 << 24), work, options.threads)

        cpu.share_out = share_out
    sets, start, done = cpu.native.instruction_sets(), time.monotonic(), 0
    for isa in sets:
        cpu.INSTRUCTION_SET = isa
        for seed, op in enumerate(options.ops):
            problems, refused = Problems(seed, options.longest), []
            count = -(-options.problems // FEWER.get(op, 1))
            for problems.done in range(count):
                try:
                    getattr(problems, op)()
                except ValueError as error:  # a band that leaves no warp, for example
                    refused.append(str(error))
            solved = count - len(refused)
            done += solved
            print(f"{isa} {op}: {solved} of {count} problems solved", flush=True)
            if solved < 0.6 * count:
                sys.exit(f"sanitize: most problems of {op} are refused, so its kernels were not tested: {refused[:2]}")
    facts = f"{len(options.ops)} ops, {', '.join(sets)}, threads {options.threads}, {done} problems"
    print(f"sanitize ({options.kind}): {facts}, {time.monotonic() - start:.0f} s: no error")


if __name__ == "__main__":
    main()
