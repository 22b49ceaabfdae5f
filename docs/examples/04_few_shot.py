"""
Few-shot classification
=======================

A query is assigned to the class of its nearest example, given only one or five examples per class. The accuracy is
measured on random episodes.
"""

import matplotlib.pyplot as plt

import likewise as lw
from likewise import viz
from likewise.data import load_japanese_vowels

_, test = load_japanese_vowels()
test = test[::3]  # fewer utterances, to save time

# %%
# A thousand episodes of five speakers, with one and with five examples of each.

distances = {"mean frames": lw.MeanFrames(), "DTW": lw.DTW(), "OTAM": lw.OTAM(), "OPW": lw.OPW(n_iter=20)}
fig, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained", sharex=True)
for ax, shots in zip(axes, (1, 5), strict=True):
    episodes = lw.Episodes(test.labels, ways=5, shots=shots, queries=1)
    scores = {name: lw.few_shot_accuracy(d, test, episodes, count=1000) for name, d in distances.items()}
    viz.plot_episode_accuracy(scores, chance=0.2, ax=ax)
    ax.set_title(f"5 ways, {shots} shot{'s' if shots > 1 else ''}")
    print(shots, {name: f"{score.accuracy:.3f} ± {score.interval:.3f}" for name, score in scores.items()})
