"""Differentiable functions of SciPy: ``signal.convolve``, ``special`` and ``stats``. SciPy itself is not needed."""
