"""Distances as modules: paired ``()``, all pairs ``.matrix`` and ``.align``. One file each."""
