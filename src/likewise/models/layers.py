"""The outputs of layers inside an encoder, found by name."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from likewise import _check
from likewise.data.batch import Batch, as_sequences
from likewise.models.image_maps import Origin, channels_first, seen_size, tokens_to_map

CHANNELS_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.MaxPool1d, nn.AvgPool1d)  # (B, C, T), in PyTorch
NAMED = 8  # modules listed in an error


@dataclass(frozen=True)
class FeatureMap:
    """Features (B, C) at each of P positions: the pixels of a map or the steps of a sequence; one for plain vectors.

    features: (B, C, P), 0 in the padding; (B, C) for plain vectors. mask: (B, P), True where a position is real; None
    if all are. shape: (H, W) or (T,), the layout of the positions; () for plain vectors.

    Example:
        >>> found = as_map("example", "x", Batch(torch.tensor([[[1.0], [3.0]], [[5.0], [9.0]]]), [2, 1]))
        >>> found.mean(), found.max()
        (tensor([[2.],
                [5.]]), tensor([[3.],
                [5.]]))
    """

    features: Tensor
    mask: Tensor | None
    shape: tuple[int, ...]

    @property
    def values(self) -> Tensor:
        """(B, C, P); plain vectors have one position."""
        return self.features if self.shape else self.features[..., None]

    def mean(self) -> Tensor:
        """(B, C), the mean over the real positions."""
        if not self.shape:
            return self.features
        if self.mask is None:
            return self.features.mean(-1)
        return self.features.sum(-1) / self.mask.sum(-1, keepdim=True)

    def max(self) -> Tensor:
        """(B, C), the maximum over the real positions."""
        if not self.shape:
            return self.features
        values = self.features if self.mask is None else self.features.masked_fill(~self.mask[:, None], -torch.inf)
        return values.amax(-1)


@contextmanager
def captured(op: str, module: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Collect the outputs of named modules while the block runs: {name: output}. The last call of a module counts.

    Example:
        >>> network = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
        >>> with captured("example", network, ["0"]) as outputs:
        ...     _ = network(torch.ones(2, 3))
        >>> outputs["0"].shape
        torch.Size([2, 5])
    """
    with hooked(find_layers(op, module, names)) as found:
        yield found


@contextmanager
def hooked(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Any]]:
    """``captured``, for modules that have been found already."""
    found: dict[str, Any] = {}
    handles = [layer.register_forward_hook(_keep(found, name)) for name, layer in layers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _keep(found: dict[str, Any], name: str) -> Any:
    def hook(module: nn.Module, given: object, output: object) -> None:
        found[name] = output

    return hook


def find_layers(op: str, module: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """The submodules with these names. Errors about unknown names list similar ones."""
    found = {}
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{op}: expected the name of a layer, got {name!r}")
        try:
            found[name] = module.get_submodule(name or "?")  # an empty name would be the module itself
        except AttributeError:
            inside = [known for known, _ in module.named_modules() if known]
            near = difflib.get_close_matches(name, inside, NAMED, 0.5) or inside[:NAMED]
            hint = f"; similar names are {', '.join(near)}" if near else "; there are none"
            _check.refuse(op, f"{type(module).__name__} has no layer {name!r}{hint}")
    return found


def as_map(
    op: str,
    name: str,
    output: Any,
    lengths: Tensor | None = None,
    *,
    layer: nn.Module | None = None,
    clean: bool = True,
    masks: dict[Any, Tensor | None] | None = None,
    origin: Origin | None = None,
) -> FeatureMap:
    """A layer's output as a FeatureMap.

    output: (B, C, H, W), (B, T, C), (B, C), a Batch or a PackedSequence; or a tuple, whose first element is used.
        One-dimensional convolutions, poolings and norms return (B, C, T); ``layer``, the module, tells them apart.
    lengths: (B,), the lengths of the encoder's input sequences; None if every step is real. With lengths, an output
        (sum of lengths, C) is taken as the real frames only, one sequence after the other, as inside FrameMLP.
    clean: put zeros in the padding; otherwise it keeps the layer's values.
    masks: a cache of masks for maps of the same lengths; new ones are added.
    origin: for images, the layer and the image's size. With it, channels-last maps (B, H, W, C), as in Swin, and tokens
        (B, T, C), as in ViT, are recognised. The class token is left out, and the other tokens become a map.
    """
    if isinstance(output, (tuple, list)) and not isinstance(output, PackedSequence) and output:
        output = output[0]
    if isinstance(output, PackedSequence):
        output = Batch.from_packed(output)
    if isinstance(output, Batch):
        output, lengths, masks = output.values, output.lengths, None
    if not isinstance(output, Tensor) or output.ndim not in (2, 3, 4):
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        _check.refuse(op, f"{name} returned {got}; expected (B, C, H, W), (B, T, C) or (B, C)")
    if output.ndim == 4:
        output = channels_first(output, origin)
        return FeatureMap(output.flatten(2), None, tuple(output.shape[2:]))
    if output.ndim == 3 and origin is not None and not isinstance(layer, CHANNELS_FIRST):
        tokens, shape = tokens_to_map(output, origin)
        return FeatureMap(tokens.mT, None, shape)
    if output.ndim == 2:
        if lengths is None or len(output) == len(lengths) or len(output) != int(lengths.sum()):
            return FeatureMap(output, None, ())
        output = torch.nn.utils.rnn.pad_sequence(list(output.split(lengths.tolist())), batch_first=True)  # (B, T, C)
        layer = None
    values = output if isinstance(layer, CHANNELS_FIRST) else output.mT  # (B, C, T)
    steps = values.shape[2]
    masks, key = {} if masks is None else masks, (steps, values.device)
    if lengths is not None and key not in masks:
        masks[key] = _mask(op, name, values, lengths)
    mask = masks.get(key)
    if mask is None:
        return FeatureMap(values, None, (steps,))
    return FeatureMap(torch.where(mask[:, None], values, 0) if clean else values, mask, (steps,))


def _mask(op: str, name: str, values: Tensor, lengths: Tensor) -> Tensor | None:
    """(B, T), True where a step of values (B, C, T) is real; None if all are."""
    steps = values.shape[2]
    known = lengths.tolist()
    shortest, longest = min(known, default=0), max(known, default=0)
    if len(known) != len(values) or longest > steps:
        _check.refuse(op, f"{name} returned {steps} steps, which does not match lengths up to {longest}")
    if shortest == steps:
        return None
    return (torch.arange(steps) < lengths[:, None]).to(values.device, non_blocking=values.is_cuda)


def read_items(op: str, x: object) -> tuple[Any, Tensor | None]:
    """The input for an encoder, and the lengths of the sequences; None for images and vectors."""
    if isinstance(x, Tensor) and x.ndim != 3:
        return x, None
    batch = x if isinstance(x, Batch) else Batch(*as_sequences(op, "x", x))
    return batch, batch.lengths


def origin_of(network: nn.Module, name: str, x: object) -> Origin | None:
    """The Origin of a layer's output, if the network sees images; otherwise None."""
    return Origin(network, name, seen_size(network, x)) if isinstance(x, Tensor) and x.ndim == 4 else None


def width_of(op: str, backbone: nn.Module) -> int:
    """The number of an encoder's features: its ``out``, or ``head_hidden_size`` or ``num_features`` in timm."""
    for name in ("out", "head_hidden_size", "num_features"):
        width = getattr(backbone, name, None)
        if isinstance(width, int) and not isinstance(width, bool):
            return width
    _check.refuse(op, f"cannot infer the number of features of a {type(backbone).__name__}; pass channels=")
