"""How Triton kernels are started quickly.

Triton's own launcher inspects every argument at every call, which takes longer than a short kernel runs. Here,

- ``launcher.py`` finds a launch like one before in a table, and ``driver.py`` hands it to the CUDA driver (``tape.h``);
- ``tape.py`` repeats all launches of a call like one before together;
- ``answers.py`` reads what a kernel has found out about its inputs without waiting for the kernels behind it;
- ``arguments.py`` has the arithmetic of sizes that launches need.

None of it changes a result. ``quick(False)``, or ``LIKEWISE_QUICK_LAUNCH=0`` in the environment, leaves every launch to
Triton; so does a version of PyTorch or Triton that the launcher has not been tried with (``ops/private.py``).
"""

from likewise.ops.launch.switch import is_quick, quick

__all__ = ["is_quick", "quick"]
