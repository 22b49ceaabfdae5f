"""Xu, Garg, Milford & Gould (ICLR 2023): Deep declarative dynamic time warping for end-to-end learning of alignment paths."""
