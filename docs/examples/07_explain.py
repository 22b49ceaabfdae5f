"""
Explain a distance
==================

Why are two utterances close to each other, and two others far apart? The plan shows which frames are matched, and the
cost along the plan shows where the distance comes from.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import likewise as lw
from likewise import viz
from likewise.data import load_japanese_vowels

train, test = load_japanese_vowels()
dtw = lw.DTW()
D = dtw.matrix(test, train)

# %%
# A test utterance whose nearest neighbour is from another speaker, that neighbour, and the nearest utterance of its own
# speaker.

nearest = D.argmin(1)
wrong = (torch.as_tensor(train.codes)[nearest] != test.codes).nonzero()[0, 0].item()
own = torch.where(train.codes == test.codes[wrong], D[wrong], torch.inf).argmin().item()
pairs = {"taken for": int(nearest[wrong]), "should be": own}
for text, item in pairs.items():
    print(f"{text} speaker {train.labels[item]}: distance {D[wrong, item]:.3f}")

# %%
# The contribution of each matched pair of frames to the distance, by frame of the query.

x = test.items[wrong][None]
fig, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", height_ratios=(2, 1))
for k, (text, item) in enumerate(pairs.items()):
    y = train.items[item][None]
    alignment = dtw.align(x, y)
    cost = torch.cdist(x, y).square()
    viz.plot_density(alignment, cost=cost, ax=axes[0, k])
    axes[0, k].set_title(f"{text} speaker {train.labels[item]}")
    share = (alignment.plan * cost)[0].sum(1)  # the sum over y is the part of each frame of x
    axes[1, k].bar(range(len(share)), share.numpy())
    axes[1, k].set(xlabel="frame of the query", ylabel="part of the distance")
axes[1, 1].sharey(axes[1, 0])

# %%
# The contribution of each coefficient: the squared differences along the path, channel by channel.

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for k, (text, item) in enumerate(pairs.items()):
    i, j = dtw.align(x, train.items[item][None]).path(0).T
    parts = (x[0, i] - train.items[item][j]).square().sum(0)
    ax.bar(np.arange(12) + 0.4 * k, parts.numpy(), width=0.4, label=f"{text} speaker {train.labels[item]}")
ax.set(xlabel="coefficient", ylabel="part of the distance")
ax.legend()
