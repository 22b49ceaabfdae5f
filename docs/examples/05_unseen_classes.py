"""
Images of unseen classes
========================

A metric should find images of classes that were not in the training set. Here the classes are synthetic: each has a
number of spots of one size, at random places and in random colours.
"""

import matplotlib.pyplot as plt
import torch

import likewise as lw
from likewise import viz

# %%
# 16 classes of 20 images, 24 pixels wide.

generator = torch.Generator().manual_seed(0)


def draw(spots: int, side: int) -> torch.Tensor:
    """An image (3, 24, 24) with some spots of one colour on noise."""
    image = torch.randint(0, 120, (3, 24, 24), generator=generator)
    color = torch.randint(100, 256, (3, 1, 1), generator=generator)
    for row, column in torch.randint(0, 24 - side, (spots, 2), generator=generator).tolist():
        image[:, row : row + side, column : column + side] = color
    return image.to(torch.uint8)


kinds = [(spots, side) for side in (2, 3, 5, 7) for spots in (1, 3, 6, 10)]
images = torch.stack([draw(*kind) for kind in kinds for _ in range(20)])
names = [f"{spots} of {side} px" for spots, side in kinds]
data = lw.ImageSet(images, [name for name in names for _ in range(20)])
print(data)

# %%
# Attention pools several layers of the network, and their features are concatenated. The best epoch is chosen on
# held-out classes.

features = lw.AttendedFeatures(lw.models.SmallCNN(3, out=32, widths=(16, 32)), layers=["norms.0", "norms.1"])
metric = lw.Metric(lw.Embedder(features, 16), lw.Cosine())
seen, unseen = data.of_classes(names[::2]), data.of_classes(names[1::2])
before = lw.evaluate(metric, unseen)
lw.fit(metric, seen, lw.losses.MultiSimilarity(), val=lw.HeldOutClasses(0.25), epochs=8, lr=3e-3, verbose=False)
after = lw.evaluate(metric, unseen)
print(f"Recall@1 of unseen classes: {before.recall[1]:.3f} before, {after.recall[1]:.3f} after")

# %%
# The images nearest to a query, and the attention of the network.

D = metric.matrix(unseen)
D.fill_diagonal_(float("inf"))
nearest = D[0].argsort()[:4].tolist()
fig, axes = plt.subplots(2, 5, figsize=(9, 3.8), layout="constrained")
maps = metric.attend(unseen.items[[0, *nearest]]).maps["norms.1"]
for k, item in enumerate([0, *nearest]):
    axes[0, k].imshow(unseen.items[item].permute(1, 2, 0).numpy())
    axes[0, k].set_title("query" if k == 0 else unseen.labels[item], fontsize=8)
    viz.plot_attention(maps[k], unseen.items[item], ax=axes[1, k])
for ax in axes.flat:
    ax.set_axis_off()
