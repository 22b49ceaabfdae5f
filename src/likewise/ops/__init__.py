"""Primitives with kernels, one folder each: ``__init__.py`` (the op), ``reference.py`` (in plain torch, for the tests),
``kernel.cpp`` (CPU) and ``gpu.py`` or ``gpu/`` (Triton).

Shared by them: ``ground.py`` (costs between frames), ``rules.py`` (which cells a path may visit), ``cpu.py`` (how the
C++ kernels are called), ``engine/`` (the recurrence of DTW and soft-DTW in Triton), ``launch/`` (how Triton kernels are
launched), ``dispatch.py`` (how an op is registered), ``private.py`` (the private parts of PyTorch and Triton in use),
and the headers ``problem.h``, ``simd.h``, ``costs.h``, ``scaled.h``, ``lanes.h`` and ``stop.h``.
"""
