"""Checkpoint: the full state of a run, for exact resume, in one safetensors file.

Weights, the best weights, and the optimiser's moments are tensors; the rest is a JSON note in the file's header. No
generator state is saved: every step is seeded by the run's seed and the step's position.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.models.storage import parse_json, read_note, read_shapes, read_tensors, write_tensors
from likewise.training.history import History, Score

CHECKPOINT = "checkpoint.safetensors"
MOST_BYTES = 64 << 30


@dataclass
class Progress:
    """The progress of a run: epochs done, steps of the current epoch, total steps, and the history so far."""

    epoch: int = 0
    step: int = 0
    total: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    waited: int = 0  # validations since the best one
    judged: int = -1  # total steps at the last validation
    ended: bool = False  # all steps of the current epoch are done, but not its validation and logging
    history: History = field(default_factory=History)


@dataclass
class Checkpoint:
    """The saved state of a run.

    average: the moving average of the weights, or None.
    optimizer: the state of each parameter, by its position, as in PyTorch's optimisers.
    sampler, precision: plain data; that of the sampler may also have tensors by name.
    settings: must be the same when the run is resumed.
    functions: the state of steps and terms other than parameters, by name.
    """

    progress: Progress
    model: dict[str, Tensor]
    best: dict[str, Tensor] | None
    average: dict[str, Tensor] | None
    optimizer: dict[int, dict[str, Tensor | float | None]]
    sampler: object = None
    precision: object = None
    settings: dict[str, int] = field(default_factory=dict)
    functions: dict[str, Tensor] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in (self.best or {}).items()}
        tensors |= {f"average.{name}": tensor for name, tensor in (self.average or {}).items()}
        tensors |= {f"functions.{name}": tensor for name, tensor in self.functions.items()}
        numbers: dict[str, float | None] = {}
        for position, state in self.optimizer.items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{position}.{name}"] = value
                elif value is None or isinstance(value, (bool, int, float)):
                    numbers[f"{position}.{name}"] = value
                else:
                    raise TypeError(
                        f"fit: a checkpoint cannot hold {name!r} of the optimiser, a {type(value).__name__}"
                    )
        sampler = self.sampler
        if isinstance(sampler, dict):
            tensors |= {f"sampler.{name}": value for name, value in sampler.items() if isinstance(value, Tensor)}
            sampler = {name: value for name, value in sampler.items() if not isinstance(value, Tensor)}
        note = {
            "likewise": 1,
            "progress": asdict(self.progress),
            "best": self.best is not None,
            "average": self.average is not None,
            "numbers": numbers,
            "sampler": sampler,
            "precision": self.precision,
            "settings": self.settings,
        }
        try:
            text = json.dumps(note)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"fit: state_dict of the sampler must consist of plain numbers, text and lists: {error}"
            ) from None
        write_tensors(path, tensors, text)

    @classmethod
    def read(cls, path: Path, model: Mapping[str, Tensor], settings: dict[str, int]) -> "Checkpoint":
        """Read a checkpoint; raise an error unless it has these weights and settings."""
        where = str(path)
        note = parse_json(where, read_note(path) or "null")
        keys = {"likewise", "progress", "best", "average", "numbers", "sampler", "precision", "settings"}
        if not isinstance(note, dict) or note.get("likewise") != 1 or set(note) != keys:
            _check.refuse(where, "not a checkpoint of likewise")
        if not isinstance(note["settings"], dict):
            _check.refuse(where, "its settings are damaged")
        for name, value in settings.items():
            if note["settings"].get(name) != value:
                was = note["settings"].get(name)
                _check.refuse(where, f"was made with {name}={was!r}, not {value!r}; use that, or another folder")
        precision = note["precision"]
        if not isinstance(precision, dict) or not all(isinstance(value, (int, float)) for value in precision.values()):
            _check.refuse(where, "its precision is damaged")
        progress = _progress(where, note["progress"])
        optimizer = _numbers(where, note["numbers"])
        expected = {f"model.{name}": tensor for name, tensor in model.items()}
        kept = [part for part in ("best", "average") if note[part] is True]
        expected |= {f"{part}.{name}": tensor for part in kept for name, tensor in model.items()}
        free = ("optimizer.", "sampler.", "functions.")  # checked where they are used
        expected |= {name: part for name, part in read_shapes(path).items() if name.startswith(free)}
        tensors = read_tensors(path, expected, limit=MOST_BYTES)
        for name in expected:
            if name.startswith("optimizer."):
                position, key = _position(where, name.removeprefix("optimizer."))
                optimizer.setdefault(position, {})[key] = tensors[name]
        weights = {part: {name: tensors[f"{part}.{name}"] for name in model} for part in ("model", *kept)}
        sampler = note["sampler"]
        if isinstance(sampler, dict):
            for name in expected:
                if name.startswith("sampler."):
                    sampler[name.removeprefix("sampler.")] = tensors[name]
        best, average = weights.get("best"), weights.get("average")
        functions = {
            name.removeprefix("functions."): tensors[name] for name in expected if name.startswith("functions.")
        }
        return cls(progress, weights["model"], best, average, optimizer, sampler, precision, dict(settings), functions)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor | float | None]]:
    """State of each parameter by its position."""
    return optimizer.state_dict()["state"]


def put_optimizer_state(
    where: str, optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Tensor | float | None]]
) -> None:
    """Load a state from ``optimizer_state`` into an optimiser; its settings are unchanged."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for position, values in state.items():
        if not 0 <= position < len(parameters):
            _check.refuse(where, f"has a state for parameter {position}, but there are {len(parameters)} parameters")
        for name, value in values.items():
            shape = parameters[position].shape
            if isinstance(value, Tensor) and value.shape not in (shape, torch.Size(), torch.Size([1])):
                _check.refuse(
                    where, f"{name} of parameter {position} has shape {tuple(value.shape)}, not {tuple(shape)}"
                )
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


