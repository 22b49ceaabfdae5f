"""Grouped settings of ``fit``: the optimiser, and the files."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from likewise import _check

Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]

REST = "rest"  # the key for all other parts


@dataclass(frozen=True)
class Optimization:
    """Settings of the optimiser: ``fit(..., optimizer=Optimization(torch.optim.SGD, clip=1.0))``.

    make: a function of (parameters, lr=, weight_decay=) that returns an optimiser, such as the classes of torch.optim.
    weight_decay: passed to the optimiser. clip: the largest norm of the gradient; None does not clip.
    schedule: a function of the optimiser that returns a scheduler of torch.optim.lr_scheduler, whose step() is called
        after every epoch; with per_step, after every step.

    Example:
        >>> halve = Optimization(schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        >>> halve.weight_decay
        0.0001
    """

    make: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    weight_decay: float = 1e-4
    clip: float | None = None
    schedule: Schedule | None = None
    per_step: bool = False

    def __post_init__(self) -> None:
        _check.not_negative("Optimization", "weight_decay", self.weight_decay)
        if self.clip is not None:
            _check.positive("Optimization", "clip", self.clip)
        for name in ("make", "schedule"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"Optimization: expected {name} to be a function, got {type(value).__name__}")

    @classmethod
    def of(cls, given: "Optimization | OptimizerFactory", lr: float) -> tuple["Optimization", OptimizerFactory]:
        """Return an Optimization, and a function of the parameters that makes its optimiser."""
        if isinstance(given, Optimization):
            return given, lambda parameters: given.make(parameters, lr=lr, weight_decay=given.weight_decay)
        if not callable(given):
            kind = type(given).__name__
            raise TypeError(f"fit: expected optimizer to be an Optimization or a function of parameters, got {kind}")
        return cls(weight_decay=0.0), given


@dataclass(frozen=True)
class Checkpoints:
    """Files that ``fit`` writes: the best metric, log.csv, and a checkpoint after every epoch.

    folder: ``Metric.load(folder)`` reads the best metric. If TensorBoard is installed, its files go to a subfolder.
    every: the number of steps between additional checkpoints within an epoch.
    resume: continue from the folder's checkpoint if there is one. On the CPU the final weights equal those of an
        uninterrupted run bit for bit.

    Example:
        >>> Checkpoints("run", every=100).folder
        PosixPath('run')
    """

    folder: Path
    every: int | None = None
    resume: bool = False

    def __init__(self, folder: str | Path, every: int | None = None, resume: bool = False) -> None:
        if not isinstance(folder, (str, Path)):
            raise TypeError(f"Checkpoints: expected folder to be a path, got {type(folder).__name__}")
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "every", None if every is None else _check.whole("Checkpoints", "every", every))
        object.__setattr__(self, "resume", bool(resume))

    @classmethod
    def of(cls, given: "Checkpoints | str | Path | None") -> "Checkpoints | None":
        """Make Checkpoints from the argument of ``fit(checkpoints=...)``."""
        return given if given is None or isinstance(given, Checkpoints) else cls(given)


def falling(share: float, steps: int) -> Schedule:
    """A schedule by steps: constant, then falling linearly to zero over the last share of the steps.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        >>> schedule, rates = falling(0.5, 4)(optimizer), []
        >>> for _ in range(4):
        ...     rates.append(optimizer.param_groups[0]["lr"])
        ...     optimizer.step()
        ...     schedule.step()
        >>> rates
        [1.0, 1.0, 1.0, 0.5]
    """

    def factor(step: int) -> float:
        return min(1.0, max(0.0, (steps - step) / max(1.0, share * steps)))

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def parameter_groups(parts: Mapping[str, nn.Module], rates: Mapping[str, object]) -> list[dict[str, Any]]:
    """Parameter groups for PyTorch's optimisers, each with its learning rate.

    parts: the trained modules by name. rates: learning rates by the name of a part, or of a module or parameter inside
        it ("encoder.backbone"). The longest matching name is used; "rest" is for all others.

    Example:
        >>> parts = {"encoder": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), "loss": nn.Linear(2, 1)}
        >>> groups = parameter_groups(parts, {"encoder": 1e-4, "encoder.1": 1e-3, "rest": 1e-2})
        >>> [(group["lr"], len(group["params"])) for group in groups]
        [(0.0001, 2), (0.001, 2), (0.01, 2)]
    """
    found: dict[str, list[nn.Parameter]] = {name: [] for name in rates}
    values = {name: _check.positive("fit", f"lr[{name!r}]", rate) for name, rate in rates.items()}  # type: ignore[arg-type]
    seen: set[int] = set()
    for part, module in parts.items():
        for name, parameter in module.named_parameters(part):
            if not parameter.requires_grad or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            fits = [key for key in rates if name == key or name.startswith(f"{key}.")]
            if not fits and REST not in rates:
                _check.refuse("fit", f'lr has no rate for {name}; name it or a part of it, or give lr["{REST}"]')
            found[max(fits, key=len, default=REST)].append(parameter)
    for name, parameters in found.items():
        if not parameters and name != REST:
            known = [inner for part, module in parts.items() for inner in _names(part, module)]
            near = difflib.get_close_matches(name, known, 5, 0.4) or list(parts)
            _check.refuse(
                "fit", f"lr names {name!r}, which has no trained parameters; similar names are {', '.join(near)}"
            )
    return [{"params": parameters, "lr": values[name]} for name, parameters in found.items() if parameters]


def _names(part: str, module: nn.Module) -> list[str]:
    return [f"{part}.{name}".rstrip(".") for name, _ in module.named_modules()]
