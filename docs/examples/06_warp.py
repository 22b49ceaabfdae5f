"""
A smooth warp in continuous time
================================

GDTW finds a warp that is a function of continuous time. Its slope is penalised, so that it does not pause and jump like
a DTW path, and samples may be irregular.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import likewise as lw
from likewise import viz

# %%
# The same signal twice, the second time with warped, irregular sampling times.

rng = np.random.default_rng(0)
time = torch.linspace(0, 1, 80)
clock = torch.as_tensor(np.sort(rng.uniform(0, 1, 60)), dtype=torch.float32)
clock[0], clock[-1] = 0.0, 1.0


def signal(t: torch.Tensor) -> torch.Tensor:
    """A bump and a wave."""
    return torch.exp(-200 * (t - 0.3) ** 2) + 0.4 * torch.sin(9 * t)


x = signal(time)[None, :, None]
y = signal(clock + 0.12 * torch.sin(np.pi * clock))[None, :, None]

# %%
# ``warp`` returns x's times and the times of y that they are matched with.

warps = {reg: lw.GDTW(reg=reg).warp(x, y, times_x=time[None], times_y=clock[None]) for reg in (0.001, 0.1)}
fig, ax = plt.subplots(figsize=(5, 4.4), layout="constrained")
for reg, warp in warps.items():
    ax.plot(warp.times[0], warp.values[0], label=f"reg={reg}")
ax.plot([0, 1], [0, 1], color="0.7", linestyle="--")
ax.set(xlabel="time of x", ylabel="time of y")
ax.legend()

# %%
# The warp is differentiable: its derivative with respect to the signals comes from the optimality conditions.

x.requires_grad_()
warp = lw.GDTW(reg=0.1).warp(x, y, times_x=time[None], times_y=clock[None])
warp.values[0, 40].backward()
fig, (above, below) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
above.plot(time, x.detach()[0, :, 0])
above.set_ylabel("x")
below.plot(time, x.grad[0, :, 0], color="tab:red")
below.set(xlabel="time of x", ylabel="d warp / d x")
below.axvline(float(time[40]), color="0.7", linestyle="--")

# %%
# The match of x and y, step by step.

fig, ax = plt.subplots(figsize=(7, 3.2))
viz.plot_two_way(x.detach(), y, lw.GDTW(reg=0.01).align(x.detach(), y), ax=ax)
