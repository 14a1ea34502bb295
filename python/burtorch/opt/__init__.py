"""Optimisation of finite sums: problems, sampling, proximal operators, and methods with proven rates.

A problem is a `FiniteSum`; `smoothness` computes its constants; a method takes steps on it, by default those of its
theorem. docs/optimisation.md has the table of methods. NumPy is required.

    >>> import burtorch as bt
    >>> f = bt.opt.logistic_regression([[1.0, 2.0], [3.0, -1.0], [-1.0, 1.0]], [1, -1, 1], l2=0.1)
    >>> page = bt.opt.PAGE(f, sampling=bt.opt.Nice(1), seed=0)
    >>> records = page.run(epochs=300)
    >>> records[-1].grad_norm < 1e-8
    True
"""

from burtorch._core import FiniteSum
from burtorch.opt._accelerated import AGD, LKatyusha
from burtorch.opt._asynchronous import FedBuff, MindFlayer, Rennala, Ringmaster
from burtorch.opt._base import Method
from burtorch.opt._clients import Client
from burtorch.opt._clock import Delays, Network
from burtorch.opt._data import Rows, load_libsvm, make_least_squares, make_logistic, split
from burtorch.opt._distributed import DCGD, DIANA, EF21, MARINA, Distributed
from burtorch.opt._feedback import DASHA, EF14, EF21BC, EF21PP, EF21SGDM
from burtorch.opt._local import FedAvg, Scaffnew, Scaffold
from burtorch.opt._marina import PPMARINA, VRMARINA
from burtorch.opt._methods import GD, LSVRG, PAGE, SAGA, SGD, optimal_batch, page_step
from burtorch.opt._problems import (
    from_oracle,
    least_squares,
    logistic_regression,
    robust_regression,
    softmax_regression,
)
from burtorch.opt._record import Record
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
    "AGD",
    "DASHA",
    "DCGD",
    "DIANA",
    "EF14",
    "EF21",
    "EF21BC",
    "EF21PP",
    "EF21SGDM",
    "GD",
    "L1",
    "LSVRG",
    "MARINA",
    "PAGE",
    "PPMARINA",
    "SAGA",
    "SGD",
    "VRMARINA",
    "Box",
    "Client",
    "Delays",
    "Distributed",
    "ElasticNet",
    "FedAvg",
    "FedBuff",
    "FiniteSum",
    "Full",
    "Importance",
    "Independent",
    "L1Ball",
    "L2Ball",
    "L2Squared",
    "LKatyusha",
    "LinfBall",
    "Method",
    "MindFlayer",
    "Network",
    "Nice",
    "Partition",
    "Prox",
    "Record",
    "Rennala",
    "Reshuffle",
    "Ringmaster",
    "Rows",
    "Sampling",
    "Scaffnew",
    "Scaffold",
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
