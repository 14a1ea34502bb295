"""NumPy's functions of a single Value: the results of ``Value.__array_function__``."""

from __future__ import annotations

from burtorch._core import Value

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

ITSELF = {"sum", "prod", "mean", "average", "median", "max", "min", "amax", "amin", "nansum", "nanmean", "squeeze"}
"""Functions that return their operand."""

SPREADS = {"var", "std", "ptp"}
"""Functions that are 0 for a single number."""


def rounded(a: Value, decimals: int = 0, out: None = None) -> Value:
    scale = 10.0**decimals
    return round(a * scale) / scale if decimals else round(a)


def function_of_values(called: Any, _types: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of ``Value.__array_function__``; other functions treat a Value as an object."""
    name = called.__name__
    if name in ("round", "around") and isinstance(operands[0], Value):
        return rounded(*operands, **keywords)
    if name in ITSELF | SPREADS and called.__module__ == "numpy" and isinstance(operands[0], Value):
        axes = [*operands[1:2], *(value for key, value in keywords.items() if key == "axis")]
        others = sorted(set(keywords) - {"axis", "keepdims"})
        if len(operands) > 2 or others or axes not in ([], [None], [0], [-1], [()]):
            wrong = f"{others[0]}=" if others else f"axis={axes[0]}" if axes else "these arguments"
            raise TypeError(f"numpy.{name} of a Value takes no {wrong}: a Value is one number")
        return operands[0] if name in ITSELF else operands[0] - operands[0]
    try:
        return called._implementation(*operands, **keywords)
    except Exception as error:
        full = f"{called.__module__}.{name}"
        # The body of a traced function is then traced with Arrays.
        raise TypeError(f"{full} does not take Values with these arguments: {error}; use an array") from error
