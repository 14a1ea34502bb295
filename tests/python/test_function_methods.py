"""Decorated methods, also called by their class, and parameters as arguments."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pytest

import burtorch as bt


class Square:
    exponent = 2.0

    def __init__(self, scale):
        self.scale = scale

    @bt.function
    def at(self, x):
        return self.scale * x**self.exponent

    @classmethod
    @bt.function
    def of_class(cls, x):
        return x**cls.exponent

    @staticmethod
    @bt.function
    def apart(x):
        return x * x

    @property
    @bt.function
    def doubled(self):
        return self.scale * 2.0

    @cached_property
    @bt.function
    def tripled(self):
        return self.scale * 3.0


class Cube(Square):
    exponent = 3.0

    @bt.function
    def at(self, x):
        return Square.at(self, x) + super().at(x)


def test_methods_called_by_their_class():
    squares = [Square(2.0), Square(3.0)]
    assert [Square.at(s, 2.0) for s in squares] == list(map(Square.at, squares, [2.0, 2.0])) == [8.0, 12.0]
    assert (Square.at.grad(squares[0], 2.0), Square.at.value_and_grad(squares[1], 1.0)) == (8.0, (3.0, 6.0))
    assert Square.at.map(squares[0], np.array([1.0, 2.0])).tolist() == [2.0, 8.0]
    assert Square.at.hessian(squares[0], 5.0) == 4.0
    assert Cube(2.0).at(2.0) == 32.0
    assert squares[0].at.stats()["traced"] == 1
    squares[0].scale = 5.0
    assert Square.at(squares[0], 2.0) == 20.0


def test_methods_of_classes_and_properties():
    square = Square(2.0)
    assert (Square.of_class(3.0), square.of_class(3.0), Cube.of_class(2.0), Square.of_class.grad(3.0)) == (9, 9, 8, 6)
    assert (Square.apart(3.0), square.apart(3.0)) == (9.0, 9.0)
    assert (square.doubled, square.tripled, Square(5.0).doubled) == (4.0, 6.0, 10.0)
    square.scale = 7.0
    assert square.doubled == 14.0


def test_other_objects_are_no_instances():
    for call in (
        lambda: Square.at(Line(), 2.0),
        lambda: Square.apart(Square(1.0)),
        lambda: Square.at.grad(Line(), 2.0),
    ):
        with pytest.raises(bt.TraceError, match="expected a real number, an array"):
            call()
    with pytest.raises(TypeError, match=r"found a classmethod: write @classmethod above @bt\.function"):
        bt.function(classmethod(lambda cls: 1.0))
    with pytest.raises(TypeError, match=r"found a property: write @property above @bt\.function"):
        bt.function(property(lambda self: 1.0))


class Line:
    pass


RATE = bt.parameter(2.0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda f, p: f(p), 8.0),
        (lambda f, p: f.grad(p), 12.0),
        (lambda f, p: f.value_and_grad(p), (8.0, 12.0)),
        (lambda f, p: f.hessian(p), 12.0),
        (lambda f, p: f.jvp(p, 1.0)[1], 12.0),
        (lambda f, p: bt.grad(f)(p), 12.0),
        (lambda f, p: bt.grad(lambda x: x**3)(p), 12.0),
        (lambda f, p: bt.jvp(f, (p,), (1.0,))[1], 12.0),
        (lambda f, p: bt.vjp(f, p)[0], 8.0),
        (lambda f, p: bt.function(lambda x: x[0] ** 3 * x[1]["a"])([p, {"a": 1.0}]), 8.0),
        (lambda f, p: bt.function(lambda a, x: (a * x).sum())(np.ones((2, 2)), p), 8.0),
        (lambda f, p: bt.scan(lambda c, x: (c + x, None), p, np.full(3, 2.0))[0], 8.0),
        (lambda f, p: bt.fori_loop(0, 2, lambda i, c: c * 2.0, p), 8.0),
        (lambda f, p: bt.cond(True, lambda x: x**3, lambda x: x, p), 8.0),
        (lambda f, p: bt.vmap(lambda x, y: x * y, in_axes=(0, None))(np.full(1, 4.0), p)[0], 8.0),
    ],
)
def test_parameters_as_arguments(call, expected):
    assert call(bt.function(lambda x: x**3), RATE) == expected


def test_parameters_as_arguments_within_traces():
    p, cube = bt.parameter(2.0), bt.function(lambda x: x**3)
    of_values = bt.function(lambda x: cube(p) * x)
    of_arrays = bt.function(lambda x: cube(p) * x.sum() + bt.grad(cube)(p))
    for number in (2.0, 3.0):
        p.value = number
        assert of_values.value_and_grad(5.0) == (5 * number**3, number**3)
        assert of_arrays(np.ones((2, 2))) == 4 * number**3 + 3 * number**2
