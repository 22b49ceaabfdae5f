"""Random problems for every kernel, run in a build with sanitisers: ``make sanitize``.

Sizes are odd, lengths unequal, padding is NaN, and every array ends where its memory ends, so that a kernel that reads
or writes one number too many is found. What the kernels compute is compared elsewhere.
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

        self.torch, self.random, self.longest = torch, random.Random(seed), longest
        self.generator = torch.Generator().manual_seed(seed)

    def pair(self, *, paired: bool, channels: int | None = None, least: int = 1):
        """x, y and their lengths, or None for lengths that are full."""
        torch, draw = self.torch, self.random
        rows = draw.choice([1, 2, 3, 7, 17, 33])
        columns = rows if paired else draw.choice([1, 2, 5, 16, 19])
        dtype = draw.choice([torch.float32, torch.float64])
        channels = channels or draw.choice([1, 1, 2, 3, 5, 8])
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

        rules, ground = self.rules(), self.ground()
        x, y, n, m = self.pair(paired=True)
        x.requires_grad_()
        y.requires_grad_()
        op.dtw(x, y, n, m, ground=ground, rules=rules).sum().backward()
        op.dtw_path(x, y, n, m, ground=ground, rules=rules)
        cost = self.torch.rand(len(x), x.shape[1], y.shape[1], dtype=x.dtype, requires_grad=True)
        op.dtw_cost(cost, n, m, rules=rules).sum().backward()
        op.dtw_cost_path(cost, n, m, rules=rules)
        x, y, n, m = self.pair(paired=False)
        x.requires_grad_()
        op.dtw_matrix(x, y, n, m, ground=ground, rules=rules).sum().backward()
        op.dtw_matrix(x.detach(), None, n, ground=ground, rules=rules)
        op.dtw_steps(x.detach(), x.detach(), n, n, ground=ground, rules=rules)

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

        draw = self.random
        x, y, n, m = self.pair(paired=True, least=2)
        x.requires_grad_()
        options = {
            "band": draw.choice([None, 0.3, 3]),
            "subsequence": draw.random() < 0.3,
            "grid": draw.choice([None, 5, 33]),
        }
        options |= {"huber": draw.choice([None, None, 0.5]), "knots": draw.choice([None, 4])}
        distance = lw.GDTW(draw.choice([0.01, 1.0]), **options)
        distance(lw.Batch(x, n), lw.Batch(y, m)).sum().backward()

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

    def search(self) -> None:
        import likewise as lw

        draw = self.random
        x, y, n, m = self.pair(paired=False, channels=draw.choice([1, 3]))
        x, y = x.float(), y.float()
        if n is None and m is None and y.shape[1] != x.shape[1]:
            n = self.torch.tensor([draw.randint(1, x.shape[1]) for _ in range(len(x))])
        index = lw.Index(lw.DTW(band=draw.choice([None, 2, 0.2])))
        index.add(lw.Batch(y, m))
        index.search(lw.Batch(x, n), k=min(3, len(y)))


OPS = ("dtw", "soft_dtw", "gdtw", "transport", "coupled_gru", "search")


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
    torch.set_num_threads(options.threads)
    if options.threads > 1:  # small problems are divided, too
        divide: Callable = cpu.share_out
        cpu.share_out = lambda count, cells, work, *rest: divide(count, max(cells, 1 << 24), work, *rest)
    sets, start, done = cpu.native.instruction_sets(), time.monotonic(), 0
    for isa in sets:
        cpu.INSTRUCTION_SET = isa
        for seed, op in enumerate(options.ops):
            problems, refused = Problems(seed, options.longest), []
            for _ in range(options.problems):
                try:
                    getattr(problems, op)()
                except ValueError as error:  # a band that leaves no warp, for example
                    refused.append(str(error))
            solved = options.problems - len(refused)
            done += solved
            print(f"{isa} {op}: {solved} of {options.problems} problems solved", flush=True)
            if solved < 0.6 * options.problems:
                sys.exit(
                    f"sanitize: most problems of {op} are refused, so that its kernels are not tried: {refused[:2]}"
                )
    facts = f"{len(options.ops)} ops, {', '.join(sets)}, threads {options.threads}, {done} problems"
    print(f"sanitize ({options.kind}): {facts}, {time.monotonic() - start:.0f} s: no error")


if __name__ == "__main__":
    main()
