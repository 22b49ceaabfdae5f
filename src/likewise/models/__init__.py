"""Encoders, one file each, and Metric: an encoder and a distance that are trained, saved and loaded together.

An encoder is a module of one argument. A sequence encoder takes a Batch (or anything that converts to one: a tensor (B,
T, C), a list of sequences) and returns a Batch (B, T', D), or vectors (B, D). An image encoder takes (B, C, H, W) and
returns (B, D). Neither outputs nor gradients depend on the padding.

Example:
    >>> from likewise.distances import DTW
    >>> Metric(FrameMLP(3), DTW()).matrix([[[0.0, 1.0, 2.0]], [[1.0, 1.0, 1.0]]]).shape
    torch.Size([2, 2])
"""

from likewise.models.attended_features import Attended, AttendedFeatures
from likewise.models.attention import Additive, Attention, MultiDimensional, Multiplicative
from likewise.models.backbones import (
    EfficientNetLite,
    TimmBackbone,
    TorchvisionBackbone,
    timm_backbone,
    torchvision_backbone,
)
from likewise.models.class_head import ClassHead
from likewise.models.embedder import Embedder
from likewise.models.frame_mlp import FrameMLP
from likewise.models.frozen_batch_norm import freeze_batch_norm
from likewise.models.grad_cam import grad_cam
from likewise.models.gradient_reversal import GradientReversal, reverse_gradient
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.layers import FeatureMap
from likewise.models.metric import Metric
from likewise.models.pixels import Pixels
from likewise.models.random_crop import RandomCrop
from likewise.models.self_attention import SelfAttention
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN

__all__ = [
    "TCN",
    "Additive",
    "Attended",
    "AttendedFeatures",
    "Attention",
    "ClassHead",
    "EfficientNetLite",
    "Embedder",
    "FeatureMap",
    "FrameMLP",
    "GRUEncoder",
    "GradientReversal",
    "Jitter",
    "Metric",
    "MultiDimensional",
    "Multiplicative",
    "Pixels",
    "RandomCrop",
    "SelfAttention",
    "SmallCNN",
    "TimmBackbone",
    "TorchvisionBackbone",
    "freeze_batch_norm",
    "grad_cam",
    "reverse_gradient",
    "timm_backbone",
    "torchvision_backbone",
]
