"""Fast launches of Triton kernels.

Triton's launcher inspects every argument in every call, which takes longer than a short kernel. Here,

- ``launcher.py`` looks up repeated launches in a table, and ``driver.py`` passes them to the CUDA driver (``tape.h``);
- ``tape.py`` repeats all launches of a call at once;
- ``answers.py`` reads a kernel's results on the host without waiting for later kernels;
- ``arguments.py`` computes sizes and arguments of launches.

None of this changes a result. ``quick(False)``, or ``LIKEWISE_QUICK_LAUNCH=0`` in the environment, leaves every launch
to Triton; so does a version of PyTorch or Triton with which the launcher was not tested (``ops/private.py``).
"""

from likewise.ops.launch.switch import is_quick, quick

__all__ = ["is_quick", "quick"]
