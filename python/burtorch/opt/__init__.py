"""Optimisation of finite sums: problems, sampling, proximal operators, and methods with proven rates.

A problem is a `FiniteSum`; `smoothness` computes its constants; a method takes steps on it, by default those of its
theorem. docs/optimisation.md has the table of methods. NumPy is needed.

    >>> import burtorch as bt
    >>> f = bt.opt.logistic_regression([[1.0, 2.0], [3.0, -1.0], [-1.0, 1.0]], [1, -1, 1], l2=0.1)
    >>> page = bt.opt.PAGE(f, sampling=bt.opt.Nice(1), seed=0)
    >>> records = page.run(epochs=300)
    >>> records[-1].grad_norm < 1e-8
    True
"""

from burtorch._core import FiniteSum
from burtorch.opt._base import Method, Record
from burtorch.opt._data import Rows, load_libsvm, make_least_squares, make_logistic, split
from burtorch.opt._distributed import DCGD, DIANA, EF21, MARINA, Distributed
from burtorch.opt._local import FedAvg, Scaffnew
from burtorch.opt._methods import GD, LSVRG, PAGE, SAGA, SGD, optimal_batch, page_step
from burtorch.opt._problems import (
    from_oracle,
    least_squares,
    logistic_regression,
    robust_regression,
    softmax_regression,
)
from burtorch.opt._rules import (
    L1,
    Box,
    ElasticNet,
    Full,
    Importance,
    Independent,
    L1Ball,
    L2Ball,
    L2Squared,
    LinfBall,
    Nice,
    Partition,
    Prox,
    Reshuffle,
    Sampling,
    Simplex,
    WithReplacement,
    Zero,
)
from burtorch.opt._smoothness import Smoothness, smoothness, solve

__all__ = [
    "DCGD",
    "DIANA",
    "EF21",
    "GD",
    "L1",
    "LSVRG",
    "MARINA",
    "PAGE",
    "SAGA",
    "SGD",
    "Box",
    "Distributed",
    "ElasticNet",
    "FedAvg",
    "FiniteSum",
    "Full",
    "Importance",
    "Independent",
    "L1Ball",
    "L2Ball",
    "L2Squared",
    "LinfBall",
    "Method",
    "Nice",
    "Partition",
    "Prox",
    "Record",
    "Reshuffle",
    "Rows",
    "Sampling",
    "Scaffnew",
    "Simplex",
    "Smoothness",
    "WithReplacement",
    "Zero",
    "from_oracle",
    "least_squares",
    "load_libsvm",
    "logistic_regression",
    "make_least_squares",
    "make_logistic",
    "optimal_batch",
    "page_step",
    "robust_regression",
    "smoothness",
    "softmax_regression",
    "solve",
    "split",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
