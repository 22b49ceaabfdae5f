"""Turn frames of video clips into features, one .npy (T, C) a clip, for ``likewise.recipes.few_shot --features``.

    python scripts/extract_frame_features.py FRAMES FEATURES --backbone torchvision:resnet50
    python scripts/extract_frame_features.py FRAMES FEATURES --backbone timm:vit_small_patch16_224.augreg_in21k
    python scripts/extract_frame_features.py FRAMES FEATURES --backbone my_package.my_module:make_backbone

FRAMES/Class/clip/ holds the images of a clip, in the order of their names (ffmpeg -i clip.avi clip/%08d.jpg makes
them); FEATURES/Class/clip.npy is written. Clips that are there already are left out, so that a run that was stopped
goes on. As in the few-shot papers, 8 frames are taken at equal steps, resized so that the short side is 256, and cut to
224 x 224 in the middle; --frames 0 takes all.

A backbone is a function without arguments that gives a callable of images (B, 3, H, W), whose result is (B, C), or
(B, C, h, w), which is then averaged. timm's and torchvision's are made with their pretrained weights, without the
classifier. Needs pillow.
"""

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from PIL import Image
from torch import Tensor, nn

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which most weights expect


def main(
    frames_folder: Annotated[Path, typer.Argument(metavar="FRAMES", help="Class/clip/image files.")],
    features_folder: Annotated[Path, typer.Argument(metavar="FEATURES", help="Where Class/clip.npy go.")],
    backbone: Annotated[str, typer.Option(help="torchvision:NAME, timm:NAME, or module:function.")],
    frames: Annotated[int, typer.Option(help="Frames of a clip, at equal steps; 0 for all.")] = 8,
    resize: Annotated[int, typer.Option(help="Length of the short side.")] = 256,
    crop: Annotated[int, typer.Option(help="Side of the middle that is cut out.")] = 224,
    normalize: Annotated[bool, typer.Option(help="Subtract ImageNet's mean, divide by its deviation.")] = True,
    batch_size: Annotated[int, typer.Option(help="Images at once.")] = 64,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; by default cuda if there is one.")] = None,
) -> None:
    """Write the features of every clip."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    network = make_backbone(backbone)
    if isinstance(network, nn.Module):
        network = network.eval().to(device)
    clips = list(clips_of(frames_folder))
    if not clips:
        raise SystemExit(f"error: {frames_folder}: no folders Class/clip with images")
    done = 0
    for clip, images in clips:
        path = features_folder / clip.relative_to(frames_folder).with_name(f"{clip.name}.npy")
        if path.exists():
            continue
        chosen = images if not frames else [images[i] for i in np.linspace(0, len(images) - 1, frames).astype(int)]
        pixels = torch.stack([read_image(image, resize, crop, normalize) for image in chosen])
        write(path, features_of(network, pixels, device, batch_size))
        done += 1
    typer.echo(f"{done} of {len(clips)} clips written to {features_folder}; the others were there")


def make_backbone(name: str) -> Callable[[Tensor], Tensor]:
    """The callable that a name stands for."""
    source, _, rest = name.partition(":")
    if not rest:
        raise SystemExit(f"error: expected torchvision:NAME, timm:NAME or module:function, got {name!r}")
    if source == "timm":
        return importlib.import_module("timm").create_model(rest, pretrained=True, num_classes=0)
    if source == "torchvision":
        model = importlib.import_module("torchvision.models").get_model(rest, weights="DEFAULT")
        for classifier in ("fc", "classifier", "head", "heads"):
            if hasattr(model, classifier):
                setattr(model, classifier, nn.Identity())
                return model
        raise SystemExit(f"error: {rest} has no classifier that could be left out; give it as module:function")
    return getattr(importlib.import_module(source), rest)()


def clips_of(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Folders Class/clip, and their images in the order of their names."""
    for clip in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        images = sorted(path for path in clip.iterdir() if path.suffix.lower() in ENDINGS)
        if images:
            yield clip, images


def read_image(path: Path, resize: int, crop: int, normalize: bool) -> Tensor:
    """The middle of an image, (3, crop, crop), in 0..1 or normalised."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    share = max(resize, crop) / min(image.size)
    image = image.resize(tuple(max(crop, round(side * share)) for side in image.size), Image.Resampling.BILINEAR)
    left, top = (image.width - crop) // 2, (image.height - crop) // 2
    pixels = torch.from_numpy(np.array(image.crop((left, top, left + crop, top + crop)))).permute(2, 0, 1) / 255
    if not normalize:
        return pixels
    return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]


@torch.no_grad()
def features_of(network: Callable[[Tensor], Tensor], pixels: Tensor, device: str, batch_size: int) -> np.ndarray:
    """Features (T, C) of images (T, 3, H, W)."""
    parts = []
    for some in pixels.split(batch_size):
        found = network(some.to(device))
        if not isinstance(found, Tensor) or found.ndim not in (2, 4):
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise SystemExit(f"error: expected the backbone to give (B, C) or (B, C, h, w), got {got}")
        parts.append((found.mean((2, 3)) if found.ndim == 4 else found).float().cpu())
    return torch.cat(parts).numpy()


def write(path: Path, values: np.ndarray) -> None:
    """Write under another name first, so that a run that is stopped leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.save(file, values)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    typer.run(main)