def functions_state(functions: Iterable[Any]) -> dict[str, Tensor]:
    """The state of steps and terms other than parameters, such as a CrossBatchMemory, by their positions."""
    found = {}
    for place, function in enumerate(functions):
        if hasattr(function, "load_state"):
            found |= {f"{place}.{name}": tensor for name, tensor in function.state().items()}
    return found


def put_functions_state(functions: Iterable[Any], state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the result of ``functions_state``; it is empty when a run begins."""
    for place, function in enumerate(functions):
        if hasattr(function, "load_state"):
            own = {name.partition(".")[2]: tensor for name, tensor in state.items() if name.startswith(f"{place}.")}
            function.load_state(own, device)


def _progress(where: str, plain: object) -> Progress:
    given = _fields(where, Progress, plain)
    history = _fields(where, History, given.pop("history"))
    scores = history.pop("scores")
    if not isinstance(scores, list):
        _check.refuse(where, "its scores are damaged")
    for name in ("losses", "seconds"):
        _typed(where, name, history[name], list)
        for value in history[name]:
            _typed(where, name, value, (int, float))
    if len(history["losses"]) != len(history["seconds"]):
        _check.refuse(where, "its history is damaged")
    _typed(where, "stopped", history["stopped"], bool)
    _typed(where, "best_step", history["best_step"], (int, type(None)))
    _typed(where, "ended", given["ended"], bool)
    for name in ("epoch", "step", "total", "waited", "judged"):
        _typed(where, name, given[name], int)
        if given[name] < (-1 if name == "judged" else 0):
            _check.refuse(where, f"{name} is {given[name]}")
    for name in ("loss_sum", "seconds"):
        _typed(where, name, given[name], (int, float))
    return Progress(**given, history=History(**history, scores=[_score(where, score) for score in scores]))


def _score(where: str, plain: object) -> Score:
    given = _fields(where, Score, plain)
    _typed(where, "epoch", given["epoch"], (int, float))
    _typed(where, "step", given["step"], int)
    _typed(where, "numbers", given["numbers"], dict)
    for name, value in given["numbers"].items():
        _typed(where, name, value, (int, float))
    return Score(**given)


def _fields(where: str, kind: type, plain: object) -> dict:
    names = {item.name for item in fields(kind)}
    if not isinstance(plain, dict) or set(plain) != names:
        _check.refuse(where, f"its {kind.__name__.lower()} is damaged")
    return dict(plain)


def _typed(where: str, name: str, value: object, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        _check.refuse(where, f"its {name} is damaged: {value!r}")


def _numbers(where: str, plain: object) -> dict[int, dict[str, Tensor | float | None]]:
    found: dict[int, dict[str, Tensor | float | None]] = {}
    if not isinstance(plain, dict):
        _check.refuse(where, "its optimiser is damaged")
    for name, value in plain.items():
        position, key = _position(where, name)
        if value is not None and not isinstance(value, (bool, int, float)):
            _check.refuse(where, f"its optimiser is damaged: {name} is {value!r}")
        found.setdefault(position, {})[key] = value
    return found


def _position(where: str, name: str) -> tuple[int, str]:
    position, _, key = name.partition(".")
    if not (position.isascii() and position.isdecimal() and len(position) < 9 and key):
        _check.refuse(where, f"its optimiser is damaged: {name!r}")
    return int(position), key
