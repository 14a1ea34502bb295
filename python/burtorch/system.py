"""What this build of burtorch can do on this machine."""

from burtorch._core import available_cpu_levels, cpu_level, force_cpu_level, ops

__all__ = ["DTYPES", "available_cpu_levels", "cpu_level", "force_cpu_level", "ops"]

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float128"),
    *("float32x4", "float32x8", "float32x16", "float64x2", "float64x4", "float64x8"),
)
"""The names that ``dtype=`` takes, the default of :class:`burtorch.Graph` first."""
