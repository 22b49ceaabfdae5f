"""Convert modules to plain data and back: the class name and the constructor's arguments.

A class may define ``config()``, which returns the arguments by name. Without it, each argument is read from the
attribute of the same name. An argument that is a parameter or buffer of the module is described by its shape; its
values are saved with the weights. When loading, names are looked up among likewise's classes and those that the caller
passes; a file cannot cause an import.
"""

import inspect
import math
import threading
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from likewise import _check
from likewise.distances.distance import Distance
from likewise.models.attended_features import AttendedFeatures
from likewise.models.attention import Additive, MultiDimensional, Multiplicative
from likewise.models.backbones import EfficientNetLite, TimmBackbone, TorchvisionBackbone
from likewise.models.embedder import Embedder
from likewise.models.frame_mlp import MOST_LAYERS, FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.random_crop import RandomCrop
from likewise.models.self_attention import SelfAttention
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN
from likewise.ops.ground import NAMED

ENCODERS = (
    Additive,
    AttendedFeatures,
    EfficientNetLite,
    Embedder,
    FrameMLP,
    GRUEncoder,
    Jitter,
    MultiDimensional,
    Multiplicative,
    SelfAttention,
    RandomCrop,
    SmallCNN,
    TCN,
    TimmBackbone,
    TorchvisionBackbone,
)
MOST_ITEMS = 1024  # in a list or a mapping
MOST_LEVELS = 16  # nested lists, mappings and modules
MOST_NUMBERS = 1 << 24  # elements of a tensor among the settings
LARGEST = 1 << 53  # larger integers are not exact in every JSON reader
# The largest settings of likewise's classes that a file may have; in a list, of each number.
WIDTHS = ("channels", "hidden", "kernel", "kernels", "out", "projected", "size", "width", "widths")
MOST = {"layers": MOST_LAYERS, "depth": MOST_LAYERS, "refinements": 64, "n_iter": 1 << 24, "max_iter": 1 << 24}
MOST |= dict.fromkeys((*WIDTHS, "knots", "grid"), 1 << 20)
STACKED = ("hidden", "kernels", "layers", "widths")  # settings with one number or name for each layer


def describe(module: nn.Module) -> dict[str, object]:
    """Return a module as {"class": its name, "settings": its constructor's arguments}, ready for JSON.

    Example:
        >>> from likewise import Euclidean
        >>> describe(Euclidean(squared=True))
        {'class': 'Euclidean', 'settings': {'squared': True}}
    """
    name, held = type(module).__name__, list(module.state_dict(keep_vars=True).values())
    settings = {key: _plain(f"{name}.{key}", v, held) for key, v in arguments(module).items()}
    _check_sizes(f"{name}: a file cannot hold it", type(module), settings)
    return {"class": name, "settings": settings}


def arguments(module: nn.Module) -> dict[str, object]:
    """A module's constructor arguments by name."""
    config = getattr(module, "config", None)
    if callable(config):
        given = config()
        if not isinstance(given, dict):
            raise TypeError(f"{type(module).__name__}: config() must return a dict, got {type(given).__name__}")
        return given
    found: dict[str, object] = {}
    for name, parameter in _parameters(type(module)).items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or not hasattr(module, name):
            raise TypeError(
                f"{type(module).__name__}: cannot find its argument {name!r}; keep it in an attribute of that name, or "
                "write a method config() that returns the constructor's arguments"
            )
        found[name] = getattr(module, name)
    return found


def _parameters(kind: type[nn.Module]) -> Mapping[str, inspect.Parameter]:
    return {} if kind.__init__ is nn.Module.__init__ else inspect.signature(kind).parameters


def build(where: str, description: object, classes: Iterable[type[nn.Module]] = ()) -> nn.Module:
    """Build a module from its description. ``where`` begins the errors; ``classes`` are the caller's classes.

    Example:
        >>> build("config.json", {"class": "DTW", "settings": {"band": 3}})
        DTW(ground='sqeuclidean', band=3)
    """
    return _module(where, description, known(where, classes), 0)


