"""Encoders, one file each, and Metric: an encoder and a distance that are trained, saved and loaded as one.

An encoder is a module of one argument. A sequence encoder takes a Batch (or what makes one: a tensor (B, T, C), a list
of sequences) and gives a Batch (B, T', D), or vectors (B, D) where it sums a sequence up; an image encoder takes
(B, C, H, W) and gives (B, D). Padding may hold anything: no output, and no gradient, depends on it.
"""
