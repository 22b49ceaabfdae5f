"""Recurrent networks as dynamical systems: Lyapunov exponents and synchronisation of coupled systems.

All functions take a step (a function of states (N, S) that treats rows independently) or a recurrent module of PyTorch;
``flow`` makes a step of a system in continuous time.

Example:
    >>> import torch
    >>> gru = torch.nn.GRU(9, 20)
    >>> lyapunov(gru, steps=5, burn_in=2).shape
    torch.Size([20])
"""

from likewise.dynamics.flows import couple_flow, drive_response, flow, lorenz
from likewise.dynamics.lyapunov import lyapunov, transverse_lyapunov
from likewise.dynamics.recurrence import Recurrence, recurrence
from likewise.dynamics.synchronization import couple, couple_gru, follow, synchronization_error

__all__ = [
    "Recurrence",
    "couple",
    "couple_flow",
    "couple_gru",
    "drive_response",
    "flow",
    "follow",
    "lorenz",
    "lyapunov",
    "recurrence",
    "synchronization_error",
    "transverse_lyapunov",
]