def sketch(where: str, description: object, classes: Iterable[type[nn.Module]], tensors: int, file: str) -> nn.Module:
    """Build a module without memory, to find the shapes of its tensors.

    tensors: the number of tensors in ``file``, which has the weights. A description of many more raises an error while
        the module is built, so building takes no longer than such a file warrants.

    Example:
        >>> sketch("config.json", {"class": "TCN", "settings": {"channels": 2, "layers": 5}}, (), 3, "weights")
        Traceback (most recent call last):
        ValueError: config.json: asks for 5 layers, but weights holds 3 tensors
    """
    asked = layers_asked_for(description)
    if asked > tensors:
        _check.refuse(where, f"asks for {asked} layers, but {file} holds {tensors} tensors")
    most, own, found = 2 * tensors + 64, threading.get_ident(), 0  # some are replaced while a network is built

    def count(module: nn.Module, name: str, value: object) -> None:
        nonlocal found
        found += threading.get_ident() == own
        if found > most:
            _check.refuse(where, f"asks for more than {most} parameters, but {file} holds {tensors} tensors")

    with torch.device("meta"):
        counting = register_module_parameter_registration_hook(count)
        try:
            return build(where, description, classes)
        finally:
            counting.remove()


def layers_asked_for(description: object) -> int:
    """A lower bound on the layers of a description: a file of its weights has at least as many tensors.

    Example:
        >>> layers_asked_for({"class": "TCN", "settings": {"channels": 3, "layers": 5}})
        5
    """
    if isinstance(description, list):
        return sum(map(layers_asked_for, description))
    if not isinstance(description, dict):
        return 0
    own = [value for key in ("layers", "depth") if type(value := description.get(key)) is int]
    lists = [len(value) for key in STACKED if isinstance(value := description.get(key), list) and key != "layers"]
    return sum([*own, *lists, *map(layers_asked_for, description.values())])


def known(where: str, classes: Iterable[type[nn.Module]] = ()) -> dict[str, type[nn.Module]]:
    """Classes by name: likewise's encoders and their parts, its distances, and the caller's classes."""
    found: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (*ENCODERS, *_distances())}
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise TypeError(f"{where}: expected classes to be subclasses of nn.Module, got {kind!r}")
        if found.get(kind.__name__, kind) is not kind:
            _check.refuse(where, f"two classes are called {kind.__name__}; rename yours")
        found[kind.__name__] = kind
    return found


def _distances() -> list[type[Distance]]:
    """The distances of likewise.distances that have been imported."""
    found, left = [], list(Distance.__subclasses__())
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.startswith("likewise.distances."):
            found.append(kind)
    return found


