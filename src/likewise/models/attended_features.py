"""AttendedFeatures: features of layers inside a backbone, pooled by attention and concatenated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.models.attention import Additive, Attention, attend_all
from likewise.models.layers import FeatureMap, as_map, find_layers, hooked, origin_of, read_items

PROBE_SIZE, PROBE_STEPS = 64, 16  # size of the trial image and sequence that show the layers' widths


@dataclass(frozen=True)
class Attended:
    """The result of ``AttendedFeatures.attend``.

    features: (B, out). maps: the attention weights of each layer, (B, H, W) or (B, T). They are 0 in the padding and
    sum to 1; with ``MultiDimensional``, they are the mean over features.

    Example:
        >>> from likewise.models.small_cnn import SmallCNN
        >>> encoder = AttendedFeatures(SmallCNN(3), layers=["norms.1"])
        >>> {name: tuple(weights.shape) for name, weights in encoder.attend(torch.rand(2, 3, 16, 16)).maps.items()}
        {'norms.1': (2, 8, 8)}
    """

    features: Tensor
    maps: Mapping[str, Tensor]


class AttendedFeatures(nn.Module):
    """General discriminative features: each layer's positions, weighted by attention to the last feature vector u.

    f = [p_1, ..., p_m], concatenated, where p_i (C_i) is the sum over positions of layer i's features times their
    weights, and u (W) is the backbone's output, averaged over positions if it is a map or a sequence. It is an encoder
    that returns f (B, C_1 + ... + C_m). ``Embedder(AttendedFeatures(...), 64)`` turns f into an embedding.

    backbone: any module that takes images (B, C, H, W), or sequences as a Batch; padding gets no weight.
    layers: names of modules inside it, as in ``backbone.named_modules()``. They return maps (B, C, H, W) or, as in
        Swin, (B, H, W, C), tokens of images (without the class token, which is not a position), sequences (B, T, C)
        ((B, C, T) for Conv1d and similar layers), or are an nn.GRU or nn.LSTM. If a layer is called several times, its
        last output is used.
    attention: ``Additive()``, ``Multiplicative()`` or ``MultiDimensional()``; each layer has separate weights.
    with_last: append u to the features.
    channels, width: C_1 ... C_m and W, if known. Otherwise the backbone is run on ``example``, a batch of any size, to
        find them. The default example is an image of the backbone's ``image_size``, or of 64 x 64, or a sequence of 16
        steps.

    Reference: Al-Kaabi, Monsefi & Zabihzadeh, A Framework to Enhance Generalization of Deep Metric Learning methods,
    section 3.1. As in its equation 14, features are summed without projecting them to W.

    Example:
        >>> from likewise.models import SmallCNN
        >>> features = AttendedFeatures(SmallCNN(3, out=32), layers=["norms.1", "norms.2"])
        >>> features(torch.randn(4, 3, 20, 20)).shape
        torch.Size([4, 192])
        >>> features.attend(torch.randn(4, 3, 20, 20)).maps["norms.1"].shape
        torch.Size([4, 10, 10])
    """

    def __init__(
        self,
        backbone: nn.Module,
        layers: Sequence[str],
        attention: Attention | None = None,
        *,
        with_last: bool = False,
        channels: Sequence[int] | None = None,
        width: int | None = None,
        example: object = None,
    ) -> None:
        super().__init__()
        op = "AttendedFeatures"
        if not isinstance(backbone, nn.Module):
            raise TypeError(f"{op}: expected backbone to be an nn.Module, got {type(backbone).__name__}")
        if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
            _check.refuse(op, f"expected layers to be a list of names, not empty, got {layers!r}")
        attention = Additive() if attention is None else attention
        if not isinstance(attention, Attention):
            raise TypeError(f"{op}: expected attention to be an Attention, such as Additive(), got {attention!r}")
        if attention.channels is not None:
            _check.refuse(op, "pass the attention without sizes: a copy is made for each layer")
        find_layers(op, backbone, layers)
        self.backbone = backbone
        self.layers = tuple(layers)
        self.attention = attention
        self.with_last = with_last
        if channels is None or width is None:
            channels, width = self._probe(example)
        if len(channels) != len(layers):
            _check.refuse(op, f"expected channels of {len(layers)} layers, got {len(channels)}")
        self.channels = tuple(_check.whole(op, f"channels[{i}]", count) for i, count in enumerate(channels))
        self.width = _check.whole(op, "width", width)
        self.out = sum(self.channels) + (self.width if with_last else 0)
        self.attentions = nn.ModuleList(attention.sized(count, self.width) for count in self.channels)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        names = ("backbone", "layers", "attention", "with_last", "channels", "width")
        return {name: getattr(self, name) for name in names}

    def forward(self, x: object) -> Tensor:
        """The features (B, out) of images (B, C, H, W) or of a Batch."""
        return self._attend(x)[0]

    def attend(self, x: object) -> Attended:
        """The features and the attention maps."""
        features, maps, weights = self._attend(x)
        means = {name: weight.detach().mean(1) for name, weight in weights.items()}  # (B, P)
        return Attended(features, {name: mean.reshape(-1, *maps[name].shape) for name, mean in means.items()})

    def _attend(self, x: object) -> tuple[Tensor, dict[str, FeatureMap], dict[str, Tensor]]:
        """The features (B, out), the layers' maps, and the weights of their positions."""
        maps, u = self._maps(x)
        if len(maps) < len(set(self.layers)):  # some backbones cannot run on an empty batch
            return u.new_empty(0, self.out), {}, {}
        features, weights = attend_all(list(self.attentions), [maps[name] for name in self.layers], u)  # type: ignore[arg-type]
        features = torch.cat([features, u], 1) if self.with_last else features
        return features, maps, dict(zip(self.layers, weights, strict=True))

    def _maps(self, x: object) -> tuple[dict[str, FeatureMap], Tensor]:
        """The maps of the layers, and u (B, width)."""
        op = "AttendedFeatures"
        items, lengths = read_items(op, x)
        layers = find_layers(op, self.backbone, self.layers)
        with hooked(layers) as outputs:
            last = self.backbone(items)
        origin = origin_of(self.backbone, "", items)
        u = as_map(op, "the backbone", last, lengths, layer=self.backbone, origin=origin).mean()
        found: dict[str, FeatureMap] = {}
        masks: dict[Any, Tensor | None] = {}
        for name, layer in layers.items():
            if name not in outputs and len(u):
                _check.refuse(op, f"the layer {name!r} was not used when the backbone ran")
            if name in outputs:
                # Attention puts zeros in the padding itself.
                what, output = f"the layer {name!r}", outputs[name]
                found[name] = as_map(op, what, output, lengths, layer=layer, clean=False, masks=masks,
                                     origin=origin_of(self.backbone, name, items))  # fmt: skip
        return found, u

    def _probe(self, example: Any) -> tuple[list[int], int]:
        """The number of features of each layer, and of the backbone's output."""
        with torch.no_grad(), evaluating(self.backbone):
            maps, u = self._maps(_example(self.backbone) if example is None else example)
        return [maps[name].values.shape[1] for name in self.layers], u.shape[1]


def _example(backbone: nn.Module) -> Batch | Tensor:
    """A trial item for the backbone, guessed from its first layer or its attribute ``channels``."""
    weight = next(backbone.parameters(), None)
    for part in backbone.modules():
        if isinstance(part, nn.Conv2d):
            size = getattr(backbone, "image_size", None) or (PROBE_SIZE, PROBE_SIZE)
            return torch.zeros(1, part.in_channels, *size).to(weight)
    channels = getattr(backbone, "channels", None)
    if isinstance(channels, int) and weight is not None:
        return Batch(torch.zeros(1, PROBE_STEPS, channels).to(weight))
    _check.refuse(
        "AttendedFeatures",
        f"cannot infer the input of a {type(backbone).__name__}; pass example=, a batch, or channels= and width=",
    )
