"""Distributions of ``scipy.stats``: ``norm`` and ``multivariate_normal``."""
