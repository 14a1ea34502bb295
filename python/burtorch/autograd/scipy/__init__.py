"""Differentiable functions of SciPy, which is not needed: ``integrate``, ``signal``, ``special`` and ``stats``."""

from burtorch.autograd.scipy import integrate, signal, special, stats

__all__ = ["integrate", "signal", "special", "stats"]
