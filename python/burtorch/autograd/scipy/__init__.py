"""Differentiable functions of SciPy: ``special`` and ``stats.norm``. SciPy itself is not needed."""
