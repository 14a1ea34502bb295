"""``burtorch.autograd``: names that code written for autograd reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import burtorch.autograd as ag  # noqa: E402

READS = {
    "autograd": [
        "numpy.linalg.norm", "numpy.random.randn", "numpy.fft.fft", "scipy.stats.norm.logpdf", "scipy.special.erf",
        "misc.optimizers.adam", "extend.defvjp", "test_util.check_grads", "builtins.isinstance", "primitive", "dict",
        "isinstance", "list", "tuple", "type",
    ],
    "autograd.scipy": ["special.erf", "signal.convolve", "integrate.odeint", "stats.t.pdf"],
    "autograd.scipy.stats": ["norm.logpdf", "t.pdf", "multivariate_normal.logpdf"],
    "autograd.misc": ["flatten", "optimizers.adam", "fixed_points.fixed_point"],
}  # fmt: skip


@pytest.mark.parametrize("imported", READS)
def test_submodules_are_attributes_of_their_packages(imported):
    # In an interpreter of its own, as modules that were imported before are attributes of their packages.
    program = "\n".join([f"import burtorch.{imported} as m", *(f"m.{name}" for name in READS[imported])])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"module 'burtorch.autograd' has no attribute 'nunpy'"):
        ag.nunpy  # noqa: B018
    assert not hasattr(ag.scipy.stats, "norn")
