"""Separate learning rates for the trained parts."""

import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn

from likewise import _check

REST = "rest"


def parameter_groups(parts: Mapping[str, nn.Module], rates: Mapping[str, object]) -> list[dict[str, Any]]:
    """Parameter groups for PyTorch's optimisers, each with its learning rate.

    parts: the trained modules by name. rates: learning rates by the name of a part, or of a module or parameter inside
        it ("encoder.backbone"). The longest matching name counts; "rest" is for all others.

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
