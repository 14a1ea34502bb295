"""The result of `dir()` of the submodules, and their functions in pickles."""

import functools
import importlib
import pickle
import pkgutil

import pytest

import burtorch

SUBMODULES = [m.name for m in pkgutil.iter_modules(burtorch.__path__) if not m.name.startswith("_") and m.name != "cli"]


def test_the_submodules_are_found():
    assert {"compress", "data", "micrograd", "nn", "optim", "system", "text", "viz"} <= set(SUBMODULES)


@pytest.mark.parametrize("name", SUBMODULES)
def test_dir_lists_exactly_the_exports(name):
    module = importlib.import_module(f"burtorch.{name}")
    listed = {n for n in dir(module) if not n.startswith("__")}
    assert listed == set(module.__all__)
    assert dir(module) == sorted(dir(module))
    for exported in module.__all__:
        getattr(module, exported)


@pytest.mark.parametrize("name", SUBMODULES)
def test_dir_keeps_the_names_that_every_module_has(name):
    assert {"__name__", "__doc__", "__file__"} <= set(dir(importlib.import_module(f"burtorch.{name}")))


@pytest.mark.parametrize(
    "name", ["burtorch", *(f"burtorch.{name}" for name in SUBMODULES if name not in ("flower", "mpi"))]
)
def test_every_public_function_is_pickled_by_its_name(name):
    module = importlib.import_module(name)
    for exported in module.__all__:
        function = getattr(module, exported)
        if callable(function):
            assert pickle.loads(pickle.dumps(function)) is function, exported


def test_reductions_with_fixed_arguments_are_pickled():
    total = pickle.loads(pickle.dumps(functools.partial(burtorch.sum, axis=0)))
    assert total([[1.0, 2.0], [3.0, 4.0]]).tolist() == [4.0, 6.0]
