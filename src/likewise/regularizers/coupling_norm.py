"""The norm of coupling weights."""

import torch
from torch import Tensor, nn

from likewise import _check

NAME = "weight_hc"  # names of coupling weights inside a module


def coupling_norm(module: nn.Module) -> Tensor:
    """Return ||W||, the Euclidean norm of all the coupling weights of a module together, without their biases.

    module: a ``CoupledGRU``, or a module that contains one. The paper adds 0.01 times this norm to its loss. At zero
    its derivative is zero.

    Reference: Compagnon et al. (2020). The paper says "1% of the coupling weight norm"; we take it as not squared, and
    without biases.

    Example:
        >>> from likewise.distances.coupled_gru import CoupledGRU
        >>> network = CoupledGRU(3, hidden=(2,))
        >>> _ = nn.init.constant_(network.cells[0].weight_hc, 0.5)
        >>> coupling_norm(network)
        tensor(1., grad_fn=<LinalgVectorNormBackward0>)
    """
    weights = [weight for name, weight in module.named_parameters() if name.rpartition(".")[2] == NAME]
    if not weights:
        _check.refuse("coupling_norm", f"{type(module).__name__} has no coupling weights; give it a CoupledGRU")
    return torch.linalg.vector_norm(torch.cat([weight.flatten() for weight in weights]))
