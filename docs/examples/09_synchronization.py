"""
When two chaotic systems agree
==============================

The coupled GRU reads two sequences with two coupled copies of a network: the more similar the inputs, the sooner their
states agree. The theory is that of coupled chaotic systems; the simplest example is a pair of Lorenz systems.
"""

import matplotlib.pyplot as plt
import torch

from likewise import dynamics

# %%
# Without coupling, close states diverge: the largest Lyapunov exponent is about 0.9 per unit of time.

step = 0.02
alone = dynamics.flow(dynamics.lorenz, step)
state = torch.tensor([[1.0, 1.0, 20.0]], dtype=torch.float64)
for _ in range(500):  # onto the attractor
    state = alone(state)
print(dynamics.lyapunov(alone, state[0], steps=1000, burn_in=50) / step)

# %%
# Coupled in both directions, da/dt = f(a) + c (b - a), the pair synchronises if c is more than half of that exponent.
# If one drives the other, c must be larger than the exponent.

other = state + torch.tensor([[5.0, -5.0, 5.0]])
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, one_way in zip(axes, (False, True), strict=True):
    for coupling in (0.2, 0.7, 1.5):
        pair = dynamics.couple_flow(dynamics.lorenz, coupling, step, one_way=one_way)
        error = dynamics.synchronization_error(*dynamics.follow(pair, state, other, steps=1000))[0]
        exponent = dynamics.transverse_lyapunov(pair, state[0], steps=300, burn_in=20, count=1) / step
        ax.semilogy(step * torch.arange(1000), error, label=f"c = {coupling}, exponent {float(exponent):+.2f}")
    ax.set(xlabel="time", title="a drives b" if one_way else "coupled in both directions")
    ax.legend(fontsize="small")
axes[0].set_ylabel("distance of a and b")

# %%
# A drive can also replace one variable of the response at all times. Given x or y, the response recovers the other two;
# given z it cannot, because the system is symmetric about the z axis.

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for unit, name in enumerate("xyz"):
    pair = dynamics.drive_response(dynamics.lorenz, unit, step)
    error = dynamics.synchronization_error(*dynamics.follow(pair, state, other, steps=700))[0]
    ax.semilogy(step * torch.arange(700), error.clamp(min=1e-16), label=f"{name} is given")
ax.set(xlabel="time", ylabel="distance of drive and response")
ax.legend()