def _plain(where: str, value: object, held: list[Tensor]) -> object:
    """Convert a value to JSON: modules to their descriptions, infinities to {"number": "inf"}, tensors to shapes.

    held: the tensors of the module that the setting belongs to; their values are saved with the weights.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, nn.Module):
        return describe(value)
    if isinstance(value, (list, tuple)):
        return [_plain(f"{where}[{i}]", item, held) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value) and not _tagged(value):
        return {key: _plain(f"{where}[{key!r}]", item, held) for key, item in value.items()}
    if isinstance(value, Tensor):
        if not value.is_floating_point() or not any(value is tensor for tensor in held):
            hint = "register it as a parameter or a buffer, in floating point"
            raise TypeError(f"{where}: a file cannot hold a tensor that is not part of the module's state; {hint}")
        return {"tensor": list(value.shape), "learned": isinstance(value, nn.Parameter)}
    if callable(value):
        if value in NAMED.values():
            return next(name for name, ground in NAMED.items() if ground is value)
        name = getattr(value, "__name__", type(value).__name__)
        raise TypeError(
            f"{where}: a file cannot hold the function {name!r}; use a named one, or subclass the distance and pass "
            "your class to Metric.load(folder, classes=[...])"
        )
    raise TypeError(f"{where}: a file cannot hold a {type(value).__name__}; use numbers, text, lists or modules")


def _tagged(value: Mapping[str, object]) -> bool:
    return set(value) in ({"class", "settings"}, {"number"}, {"tensor", "learned"})


def _value(where: str, value: object, classes: dict[str, type[nn.Module]], level: int) -> object:
    if level > MOST_LEVELS:
        _check.refuse(where, f"is nested more than {MOST_LEVELS} levels deep")
    if isinstance(value, (list, dict)) and len(value) > MOST_ITEMS:
        _check.refuse(where, f"has {len(value)} items; at most {MOST_ITEMS} are supported")
    if isinstance(value, list):
        return [_value(f"{where}[{i}]", item, classes, level + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        if set(value) == {"class", "settings"}:
            return _module(where, value, classes, level + 1)
        if set(value) == {"number"}:
            if value["number"] not in ("inf", "-inf", "nan"):
                _check.refuse(where, f"expected inf, -inf or nan, got {value['number']!r}")
            return float(value["number"])
        if set(value) == {"tensor", "learned"}:
            return _tensor(where, value["tensor"], value["learned"])
        return {key: _value(f"{where}[{key!r}]", item, classes, level + 1) for key, item in value.items()}
    if isinstance(value, int) and abs(value) > LARGEST:
        _check.refuse(where, "is a whole number of more than 53 bits")
    return value


def _tensor(where: str, shape: object, learned: object) -> Tensor:
    """A tensor or parameter of ones, to be overwritten."""
    sizes = shape if isinstance(shape, list) and len(shape) <= MOST_LEVELS else [-1]
    whole = all(type(size) is int and size >= 0 for size in sizes)
    if not whole or math.prod(size or 1 for size in sizes) > MOST_NUMBERS:
        _check.refuse(where, f"expected the shape of a tensor, got {_short(shape)}")
    ones = torch.ones(sizes)
    return nn.Parameter(ones) if learned is True else ones


def _module(where: str, description: object, classes: dict[str, type[nn.Module]], level: int) -> nn.Module:
    if not isinstance(description, dict) or set(description) != {"class", "settings"}:
        _check.refuse(where, f"expected a mapping of class and settings, got {_short(description)}")
    name, settings = description["class"], description["settings"]
    if not isinstance(name, str) or name not in classes:
        hint = "; pass your own with classes=[...]"
        _check.refuse(where, f"unknown class {_short(name)}; known classes are {', '.join(sorted(classes))}{hint}")
    if not isinstance(settings, dict):
        _check.refuse(where, f"expected the settings of {name} to be a mapping, got {_short(settings)}")
    kind = classes[name]
    parameters = _parameters(kind)
    for key, value in settings.items():
        default = parameters[key].default if key in parameters else None
        if isinstance(default, bool) and not isinstance(value, bool):
            _check.refuse(where, f"expected {key} of {name} to be true or false, got {_short(value)}")
    _check_sizes(where, kind, settings)
    given = {key: _value(f"{where}: {name}.{key}", value, classes, level) for key, value in settings.items()}
    try:
        return kind(**given)
    except Exception as error:  # a constructor may raise anything for invalid settings
        raise ValueError(f"{where}: cannot make {name} from its settings: {error}") from error


def _check_sizes(where: str, kind: type[nn.Module], settings: Mapping[str, object]) -> None:
    """Raise an error if the settings of a likewise class are too large, before it is built."""
    if not kind.__module__.startswith("likewise."):
        return
    for key, value in settings.items():
        if key in STACKED and isinstance(value, list) and len(value) > MOST_LAYERS:
            _check.refuse(where, f"{len(value)} {key} of {kind.__name__}, more than {MOST_LAYERS}")
        for number in value if isinstance(value, list) else [value]:
            if key in MOST and isinstance(number, (int, float)) and number > MOST[key]:
                _check.refuse(where, f"{key} of {kind.__name__} is {number}, more than {MOST[key]}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
