"""
A soft alignment is a gradient
==============================

Soft-DTW replaces the minimum over paths by a soft minimum. The derivative of its value with respect to the cost of each
cell is the share of paths through that cell: the plan.
"""

import matplotlib.pyplot as plt
import torch

import likewise as lw
from likewise import viz
from likewise.data import load_japanese_vowels

train, test = load_japanese_vowels()
x, y = train.items[0][None], train.items[3][None]  # the same speaker, twice

# %%
# The larger gamma is, the more paths contribute.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, gamma in zip(axes, (0.01, 0.3, 3.0), strict=True):
    viz.plot_density(lw.SoftDTW(gamma=gamma).align(x, y), ax=ax)
    ax.set_title(f"gamma={gamma}")

# %%
# Autograd gives the same numbers, if the cost is a leaf.

cost = torch.cdist(x, y).square().requires_grad_()
value = lw.SoftDTW(gamma=0.3, ground=lambda x, y: cost)(x, y)
(gradient,) = torch.autograd.grad(value.sum(), cost)
print(float((gradient - lw.SoftDTW(gamma=0.3).align(x, y).plan).abs().max()))

# %%
# With gradients, sequences can be averaged: find the smallest sum of divergences to five utterances of a speaker.

speaker = train.of_classes(["1"]).items[:5]
mean = torch.zeros(1, 18, 12, requires_grad=True)
divergence = lw.SoftDTWDivergence(gamma=0.3)
optimizer = torch.optim.Adam([mean], lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    divergence.matrix(mean, speaker).sum().backward()
    optimizer.step()

fig, ax = plt.subplots(figsize=(7, 3.2))
for utterance in speaker.to_list():
    ax.plot(utterance[:, 0], color="0.7")
ax.plot(mean.detach()[0, :, 0], color="tab:blue", linewidth=2.5, label="average")
ax.set(xlabel="frame", ylabel="first coefficient")
ax.legend()
