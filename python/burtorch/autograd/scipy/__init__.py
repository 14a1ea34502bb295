"""Functions of SciPy that derivatives go through: ``special`` and ``stats.norm``. SciPy itself is not needed."""
