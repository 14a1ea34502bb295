"""Interpreters without a global lock, and what several threads share on every interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest

import burtorch as bt

MODULES = "burtorch, burtorch.nn, burtorch.opt, burtorch.optim, burtorch.compress, burtorch.text, burtorch.viz"


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a global lock")
def test_an_import_leaves_the_lock_off():
    """Neither a warning nor the lock: every module of the package, and a use of each kind of object."""
    code = f"""
import sys
import {MODULES}, burtorch.autograd
bt = burtorch
bt.grad(lambda x: x * x)(2.0), bt.Graph().vector([1.0]), bt.nn.MLP(bt.Parameters(), [2, 1])
print(sys._is_gil_enabled())
"""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_an_error_of_rows_is_raised_in_its_own_call():
    """A primitive that fails on a thread that works for one call leaves nothing to other calls."""

    def checked(x):
        if x < 0.0:
            raise ValueError(str(x))
        return 2.0 * x

    double = bt.primitive(checked)
    double.defvjp(lambda g, y, x: 2.0 * g)
    f = bt.function(lambda x: double(x) + 1.0)
    f(1.0)
    good = np.linspace(0.1, 1.0, 2000)
    bad = good.copy()
    bad[[100, 900, 1700]] = -7.0, -6.0, -5.0
    wrong = []

    def one(rows, expected):
        for _ in range(20):
            try:
                found = f.map(rows, threads=2)[-1]
            except ValueError as error:
                found = str(error)
            if found != expected:
                wrong.append((found, expected))

    cases = [(good, 3.0), (bad, "-7.0")] * 2
    threads = [threading.Thread(target=one, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_error_of_a_finite_sum_is_raised_in_its_own_call():
    """Several threads evaluate one sum, whose function fails at points of some of them."""

    def mean(x, samples):
        if x[0] < 0.0:
            raise ValueError(str(float(x[0])))
        return float(x[0]), np.ones(1)

    f = bt.opt.FiniteSum(mean, 10, 1)
    wrong = []

    def one(number):
        for _ in range(2000):
            try:
                found = f.loss([number])
            except ValueError as error:
                found = float(str(error))
            if found != number:
                wrong.append((found, number))

    threads = [threading.Thread(target=one, args=(number,)) for number in (1.0, -1.0, 2.0, -2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_step_of_a_method_is_taken_or_refused():
    """Several threads step one method: a step that ends in a BusyError was not taken."""
    f = bt.opt.least_squares(np.eye(3), np.ones(3))
    shared, alone, taken = bt.opt.GD(f, step=0.01), bt.opt.GD(f, step=0.01), []

    def one():
        for _ in range(200):
            try:
                shared.step()
            except bt.BusyError:
                continue
            taken.append(1)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone.run(steps=len(taken))
    assert shared.x.tobytes() == alone.x.tobytes()
    assert len(shared.run(steps=3, callback=lambda record: shared.record().step > len(taken) + 9)) == 2


def test_a_special_exception_of_rows_reaches_its_call():
    def ending(x):
        if x < 0.0:
            raise SystemExit(str(x))
        return 2.0 * x

    double = bt.primitive(ending)
    double.defvjp(lambda g, y, x: 2.0 * g)
    f = bt.function(lambda x: double(x) + 1.0)
    f(1.0)
    rows = np.ones(2000)
    rows[1500] = -3.0
    for threads in (1, 2, 3):
        with pytest.raises(SystemExit, match=r"-3\.0"):
            f.map(rows, threads=threads)
        assert f(1.0) == 3.0
