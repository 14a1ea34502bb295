"""Distributions of ``scipy.stats``: ``norm``."""
