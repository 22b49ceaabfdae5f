"""Primitives with kernels, one folder each: ``__init__.py`` (the op), ``reference.py`` (the truth, in plain torch),
``kernel.cpp`` (CPU) and ``gpu.py`` (Triton).

Shared by them: ``ground.py`` (costs between frames), ``rules.py`` (which cells a path may visit), ``cpu.py`` (how the
C++ kernels are called), ``gpu/`` (the recurrence in Triton), ``dispatch.py`` (how an op is registered), and the
headers ``problem.h``, ``simd.h`` and ``wavefront.h``.
"""
