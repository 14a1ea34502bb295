"""No traced function is silently wrong: cases of what a body may read, by class, see ``stale_cases``."""

from __future__ import annotations

import collections
import os
import random
import runpy
import sys
import types
import warnings
from pathlib import Path

import pytest

import burtorch as bt

stale_cases = types.SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("stale_cases.py"))))

X = 1.5
# The minimum number per class that is right at the next call; all others raise or warn when traced or audited.
RIGHT = {
    "names": 1.0,
    "containers": 0.97,
    "functions": 0.97,
    "objects": 0.97,
    "modules": 0.95,
    "arrays": 0.97,
    "outside": 0.0,
}


@pytest.fixture(autouse=True)
def _restored():
    np = pytest.importorskip("numpy")
    before, directory, path = dict(os.environ), os.getcwd(), list(sys.path)
    limit, errors = sys.getrecursionlimit(), np.geterr()
    yield
    os.environ.clear()
    os.environ.update(before)
    os.chdir(directory)
    sys.path[:] = path
    sys.setrecursionlimit(limit)
    np.seterr(**errors)
    for name in [name for name in sys.modules if name.startswith(("stale_case_", "bt_stale"))]:
        del sys.modules[name]
    import builtins
    import decimal
    import gc

    decimal.getcontext().prec = 28
    gc.set_threshold(700, 10, 10)
    # Files and connections left open by cases warn when they are collected: here, not in another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    vars(builtins).pop("bt_stale_k", None)


def number(result) -> float:
    return float(result.data if isinstance(result, bt.Value) else result)


def by_hand(setup: str, body: str, change: str, *, nested: bool) -> float:
    """The result of the body without tracing, at the third of three calls, before which the change is made."""
    function, changed = stale_cases.make(setup, body, change, nested=nested)
    for _ in range(2):
        function(bt.Value(X))
    changed()
    return number(function(bt.Value(X)))


def outcome(setup: str, body: str, change: str, *, nested: bool) -> str:
    """The outcome of a case: right, refused (a TraceError), warned, audited, or silently wrong."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        function, changed = stale_cases.make(setup, body, change, nested=nested)
        f = bt.function(function)
        try:
            f(X)
            warned = any(issubclass(w.category, bt.StaleRiskWarning) for w in said)
            f(X)
            changed()
            now = f(X)
        except bt.TraceError:
            return "refused"
        right = by_hand(setup, body, change, nested=nested)
        if now == right:
            return "right"
        if warned:
            return "warned"
        del said[:]
        for _ in range(14):
            f(X)
        audited = any(issubclass(w.category, bt.StaleFunctionWarning) for w in said)
        return "audited" if audited else f"silent: {now} at the next call, should be {right}"


@pytest.mark.parametrize("nested", [False, True], ids=["globals", "cells"])
@pytest.mark.parametrize("kind", list(stale_cases.CLASSES))
def test_no_case_is_silent(kind, nested):
    random.seed(0)
    ends, silent = collections.Counter(), []
    for name, setup, body, change in stale_cases.rows(kind):
        try:
            end = outcome(setup, body, change, nested=nested)
        except Exception as error:
            raise AssertionError(f"case {name!r} of {kind}: {type(error).__name__}: {error}") from error
        ends[end.split(":")[0]] += 1
        if end.startswith("silent"):
            silent.append(f"{name}: {end}")
        elif end != "right" and kind != "outside":
            print(f"{kind}: {name}: {end}")
    print(kind, dict(ends))
    assert not silent, "\n".join(silent)
    assert ends["right"] >= RIGHT[kind] * sum(ends.values()), dict(ends)


def test_there_are_cases_enough():
    assert 2 * sum(len(stale_cases.rows(kind)) for kind in stale_cases.CLASSES) >= 600
