"""Fast launches of Triton kernels.

Triton's launcher inspects every argument at every call, which takes longer than a short kernel. Here,

- ``launcher.py`` finds a launch like one before in a table, and ``driver.py`` hands it to the CUDA driver (``tape.h``);
- ``tape.py`` repeats all launches of a call like one before together;
- ``answers.py`` reads the checks of a kernel without waiting for the kernels after it;
- ``arguments.py`` has the arithmetic of sizes that launches need.

None of it changes a result. ``quick(False)``, or ``LIKEWISE_QUICK_LAUNCH=0`` in the environment, leaves every launch to
Triton; so does a version of PyTorch or Triton that the launcher was not tested with (``ops/private.py``).
"""

from likewise.ops.launch.switch import is_quick, quick

__all__ = ["is_quick", "quick"]
