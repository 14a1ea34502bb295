"""What this build of burtorch can do on this machine."""

from burtorch._core import available_cpu_levels, cpu_level

__all__ = ["DTYPES", "available_cpu_levels", "cpu_level"]

DTYPES = ("float64", "float32")
"""The names that ``dtype=`` takes, the default of :class:`burtorch.Graph` first."""
