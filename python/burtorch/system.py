"""Features of this build of burtorch on this machine, and the energy that the machine uses."""

from burtorch._core import available_cpu_levels, cpu_level, force_cpu_level, ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burtorch._energy import EnergyMeter

__all__ = ["DTYPES", "available_cpu_levels", "cpu_level", "energy", "force_cpu_level", "ops"]

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float128"),
    *("float32x4", "float32x8", "float32x16", "float64x2", "float64x4", "float64x8"),
)
"""The names for ``dtype=``, the default of :class:`burtorch.Graph` first."""


def __dir__() -> "list[str]":
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def energy(source: "str | None" = None) -> "EnergyMeter":
    """A meter of the energy that this machine uses: all processes, idle power included.

    ``meter.joules`` and ``meter.seconds`` count from its creation, or over a ``with`` block. Read a RAPL meter at least
    once in ten minutes, because its counters wrap around. A battery counts in steps of several joules: measure for
    minutes.

    Args:
        source: "rapl" (Linux, Intel and AMD), "amd" (Linux, the driver amd_energy), "battery" (Linux), "powermetrics"
            (macOS, with sudo), "windows-battery" or "nvidia" (its GPUs). By default the first available one, except
            "nvidia".

    Raises:
        ValueError: an unknown source.
        OSError: no meter can be read here; the message names each location tried and how to grant permission.

    Example:
        >>> try:
        ...     with bt.system.energy() as meter:
        ...         _ = sum(range(1_000_000))
        ...     meter.joules >= 0.0
        ... except OSError as error:
        ...     "looked for rapl (" in str(error)
        True
    """
    from burtorch._energy import find

    return find(source)
