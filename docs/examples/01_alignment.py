"""
Align two sequences
===================

DTW matches the steps of two sequences that run at different speeds.
"""

import matplotlib.pyplot as plt
import torch

import likewise as lw
from likewise import viz

# %%
# Two waves, the second slower at first and faster later.

t = torch.linspace(0, 1, 60)
x = torch.sin(12 * t)
y = torch.sin(12 * t[:50].square() / t[49].square())

# %%
# ``align`` returns an Alignment. Its attributes are computed on first use: the value, the plan, the path.

alignment = lw.DTW().align([x], [y])
print(alignment.value)
print(alignment.path(0)[:5])

# %%
# Thin lines join matched steps.

fig, ax = plt.subplots(figsize=(7, 3.2))
viz.plot_two_way(x, y, alignment, ax=ax)

# %%
# A band of a tenth of the length keeps the path near the diagonal. An integer band counts steps.

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, band in ((left, None), (right, 0.1)):
    viz.plot_path(lw.DTW(band=band).align([x], [y]), ax=ax)
    ax.set_title(f"band={band}")

# %%
# A query inside a longer sequence: all of x is matched to a stretch of y.

query = x[15:40]
alignment = lw.DTW(subsequence=True).align([query], [y])
print("from step", int(alignment.path(0)[0, 1]), "to step", int(alignment.path(0)[-1, 1]))
fig, ax = plt.subplots(figsize=(7, 3.2))
viz.plot_two_way(query, y, alignment, ax=ax)
