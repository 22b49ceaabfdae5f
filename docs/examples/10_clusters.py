"""
Averages and clusters
=====================

The mean of two shifted peaks has two small peaks. An average along alignments has one, like its members. With such
averages, k-means works for sequences under any distance.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import likewise as lw
from likewise import viz
from likewise.clusters import interpolate
from likewise.sklearn import Hierarchical, KMeans

# %%
# Three shapes at different speeds.

generator = torch.Generator().manual_seed(0)
kinds = np.arange(60) % 3
speed = torch.rand(60, 1, generator=generator) + 0.5
x = torch.sin((5 + 4 * torch.as_tensor(kinds)[:, None]) * torch.linspace(0, 1, 80) ** speed)
x = (x + 0.1 * torch.randn(60, 80, generator=generator))[..., None]

# %%
# The averages of all three shapes in one call. The result also holds the cost and whether it converged.

dtw = lw.DTW(band=0.3)
found = lw.barycenter(dtw, x, groups=kinds, init="medoid")
print(found, found.costs)

# %%
# The members behind their average; below, the times at which they match it.

members = x[kinds == 1]
average = found.sequences[1]
alignment = dtw.align(average.expand(len(members), -1, -1), members)
viz.plot_barycenter(average, members, alignment)

# %%
# From one sequence to another, along their alignment.

viz.plot_interpolation(interpolate(dtw, x[0], x[2], np.linspace(0, 1, 6)))

# %%
# k-means without labels, and how well each item fits its cluster.

model = KMeans(dtw, n_clusters=3, n_init=3).fit(x)
viz.plot_clusters(x, model.labels_, model.cluster_centers_)
viz.plot_silhouette(dtw.matrix(x), model.labels_)

# %%
# Hierarchical clustering needs no averages: SciPy computes it from the distance matrix.

tree = Hierarchical(dtw, n_clusters=3).fit(x)
viz.plot_dendrogram(tree.linkage_, threshold=float(tree.linkage_[-3, 2]))

# %%
# The best band: ``tune`` compares settings by leave-one-out accuracy, and computes only some of the distances.

tuned = lw.tune(lw.DTW(), (x, kinds), {"band": [k / 50 for k in range(26)]})
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot([row["band"] for row in tuned.rows()], tuned.accuracies)
ax.set(xlabel="band", ylabel="leave-one-out accuracy")
print(tuned)
