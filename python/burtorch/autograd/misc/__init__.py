"""``flatten``, and optimisers over nests of arrays and fixed points in ``optimizers`` and ``fixed_points``."""

from burtorch.autograd.misc import fixed_points, optimizers
from burtorch.autograd.misc.flatten import flatten

__all__ = ["fixed_points", "flatten", "optimizers"]
