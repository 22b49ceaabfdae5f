"""Xu, Garg, Milford & Gould (ICLR 2023): Deep declarative dynamic time warping."""
