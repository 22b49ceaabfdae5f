"""Grad-CAM: the parts of an image or a sequence that raise a score."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.models.layers import as_map, find_layers, origin_of, read_items


def grad_cam(encoder: nn.Module, x: object, layer: str, score: Callable[[Any], Tensor]) -> Tensor:
    """Maps (B, h, w) over images, or (B, t) over sequences: relu(sum_c a_c F_c), where F is the output of a layer.

    a_c is the mean over positions of the derivative of an item's score with respect to F_c, so a map is high where the
    features raise the score. A map has the layer's resolution and is zero in the padding; ``viz.plot_attention`` draws
    it over the item.

    x: a batch as the encoder takes it. layer: the name of a module inside the encoder, such as "backbone" of an
        Embedder, that returns a map or a sequence.
    score: a function from the encoder's output to one number for each item, (B,), such as the similarity of its
    embedding to that of another item, or a class score.
    Reference: Selvaraju et al. (2017), arXiv:1610.02391.

    Example:
        >>> from likewise.models import Embedder, SmallCNN
        >>> encoder, images = Embedder(SmallCNN(3, out=32), 16), torch.rand(4, 3, 24, 24)
        >>> reference = encoder(images[:1]).detach()
        >>> grad_cam(encoder, images, "backbone.convolutions.0", lambda found: found @ reference[0]).shape
        torch.Size([4, 24, 24])
    """
    items, lengths = read_items("grad_cam", x)
    module = find_layers("grad_cam", encoder, [layer])[layer]
    kept: list[tuple[Any, Tensor]] = []

    def cut(_module: nn.Module, _given: object, output: Any) -> Any:
        # Nothing before the layer needs a derivative; its weights may be frozen.
        if not isinstance(output, (Tensor, Batch)):
            _check.refuse("grad_cam", f"{layer} returned {type(output).__name__}; expected a Tensor or a Batch")
        leaf = (output.values if isinstance(output, Batch) else output).detach().requires_grad_()
        kept.append((output, leaf))
        return Batch(leaf, output.lengths) if isinstance(output, Batch) else leaf

    handle = module.register_forward_hook(cut)
    try:
        with torch.enable_grad(), evaluating(encoder):
            scores = score(encoder(items))
    finally:
        handle.remove()
    if not kept:
        _check.refuse("grad_cam", f"{type(encoder).__name__} did not call its layer {layer}")
    output, leaf = kept[-1]
    if not isinstance(scores, Tensor) or scores.shape != (len(leaf),):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        _check.refuse("grad_cam", f"expected score to return one number for each of {len(leaf)} items, got {got}")
    if not scores.requires_grad:
        _check.refuse("grad_cam", f"the score does not depend on the output of {layer}")
    (gradient,) = torch.autograd.grad(scores, leaf, torch.ones_like(scores))
    origin = origin_of(encoder, layer, items)
    values, slopes = (
        as_map("grad_cam", layer, Batch(each, output.lengths) if isinstance(output, Batch) else each, lengths,
               layer=module, origin=origin)
        for each in (leaf.detach(), gradient)
    )  # fmt: skip
    if not values.shape:
        _check.refuse("grad_cam", f"{layer} returns vectors; choose a layer that returns a map or a sequence")
    maps = (slopes.mean()[..., None] * values.features).sum(1).relu()  # (B, P)
    return maps.unflatten(1, values.shape)
