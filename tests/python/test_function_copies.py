"""Copies of traced functions, of primitives and parameters, and traced methods."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import burtorch as bt


class Net(bt.nn.Module):
    """A model with a function of its method."""

    def __init__(self) -> None:
        params = bt.Parameters(dtype="float64")
        self.w = params.tensor(2, init=1.0)
        self.f = bt.function(self.loss)
        self.rate = bt.parameter(2.0)
        self.square = bt.primitive(lambda x: x * x)

    def loss(self, x):
        return (self.w * x).sum()


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_copied_model_has_a_function_of_its_own_method(is_traced):
    net = Net()
    if is_traced:
        assert net.f(np.ones(2)) == 2.0
    other = copy.deepcopy(net)
    other.w.values[:] = [5.0, 5.0]
    other.rate.value = 3.0
    assert (net.f(np.ones(2)), other.f(np.ones(2))) == (2.0, 10.0)
    assert other.f.__wrapped__.__self__ is other
    assert (net.rate.value, other.rate.value) == (2.0, 3.0)
    assert other.square is net.square
    assert copy.copy(net).f is net.f


def test_options_are_copied():
    line = Line()
    line.f = bt.function(line.sloped, dtype="float32")
    assert copy.deepcopy(line).f(0.1) == line.f(0.1) == np.float32(0.1) * 2


def test_other_functions_are_copied_as_those_of_python_are():
    w = bt.Parameters(dtype="float64").tensor(2, init=3.0)
    for f in (bt.function(lambda x: (w * x).sum()), bt.grad(lambda x: (w * x * x).sum()), bt.function(np.sum)):
        f(np.ones(2))
        assert copy.copy(f) is f
        assert copy.deepcopy(f) is f
        assert copy.deepcopy([f, f])[1] is f


def test_a_copy_of_a_function_alone_copies_its_object():
    net = Net()
    f = copy.deepcopy(net.f)
    owner = f.__wrapped__.__self__
    assert owner is not net
    assert owner.f.__wrapped__.__self__ is owner
    owner.w.values[:] = 7.0
    assert (f(np.ones(2)), net.f(np.ones(2))) == (14.0, 2.0)


def test_a_parameter_is_pickled():
    p = pickle.loads(pickle.dumps(bt.parameter(0.1)))
    assert (type(p), p.value) == (bt.parameter, 0.1)
    with pytest.raises(bt.TraceError, match=r"\.value of a parameter"):
        bt.function(lambda x: x * copy.copy(p))(1.0)


class Line:
    """A class with traced methods."""

    slope = 2.0

    @bt.function
    def at(self, x: float) -> float:
        """The height at x."""
        return self.slope * x

    @bt.function(dtype="float32")
    def single(self, x):
        return self.slope * x

    def sloped(self, x):
        return self.slope * x

    slopes = bt.grad(lambda x: x * x)


class Steeper(Line):
    @bt.function
    def at(self, x):
        return super().at(x) * self.slope


def test_methods_are_traced_for_each_instance():
    a, b = Line(), Line()
    b.slope = 3.0
    assert (a.at(1.0), b.at(1.0), a.at.grad(5.0), b.at.value_and_grad(2.0)) == (2.0, 3.0, 2.0, (6.0, 3.0))
    assert a.at is a.at
    assert a.at is not b.at
    a.slope = 5.0
    assert (a.at(1.0), a.at.stats()["variants"]) == (5.0, 1)
    assert a.single(0.1) == np.float32(0.1) * 5
    assert a.slopes(3.0) == 6.0


def test_methods_of_subclasses():
    line = Steeper()
    assert (line.at(1.5), line.at.grad(1.0)) == (6.0, 4.0)


def test_copies_of_instances_have_methods_of_their_own():
    a = Line()
    a.at(1.0)
    for other in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        other.slope = 7.0
        assert (other.at(1.0), a.at(1.0)) == (7.0, 2.0)


def test_instances_with_traced_methods_are_freed():
    a = Line()
    a.at(1.0)
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert alive() is None


def test_an_instance_without_a_dict_cannot_keep_a_method():
    class Slots:
        __slots__ = ()

        @bt.function
        def at(self, x):
            return x

    with pytest.raises(TypeError, match="a traced method needs an instance with a __dict__, found <"):
        Slots().at(1.0)


def test_a_decorated_function_keeps_its_docstring():
    assert Line.at.__doc__ == Line().at.__doc__ == "The height at x."
    assert bt.function(lambda x: x).__doc__ is None
    assert bt.Function.__doc__.startswith("A traced function")
