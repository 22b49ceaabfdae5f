"""The options of an index: checked, and as plain data for index.json."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.distances.distance import Distance
from likewise.evaluation.candidates import Candidates
from likewise.models.config import build, describe, sketch
from likewise.models.metric import MOST_BYTES, Metric, put_tensors, tensors_of
from likewise.models.storage import read_shapes, read_tensors
from likewise.search.storage import MANIFEST, Folder


@dataclass(frozen=True)
class Options:
    """The options of an index; ``Index`` explains each."""

    length: int | None = None
    subsequence: bool = False
    normalize: str | None = None
    stretch: tuple[float, float] | None = None
    candidates: Candidates | None = None
    approximate: bool = False

    def __post_init__(self) -> None:
        op = "Index"
        if self.length is not None:
            _check.whole(op, "length", self.length)
        if self.normalize not in (None, "window"):
            _check.refuse(op, f'normalize must be None or "window", got {self.normalize!r}')
        for name in ("subsequence", "approximate"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{op}: expected {name} to be True or False, got {getattr(self, name)!r}")
        if self.stretch is not None:
            object.__setattr__(self, "stretch", _read_stretch(op, self.stretch))
            if not self.windows:
                _check.refuse(op, "stretch is for windows; give length or subsequence=True")
        if self.candidates is not None and not isinstance(self.candidates, Candidates):
            kind = type(self.candidates).__name__
            raise TypeError(f"{op}: expected candidates to be Candidates(metric, keep), got {kind}")
        if self.candidates is not None and self.windows:
            _check.refuse(op, "candidates are for whole items, not for windows")

    @property
    def windows(self) -> bool:
        """Whether windows are searched, and not whole items."""
        return self.length is not None or self.subsequence


def modules_of(distance: Distance, options: Options) -> nn.ModuleList:
    """The distance, and that of the candidates if there are some: what has settings and weights."""
    cheap = options.candidates
    if cheap is not None and not isinstance(cheap.metric, nn.Module):
        raise TypeError(f"Index.save: cannot save candidates of a {type(cheap.metric).__name__}")
    return nn.ModuleList([distance] if cheap is None else [distance, cheap.metric])  # type: ignore[list-item]


def settings_of(distance: Distance, options: Options) -> dict[str, Any]:
    """The distance and the options as plain data, for JSON."""
    modules, candidates = modules_of(distance, options), options.candidates
    return {
        "distance": describe(modules[0]),
        "length": options.length,
        "subsequence": options.subsequence,
        "normalize": options.normalize,
        "stretch": None if options.stretch is None else list(options.stretch),
        "candidates": None if candidates is None else {"metric": describe(modules[1]), "keep": candidates.keep},
        "approximate": options.approximate,
    }


def read_settings(
    folder: Folder, manifest: dict[str, Any], classes: Iterable[type[nn.Module]]
) -> tuple[Distance, Options]:
    """The distance, with its weights, and the options of a folder; only known classes are instantiated."""
    where, settings = str(folder.path / MANIFEST), manifest["settings"]
    names = {"distance", "length", "subsequence", "normalize", "stretch", "candidates", "approximate"}
    if not isinstance(settings, dict) or set(settings) != names:
        _check.refuse(where, f"expected the settings {', '.join(sorted(names))}")
    cheap = settings["candidates"]
    if cheap is not None and (not isinstance(cheap, dict) or set(cheap) != {"metric", "keep"}):
        _check.refuse(where, "expected candidates to be a metric and keep")
    kinds: list[type[nn.Module]] = [Metric, *classes]
    described = [settings["distance"]] if cheap is None else [settings["distance"], cheap["metric"]]

    path = None if manifest["weights"] is None else folder.checked(manifest["weights"], verify=True)
    count, name = (0, "the index") if path is None else (len(read_shapes(path)), path.name)
    sketches = nn.ModuleList(sketch(where, one, kinds, count, name) for one in described)  # check sizes first
    expected = tensors_of(sketches)
    weights: dict[str, Tensor] = {}
    if path is not None:
        weights = read_tensors(path, expected, limit=MOST_BYTES)
    elif expected:
        _check.refuse(where, "names no weights, which its distance needs")
    with torch.random.fork_rng(devices=[]):  # drawing the initial weights must not advance the caller's generator
        modules = nn.ModuleList(build(where, one, kinds) for one in described)
    if weights:
        put_tensors(modules, weights)
    modules.eval()
    distance = modules[0]
    if not isinstance(distance, Distance):
        _check.refuse(where, f"expected a distance, got a {type(distance).__name__}")
    rest: dict[str, Any] = {name: settings[name] for name in names - {"distance", "candidates"}}
    try:
        candidates = None if cheap is None else Candidates(modules[1], cheap["keep"])  # type: ignore[arg-type]
        return distance, Options(**rest, candidates=candidates)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _read_stretch(op: str, stretch: Any) -> tuple[float, float]:
    if not isinstance(stretch, (tuple, list)) or len(stretch) != 2:
        raise TypeError(f"{op}: expected stretch to be a pair (least, greatest), got {stretch!r}")
    least, greatest = (_check.positive(op, "stretch", end) for end in stretch)
    if least > greatest:
        _check.refuse(op, f"stretch must be (least, greatest), got {stretch!r}")
    return least, greatest
