"""
Learn a metric
==============

An encoder of frames and a distance are trained together, so that utterances of one speaker are close to each other.
"""

import matplotlib.pyplot as plt

import likewise as lw
from likewise import viz
from likewise.data import load_japanese_vowels

train, test = load_japanese_vowels()

# %%
# Before training: DTW on the raw frames.

before = lw.evaluate(lw.DTW(), test, train)
print(f"DTW: accuracy {before.accuracy:.3f}, MAP {before.map:.3f}")

# %%
# A Metric combines an encoder and a distance, and is a distance itself. Settings that are not passed to ``fit`` are
# those of ``metric.training_defaults``.

metric = lw.Metric(lw.TCN(12, steps=False), lw.Euclidean())
history = lw.fit(metric, train, verbose=False)
after = lw.evaluate(metric, test, train)
print(f"learned: accuracy {after.accuracy:.3f}, MAP {after.map:.3f}")

# %%
# The embedded test utterances, coloured by speaker.

fig, ax = plt.subplots(figsize=(6, 5))
viz.plot_embeddings(metric.embed(test), test.labels, ax=ax)

# %%
# The speakers that the nearest neighbour confuses.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for ax, title, scores in ((left, "DTW", before), (right, "learned", after)):
    viz.plot_confusion(scores.confusion, train.classes, ax=ax)
    ax.set_title(title)
