"""Results of every op at the edges of its domain, as data for the tests and ``burtorch selftest``.

Each row: the name of an op, the operands, the value, and the gradient of each operand. Results are exact, or within the
bounds of the op. A zero value has the sign shown; a zero gradient may have either sign.
"""

from __future__ import annotations

from math import inf, nan

EDGES: tuple[tuple[str, tuple[float, ...], float, tuple[float, ...]], ...] = (
    ("relu", (0.0,), 0.0, (0.0,)),
    ("relu", (-0.0,), 0.0, (0.0,)),
    ("relu", (3.0,), 3.0, (1.0,)),
    ("relu", (nan,), nan, (nan,)),
    ("abs", (0.0,), 0.0, (0.0,)),
    ("abs", (-0.0,), 0.0, (0.0,)),
    ("max", (2.0, 2.0), 2.0, (0.5, 0.5)),
    ("min", (2.0, 2.0), 2.0, (0.5, 0.5)),
    ("max", (nan, 1.0), nan, (nan, nan)),
    ("sqrt", (0.0,), 0.0, (inf,)),
    ("sqrt", (-0.0,), -0.0, (-inf,)),
    ("sqrt", (-1.0,), nan, (nan,)),
    ("inv_sqrt", (0.0,), inf, (-inf,)),
    ("inv_sqrt", (-0.0,), -inf, (-inf,)),
    ("inv", (0.0,), inf, (-inf,)),
    ("inv", (-0.0,), -inf, (-inf,)),
    ("div", (1.0, 0.0), inf, (inf, -inf)),
    ("log", (0.0,), -inf, (inf,)),
    ("log", (-1.0,), nan, (nan,)),
    ("neg_log", (0.0,), inf, (-inf,)),
    ("log1p", (-1.0,), -inf, (inf,)),
    ("log1p", (-2.0,), nan, (nan,)),
    ("exp", (1000.0,), inf, (inf,)),
    ("exp", (-1000.0,), 0.0, (0.0,)),
    ("tanh", (20.0,), 1.0, (1.6993417021166355e-17,)),
    ("tanh", (-0.0,), -0.0, (1.0,)),
    ("sigmoid", (-1000.0,), 0.0, (0.0,)),
    ("sigmoid", (1000.0,), 1.0, (0.0,)),
    ("sigmoid", (40.0,), 1.0, (4.248354255291589e-18,)),
    ("softplus", (1000.0,), 1000.0, (1.0,)),
    ("softplus", (-1000.0,), 0.0, (0.0,)),
    ("sin", (inf,), nan, (nan,)),
    ("sin", (-0.0,), -0.0, (1.0,)),
    ("div", (0.0, 0.0), nan, (inf, nan)),
    ("div", (1e-30, 1e-30), 1.0, (1e30, -1e30)),
    ("mul", (0.0, inf), nan, (inf, 0.0)),
    ("pow", (0.0, 0.0), 1.0, (0.0, 0.0)),
    ("pow", (0.0, 1.0), 0.0, (1.0, 0.0)),
    ("pow", (0.0, 2.0), 0.0, (0.0, 0.0)),
    ("pow", (0.0, -1.0), inf, (-inf, -inf)),
    ("pow", (-2.0, 2.0), 4.0, (-4.0, nan)),
    ("pow", (-2.0, 0.5), nan, (nan, nan)),
    ("atan2", (0.0, -1.0), 3.141592653589793, (-1.0, 0.0)),
    ("atan2", (inf, inf), 0.7853981633974483, (0.0, 0.0)),
    ("reduce_mul", (0.0, 2.0, 3.0), 0.0, (6.0, 0.0, 0.0)),
    ("reduce_mul", (1e-200, 1e-200, 3.0), 0.0, (3e-200, 3e-200, 0.0)),
    ("variance", (7.0,), nan, (nan,)),
    ("variance", (0.1, 0.1, 0.1), 0.0, (0.0, 0.0, 0.0)),
    ("variance_biased", (5.0, 5.0), 0.0, (0.0, 0.0)),
    ("reduce_negative_mean", (3.0, 5.0), -4.0, (-0.5, -0.5)),
)
