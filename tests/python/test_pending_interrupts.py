"""Public calls that start while a signal waits to be handled: its exception is raised, and nothing hides it.

The interpreter runs handlers between instructions, so a signal is pending at the start of a call into the extension
only if that call comes from C. There the first function of the interpreter that checks for signals raises the handler's
exception, whatever it was called for: the text of a keyword, a comparison, an attribute.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import operator
import os
import sys
import warnings

import pytest

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


def hidden_by(call):
    """What a call that starts with an interrupt pending does instead of raising it, or nothing."""
    other = "no exception"
    try:
        try:
            # No instruction is between the two.
            list(map(operator.call, [ctypes.pythonapi.PyErr_SetInterrupt, call]))
        except Exception as error:
            other = f"{type(error).__name__}: {str(error)[:150]}"
        for _ in range(2):
            pass  # here the interpreter checks, if the call has not
    except KeyboardInterrupt:
        return None
    return other


@pytest.mark.parametrize("more", [{}, {"no_such_keyword": 1}], ids=["as they are", "unknown keyword"])
@pytest.mark.parametrize("scene", refused_calls.SCENES)
def test_a_pending_interrupt_is_raised(scene, more, monkeypatch):
    hidden, wrong, n = [], [], 0
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: hidden.append(repr(unraisable.exc_value)))
    names = {**vars(refused_calls), **refused_calls.SCENES[scene](), "path": os.path.join(refused_calls.FOLDER, "new")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for expression in refused_calls.CALLS[scene]:
            try:
                call = last_call(expression, names)
                if call is None or (more and not isinstance(call.func, type) and call.func in OPERATORS.values()):
                    continue
                if more:
                    call = functools.partial(call, **more)
            except Exception:
                continue  # an earlier call of the scene has changed what this one needs
            n += 1
            found = hidden_by(call)
            # PyO3 formats keywords that a class or method of its own does not take, and so hides the interrupt.
            by_pyo3 = more and str(found).endswith("got an unexpected keyword argument '<unprintable str object>'")
            if (found is not None or hidden) and not by_pyo3:
                wrong.append(f"{expression}: {found}, unraisable: {hidden}")
            hidden.clear()
    assert wrong == []
    assert n > len(refused_calls.CALLS[scene]) / 2
