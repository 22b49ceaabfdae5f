"""Modules in eval mode for the duration of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(*modules: object) -> Iterator[None]:
    """Put modules in eval mode inside the block; afterwards every submodule gets its mode back.

    Objects that are not nn.Modules, such as distances of other libraries, are skipped.
    """
    given = [module for module in modules if isinstance(module, nn.Module)]
    modes = [(part, part.training) for module in given for part in module.modules()]
    for module in given:
        module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
