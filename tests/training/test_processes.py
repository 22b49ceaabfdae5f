import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import likewise as lw
from likewise.regularizers import EnergyConfusion
from likewise.training.adversary import AdaptiveAdversary
from likewise.training.cross_batch_memory import CrossBatchMemory
from likewise.training.fit import fit
from likewise.training.options import Optimization
from likewise.training.ranks import Ranks
from likewise.training.regularizer import Regularizer
from tests.ports import free_ports
from tests.training.kinds import QUICK, doubled, run_all
from tests.training.problems import metric, problem, spread, train, weights

PROGRAM = """
import sys, torch, warnings
warnings.simplefilter("error")
from tests.training.test_processes import run
from likewise.training.options import Checkpoints
folder = sys.argv[1] + ".folder"
run(sys.argv[1], devices=2, checkpoints=folder, epochs=1)
run(sys.argv[1], devices=2, checkpoints=Checkpoints(folder, resume=True), epochs=3)
"""
EVERY_KIND = """
import os, sys, warnings
warnings.simplefilter("error")
from tests.training.kinds import run_all
run_all(sys.argv[1] + "." + os.environ["LOCAL_RANK"], devices=4)
"""
ELASTIC = """
import sys
from tests.training.kinds import killed_once
killed_once(sys.argv[1])
"""
ROOT = Path(__file__).parents[2]


class Shifted:
    def __init__(self, batch, generator):
        noise = torch.randn(batch.values.shape, generator=generator, dtype=batch.dtype)
        self.batch, self.plans = lw.Batch(batch.values[:, 1:] + noise[:, 1:], (batch.lengths - 1).clamp(min=1)), None


class Pull(torch.nn.Module):
    """A term with its own parameter, and one that no step uses."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.unused = torch.nn.Parameter(torch.ones(4))

    def forward(self, step):
        assert len(step.labels) == len(step.features) == len(step.augmented_features) == len(step.D) == 5
        return (step.features.values[:, 0] * self.weight).std()


def run(path, **options):
    """Asymmetric distance, odd batches, augmentation, terms, clipping: everything that is divided and gathered."""
    m, pull = metric(distance=lw.DTW(open_end=True), dropout=0.0).double(), Pull().double()
    energy = Regularizer(EnergyConfusion(), 0.1, of=["convolutions.0"])
    adversary = AdaptiveAdversary(0.5, dropout=0.0, layer="outward")
    history = train(
        m,
        terms=[pull, energy, adversary],
        augment=Shifted,
        optimizer=Optimization(clip=0.5),
        average=0.9,
        val=problem(7, seed=1),
        **{"epochs": 3} | options,
    )
    torch.save(
        {
            "weights": weights(m),
            "pull": pull.weight.detach(),
            "classifier": weights(adversary.head),
            "lambda": adversary.scale,
            "losses": torch.tensor(history.losses),
            "scores": torch.tensor([s.map for s in history.scores]),
        },
        f"{path}.{os.environ.get('LOCAL_RANK', '')}",
    )


def spawned(program, path, size):
    """Processes that run a program together."""
    (port,) = free_ports(1)
    processes = []
    for rank in range(size):
        place = {
            "LOCAL_RANK": str(rank),
            "NODE_RANK": "0",
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", program, str(path)],
                env=environment() | place,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def environment():
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def check_ended(processes):
    for process in processes:
        said, _ = process.communicate(timeout=200)
        assert process.returncode == 0, said
        assert said == ""


def test_two_processes_equal_one_with_the_same_batches(tmp_path):
    processes = spawned(PROGRAM, tmp_path / "two", 2)
    run(tmp_path / "one")
    check_ended(processes)
    one = torch.load(tmp_path / "one.")
    for rank in range(2):
        two = torch.load(tmp_path / f"two.{rank}")
        for name in one:
            torch.testing.assert_close(
                two[name], one[name], rtol=1e-7, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_four_processes_equal_one_in_every_kind_of_step(tmp_path):
    """Batches of 5, 6, 7 and 9 items: the four have unequal shares. With batch normalisation, a cross-batch memory, and items from disk."""
    processes = spawned(EVERY_KIND, tmp_path / "four", 4)
    run_all(tmp_path / "one")
    check_ended(processes)
    one = torch.load(tmp_path / "one")
    for rank in range(4):
        four = torch.load(tmp_path / f"four.{rank}")
        assert set(four) == set(one)
        for name in one:
            torch.testing.assert_close(
                four[name], one[name], rtol=1e-7, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_a_process_is_killed_and_all_are_restarted(tmp_path):
    """torchrun restarts both processes, which resume from the last checkpoint to the same weights."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    (tmp_path / "program.py").write_text(ELASTIC)
    found = subprocess.run(
        [*torchrun, "program.py", str(tmp_path)],
        env=environment() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    assert "SIGKILL" in found.stderr or "-9" in found.stderr, found.stderr[-3000:]  # it was killed
    m, kept = metric(dropout=0.0).double(), CrossBatchMemory(batches=3)
    fit(m, doubled(), spread, terms=[kept], batch_size=5, **QUICK | {"epochs": 3})
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"weights.{rank}"), weights(m), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("count", [2, 5, 9])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_rows_are_shared_out(count, size):
    rows = [list(range(count))[Ranks(rank, size).rows(count)] for rank in range(size)]
    assert sum(rows, []) == list(range(count))  # noqa: RUF017
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_the_loss_is_not_a_sum_over_rows():
    x = problem()[0][:6]
    labels = problem()[1][:6]
    D = metric(dropout=0.0).matrix(x)
    assert not torch.isclose(
        spread(D, labels), (spread(D[:3], labels[:3], labels) + spread(D[3:], labels[3:], labels)) / 2
    )
