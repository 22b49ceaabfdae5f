"""The loop of recipes whose loss is of alignments, for which ``fit`` has no place; it goes on after a stop."""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from likewise.models.storage import parse_json, read_note, read_shapes, read_tensors, write_tensors
from likewise.training.checkpoint import optimizer_state, put_optimizer_state

MOST_BYTES = 1 << 30  # of a file


@dataclass
class Curves:
    """What is told of the rounds: the validation before any and after each, the mean losses, and the seconds."""

    validation: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def best_round(self) -> int:
        """The round of the lowest validation, the last of equal ones; 0 is before any learning."""
        return len(self.validation) - 1 - self.validation[::-1].index(min(self.validation))


def tune(
    module: nn.Module,
    loss_of: Callable[[Tensor, torch.Generator], Tensor],
    validate: Callable[[], float],
    *,
    items: int,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    clip: float | None = None,
    checks: int = 1,
    patience: int | None = None,
    average: float = 0.0,
    state: Path | None = None,
) -> Curves:
    """Train a module with Adam, and leave it as it was after the round that was best by ``validate``, the least.

    loss_of: the loss of the items of an index (B,), drawing what it likes from the round's generator.
    checks: rounds of an epoch, each with as many of its batches and followed by a validation.
    patience: stop after so many rounds in a row without a better one.
    average: what is validated and left is a moving average of the weights, which keeps this share of itself at each
        step; 0 is the weights themselves.
    state: where all that is needed to go on is kept after each round.
    """
    optimizer = torch.optim.Adam([weight for weight in module.parameters() if weight.requires_grad], lr)
    averaged = copy.deepcopy(module)
    best, curves = copy.deepcopy(module.state_dict()), Curves()
    if state is not None and state.is_file():
        best, curves = _resume(state, module, averaged, optimizer)
    else:
        curves.validation.append(validate())
    for number in range(len(curves.losses), epochs * checks):
        if patience is not None and number - curves.best_round >= patience:
            break
        start, total, seen = time.perf_counter(), 0.0, 0
        generator = torch.Generator().manual_seed(1000 * seed + number // checks)
        batches = torch.randperm(items, generator=generator).split(batch_size)[number % checks :: checks]
        # What a round draws depends on nothing but its number, so that it can be gone on from.
        generator.manual_seed(generator.initial_seed() + (1 + number % checks) * 1_000_000)
        for index in batches:
            loss = loss_of(index, generator)
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            _follow(averaged, module, average)
            total, seen = total + loss.detach() * len(index), seen + len(index)  # no number leaves the device
        curves.losses.append(float(total) / max(seen, 1))
        curves.seconds.append(time.perf_counter() - start)
        weights = copy.deepcopy(module.state_dict())
        module.load_state_dict(averaged.state_dict())
        curves.validation.append(validate())
        module.load_state_dict(weights)
        if curves.best_round == number + 1:
            best = copy.deepcopy(averaged.state_dict())
        if state is not None:
            _keep(state, module, averaged, optimizer, best, curves)
    module.load_state_dict(best)
    return curves


@torch.no_grad()
def _follow(averaged: nn.Module, module: nn.Module, average: float) -> None:
    for mean, weight in zip(averaged.state_dict().values(), module.state_dict().values(), strict=True):
        mean.lerp_(weight, 1 - average)


def keep_module(path: Path, module: nn.Module, note: dict[str, float]) -> None:
    """Write a module's weights, and a few numbers beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, module.state_dict(), json.dumps(note))


def read_module(path: Path, module: nn.Module) -> dict[str, float]:
    """Give a module the weights that ``keep_module`` wrote; returns the numbers."""
    module.load_state_dict(read_tensors(path, module.state_dict(), limit=MOST_BYTES))
    return parse_json(str(path), read_note(path))  # type: ignore[return-value]


def _keep(
    path: Path,
    module: nn.Module,
    averaged: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: dict[str, Tensor],
    curves: Curves,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in averaged.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
    for position, values in optimizer_state(optimizer).items():
        tensors |= {f"optimizer.{position}.{name}": v for name, v in values.items() if isinstance(v, Tensor)}
    write_tensors(path, tensors, json.dumps(asdict(curves)))


def _resume(
    path: Path, module: nn.Module, averaged: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], Curves]:
    own = module.state_dict()
    expected = {f"{part}.{name}": tensor for part in ("module", "averaged", "best") for name, tensor in own.items()}
    expected |= {name: shape for name, shape in read_shapes(path).items() if name.startswith("optimizer.")}
    tensors = read_tensors(path, expected, limit=MOST_BYTES)
    for each, part in ((module, "module"), (averaged, "averaged")):
        each.load_state_dict({name: tensors[f"{part}.{name}"] for name in own})
    state: dict[int, dict[str, Tensor | float | None]] = {}
    for name in tensors:
        if name.startswith("optimizer."):
            _, position, key = name.split(".", 2)
            state.setdefault(int(position), {})[key] = tensors[name]
    put_optimizer_state(str(path), optimizer, state)
    curves = Curves(**parse_json(str(path), read_note(path)))  # type: ignore[arg-type]
    return {name: tensors[f"best.{name}"] for name in own}, curves
