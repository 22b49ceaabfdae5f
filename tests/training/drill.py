"""A program that trains, is killed and resumes, for test_drill.py. It is imported once and forks, to be fast.

``python -m tests.training.drill kill|others SEED FOLDER`` prints a line of JSON.
"""

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

import likewise as lw
from likewise import losses
from likewise.data.augment import RandomBlurOrMerge
from likewise.data.episodes import Episodes
from likewise.models.embedder import Embedder
from likewise.training.fit import fit
from likewise.training.options import Checkpoints, Optimization
from likewise.training.pairs import AlignedPairs
from likewise.training.self_supervised import SelfSupervised
from tests.training.problems import metric, problem, spread, weights

QUICK = {"verbose": False, "accelerator": "cpu", "epochs": 6, "lr": 0.01, "loggers": [], "optimizer": Optimization()}


def aligned(count=9, steps=10):
    generator = torch.Generator().manual_seed(0)
    times = torch.linspace(0, 1, steps)
    truth = times ** (0.6 + torch.rand(count, 1, generator=generator))
    x, y = (torch.stack([(6 * at).sin(), (6 * at).cos()], 2) for at in (truth, times.expand(count, -1)))
    return AlignedPairs(x, y, truth)


def matrix(**options):
    m = metric()
    fit(m, problem(), spread, batch_size=5, val=problem(9, seed=1), average=0.9, **QUICK | options)
    return weights(m)


def vector(**options):
    torch.manual_seed(0)
    m, loss = lw.Metric(Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean()), losses.AMSoftmax(3, 4)
    fit(m, problem(), loss, batch_size=6, **QUICK | options)
    return torch.cat([weights(m), weights(loss)])


def path(**options):
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(2, 4, normalize=False, dropout=0.2), lw.SoftDTW(0.1))
    fit(m, aligned(), losses.Dilate(0.5), batch_size=3, **QUICK | options)
    return weights(m)


def episode(**options):
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(2, 4, normalize=False), lw.SoftDTW(0.1))
    sampler = Episodes(problem()[1], ways=3, shots=1, queries=2, batches=4)
    fit(m, problem(), sampler=sampler, **QUICK | options)
    return weights(m)


def self_supervised(**options):
    torch.manual_seed(0)
    tap = lw.TAP(3, (3, 3))
    fit(tap, problem()[0], augment=RandomBlurOrMerge(), step=SelfSupervised(), batch_size=6, **QUICK | options)
    return weights(tap)


KINDS = (matrix, vector, path, episode, self_supervised)


def train(kind, folder, *, resume=True, **options):
    found = kind(checkpoints=Checkpoints(folder, every=2, resume=resume), **options)
    torch.save(found, Path(folder) / "weights.pt")


def forked(work) -> int:
    """The process that runs it; it exits with 0, or with 1 and a traceback."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(process) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def whole(kind, folder) -> tuple[torch.Tensor, float]:
    """The weights of an uninterrupted run, and its seconds."""
    start = time.monotonic()
    assert ended(forked(lambda: train(kind, folder))) == 0
    return torch.load(folder / "weights.pt"), time.monotonic() - start


def disturbed(number, count, seed, root) -> dict:
    """Runs of each kind that get a signal at random and resume; how many did, and ended with equal weights."""
    draw, hits, equal, early = random.Random(seed), 0, 0, 0
    for kind in KINDS:
        expected, seconds = whole(kind, root / f"{kind.__name__}-whole")
        caught, attempt = 0, 0
        while caught < count:
            folder = root / f"{kind.__name__}-{attempt}"
            process = forked(lambda kind=kind, folder=folder: train(kind, folder))
            time.sleep(draw.uniform(0, seconds))
            if os.waitpid(process, os.WNOHANG)[0]:  # it was done already
                attempt += 1
                assert attempt < 20 * count
                continue
            os.kill(process, number)
            code = ended(process)
            if code == 0:
                attempt += 1
                continue
            assert code in (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM, 130, 143), code
            caught, attempt = caught + 1, attempt + 1
            early += not (folder / "checkpoint.safetensors").exists()
            assert ended(forked(lambda kind=kind, folder=folder: train(kind, folder))) == 0
            equal += torch.equal(torch.load(folder / "weights.pt"), expected)
            left = [path.name for path in folder.iterdir() if path.name.endswith(".part")]
            assert not left, left
        hits += caught
    return {"hits": hits, "equal": equal, "before_the_first_checkpoint": early}


def obstructed(obstacle, root) -> dict:
    """A run whose folder becomes read-only after some steps: the error, and whether it resumed to equal weights."""
    expected, _ = whole(matrix, root / "whole")
    folder = root / "run"
    folder.mkdir()

    def at_step(step):
        if step.total == 9:
            obstacle(folder)
        return step.features.values.sum() * 0

    def work():
        try:
            train(matrix, folder, terms=[at_step])
        except OSError as error:
            (root / "error.json").write_text(json.dumps({"type": type(error).__name__, "file": str(error.filename)}))

    (root / "error.json").write_text("{}")
    os.chmod(root / "error.json", 0o666)
    assert ended(forked(work)) == 0
    os.chmod(folder, 0o755)
    error = json.loads((root / "error.json").read_text())
    assert ended(forked(lambda: train(matrix, folder))) == 0
    return {"error": error, "equal": torch.equal(torch.load(folder / "weights.pt"), expected)}


def fill_disk(folder) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


def make_read_only(folder) -> None:
    """As a user for whom permissions apply: root may write anywhere."""
    if os.getuid() == 0:
        for entry in (folder, *folder.rglob("*")):
            os.chown(entry, 65534, 65534)
        os.chmod(folder, 0o555)
        os.setegid(65534)
        os.seteuid(65534)
    else:
        os.chmod(folder, 0o555)


def main() -> None:
    what, seed, root = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    matrix(epochs=1)  # import fit's lazy imports once, before forking
    if what == "kill":
        found = disturbed(signal.SIGKILL, 4, seed, root)
    else:
        for name in ("SIGINT", "SIGTERM", "full", "readonly"):
            (root / name).mkdir()
        found = {name: disturbed(getattr(signal, name), 1, seed, root / name) for name in ("SIGINT", "SIGTERM")}
        found |= {
            "full": obstructed(fill_disk, root / "full"),
            "readonly": obstructed(make_read_only, root / "readonly"),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
