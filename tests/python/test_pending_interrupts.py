"""Public calls with an interrupt at one of their checks for signals, the first five and some later ones: it is raised,
nothing hides it, and the call has changed nothing, or everything.

The interpreter runs handlers of signals between instructions, and wherever a C function checks. A signal is pending at
the start of a call into the extension only if that call comes from C. Here the handler is in C too, and makes the
signal pending again until it has run `n` times: so the interrupt arrives at check number `n` of the call, whatever
checks there: the text of a keyword, a comparison, an attribute, a long loop.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import operator
import os
import signal
import sys
import warnings

import pytest

import burtorch as bt

from . import refused_calls

OPERATORS = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv},
    **{ast.USub: operator.neg, ast.Lt: operator.lt, ast.Gt: operator.gt, ast.Eq: operator.eq},
}


def last_call(expression, names):
    """The outermost call of an expression, or nothing if there is none from C."""

    def value(node):
        return eval(compile(ast.Expression(node), "<call>", "eval"), names)

    match ast.parse(expression, mode="eval").body:
        case ast.Call(function, arguments, keywords) if not any(isinstance(x, ast.Starred) for x in arguments):
            given = {keyword.arg: value(keyword.value) for keyword in keywords if keyword.arg}
            given.update(*[value(keyword.value) for keyword in keywords if not keyword.arg])
            return functools.partial(value(function), *map(value, arguments), **given)
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return functools.partial(OPERATORS[type(op)], value(left), value(right))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return functools.partial(OPERATORS[type(op)], value(operand))
        case ast.Compare(left, [op], [right]) if type(op) in OPERATORS:
            return functools.partial(OPERATORS[type(op)], value(left), value(right))
        case ast.Subscript(of, at):
            return functools.partial(operator.getitem, value(of), value(at))
        case ast.Attribute(of, name):
            return functools.partial(getattr, value(of), name)
    return None


def next_in_c(steps):
    """A handler of signals that takes a step, without an instruction of the interpreter."""
    step = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int, ctypes.py_object)
    return functools.partial(step(("PyIter_Next", ctypes.pythonapi)), steps)


class Interrupted:
    """A call with an interrupt at its check number `n`."""

    def __init__(self, n, call):
        pend = ctypes.pythonapi.PyErr_SetInterrupt
        raising = functools.partial(signal.default_int_handler, signal.SIGINT, None)
        steps = iter([pend] * n + [raising])
        self.results, self.error, self.is_raised = [], None, False
        handler = signal.signal(signal.SIGINT, next_in_c(map(operator.call, steps)))
        try:
            try:
                self.results.extend(map(operator.call, [pend, call]))
            except Exception as error:
                self.error = error
            for _ in range(n + 2):
                pass  # here the interpreter checks, if the call has not
        except KeyboardInterrupt:
            self.is_raised = True
        finally:
            signal.signal(signal.SIGINT, handler)
        self.is_done = self.error is not None or len(self.results) == 2


def checks():
    """0, 1, 2, 3, 4, and then fewer and fewer numbers."""
    n = 0
    while n < 300:
        yield n
        n += 1 + n // 4


def scene_of(scene):
    names = {**vars(refused_calls), "path": os.path.join(refused_calls.FOLDER, "new")}
    return {**names, **refused_calls.SCENES[scene]()}


def state_of(thing):
    try:
        return refused_calls.seen(thing)
    except bt.StaleValueError:
        return "stale"


def states(names):
    own = {name: thing for name, thing in names.items() if name not in vars(refused_calls)}
    return {name: state_of(thing) for name, thing in own.items() if isinstance(thing, refused_calls.STATEFUL)}


def call_of(expression, scene, more):
    """Names of the scene, and the call; nothing if the call does not suit the names."""
    names = scene_of(scene)
    try:
        call = last_call(expression, names)
    except Exception:
        return None
    is_helper = call is not None and getattr(call.func, "__module__", None) == refused_calls.__name__
    if call is None or is_helper or (more and call.func in OPERATORS.values()):
        return None
    return names, functools.partial(call, **more)


# Its gradients are overwritten sample by sample.
PARTIAL = {"oracle.per_sample(contexts, targets, lambda k, loss, grad: None)"}


def wrong_of(expression, scene, more, hidden):
    """How interrupts of a call differ from the promise."""
    if (made := call_of(expression, scene, more)) is None:
        return
    names, call = made
    before = states(names)
    with contextlib.suppress(Exception):
        call()
    after = states(names)
    may_differ = refused_calls.is_several(expression) or expression in PARTIAL
    names = None
    for n in checks():
        names, call = (names, call) if names else call_of(expression, scene, more)
        found = Interrupted(n, call)
        # PyO3 formats keywords that a class or method of its own does not take, and so hides the interrupt.
        if more and str(found.error).endswith("got an unexpected keyword argument '<unprintable str object>'"):
            hidden.clear()
            return
        if hidden or not found.is_raised:
            yield f"{expression} at check {n}: {found.error!r}, unraisable: {hidden}"
            hidden.clear()
        now = states(names)
        if now not in (before, after) and not may_differ:
            yield f"{expression} at check {n} left {[name for name in now if now[name] != before[name]]}"
        if found.is_done:
            return
        if now != before:
            names = None


@pytest.mark.parametrize("more", [{}, {"no_such_keyword": 1}], ids=["as they are", "unknown keyword"])
@pytest.mark.parametrize("scene", refused_calls.SCENES)
def test_an_interrupt_is_raised_whatever_checks(scene, more, monkeypatch):
    hidden = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: hidden.append(repr(unraisable.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [text for call in refused_calls.CALLS[scene] for text in wrong_of(call, scene, more, hidden)]
    assert wrong == []


def test_the_test_sees_a_hidden_and_a_partial_interrupt():
    def masked():
        try:
            sum(range(3))
            return list(range(3))
        except KeyboardInterrupt:
            return None

    # Its first check is before its first instruction.
    assert not Interrupted(1, masked).is_raised
    assert Interrupted(0, functools.partial(abs, -1)).is_raised
    assert not Interrupted(0, functools.partial(str, 1)).is_done
    assert Interrupted(3, functools.partial(abs, -1)).is_done
