"""Differentiable functions of SciPy, which is not needed: ``integrate``, ``signal``, ``special`` and ``stats``."""
