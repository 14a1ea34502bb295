"""Distributions of ``scipy.stats``: ``norm``, ``t`` and ``multivariate_normal``."""
