"""
Search a long series
====================

Find a pattern in a long series, at any position and scale, and explain each match.
"""

import torch

import likewise as lw
from likewise import viz

# %%
# A wave with varying speed and height. The query is one period of it.

generator = torch.Generator().manual_seed(0)
speed = 0.12 + 0.03 * torch.sin(torch.arange(4000) / 300)
phase = speed.cumsum(0)
height = 1 + 0.6 * torch.sin(torch.arange(4000) / 500)
wave = height * (torch.sin(phase) + 0.6 * torch.sin(2 * phase))
series = (wave + 0.08 * torch.randn(4000, generator=generator))[None, :, None]  # (1, 4000, 1)
query = series[:, 700:752]

# %%
# All windows of 52 steps, each scaled to mean 0 and deviation 1. Lower bounds rule out most of them without computing
# DTW.

index = lw.Index(lw.DTW(band=0.15), series, length=52, normalize="window")
hits = index.search(query, k=6)
print(hits.starts)
print(hits.stats)
ax = viz.plot_match(hits)

# %%
# The query above its matches, each drawn over the steps of the query with which it is aligned.

ax = viz.plot_hits(hits, k=4)

# %%
# Explain the last match: which segments are earlier or later, longer or shorter, and the cost of each step.

why = hits.explain(0, 5)
print(why)
ax = why.plot()

# %%
# Without a query: the pattern that repeats most closely, and the window that is least similar to all others.

profile = lw.Index(lw.DTW(band=0.05), series[:, :1500], length=52, normalize="window").self_join()
print("motif", profile.motifs()[0])
print("discord", profile.discords()[0])
