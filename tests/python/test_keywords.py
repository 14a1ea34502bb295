"""Unknown keywords are refused by name, with the nearest known one, and never reach a traced body."""

from __future__ import annotations

import functools
import inspect
import runpy
from array import array
from pathlib import Path

import pytest

import burtorch as bt

PUBLIC = runpy.run_path(str(Path(__file__).with_name("long_calls.py")))["public"]()
X = array("d", [1.0, 2.0])


def plain(x, scale=2.0):
    return (x * x).sum() * scale


def any_keyword(x, **more):
    return (x * x).sum() * more.get("scale", 2.0)


def keyword_only(x, *, scale=2.0):
    return (x * x).sum() * scale


class Callable:
    def __call__(self, x, scale=2.0):
        return plain(x, scale)

    def method(self, x, scale=2.0):
        return plain(x, scale)


BODIES = {
    "plain": plain,
    "any": any_keyword,
    "keyword only": keyword_only,
    "partial": functools.partial(plain),
    "callable": Callable(),
    "method": Callable().method,
    "lambda": lambda x, scale=2.0: plain(x, scale),
}

# Methods of a Function with keywords: a call, and its options.
METHODS = {
    "__call__": ((X,), {}),
    "value_and_grad": ((X,), {"argnums": 0, "wanted": None, "out": None}),
    "grad": ((X,), {"argnums": 0, "wanted": None, "out": None}),
    "value_and_param_grad": ((X,), {}),
    "trace": ((X,), {}),
    "compile": ((X,), {}),
    "vjp": ((X, 1.0), {}),
    "jvp": ((X, X), {}),
    "hvp": ((X, X), {"argnums": 0}),
    "hessian": ((X,), {"argnums": 0, "out": None}),
    "jacobian": ((X,), {"argnums": 0, "out": None}),
    "hessian_sparsity": ((X,), {"argnums": 0}),
    "jacobian_sparsity": ((X,), {"argnums": 0}),
    "sparse_hessian": ((X,), {"argnums": 0, "out": None}),
    "sparse_jacobian": ((X,), {"argnums": 0, "out": None}),
    "map": ((array("d", [1.0, 2.0]),), {"threads": 1, "out": None, "stop": None, "deadline": None}),
    "map_value_and_grad": ((array("d", [1.0, 2.0]),), {"threads": 1, "out": None, "stop": None, "deadline": None}),
}


def test_all_methods_with_keywords_are_here():
    wanted = {name for name in dir(bt.Function) if "**" in (getattr(bt.Function, name).__doc__ or "")}
    found = set()
    for name in PUBLIC:
        if name.startswith("Function."):
            try:
                parameters = inspect.signature(PUBLIC[name]).parameters.values()
            except ValueError:
                continue
            if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                found.add(name.split(".")[1])
    assert found - {"__call__"} == set(METHODS) - {"__call__"}, wanted


def misspelt(option):
    yield option[:-1]
    yield option + "s"
    yield option.replace("s", "z") if "s" in option else option + "_"
    yield option[0] + option


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("method", METHODS)
def test_a_misspelt_option_is_refused_by_name(method, body):
    seen = []

    def watched(x, *rest, **more):
        seen.append(more)
        return BODIES[body](x, *rest, **more)

    own = functools.wraps(BODIES[body])(watched) if body == "any" else BODIES[body]
    arguments, options = METHODS[method]
    if method.startswith("map"):
        own = any_number if body == "any" else number
    f = bt.function(own)
    for option in options:
        for name in misspelt(option):
            if name in options:
                continue
            with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}'; did you mean '{option}'") as e:
                getattr(f, method)(*arguments, **{name: 0})
            assert method in str(e.value)
    assert not any(seen)


def number(x, scale=2.0):
    return x * scale


def any_number(x, **more):
    assert set(more) <= {"scale"}, more
    return x * more.get("scale", 2.0)


@pytest.mark.parametrize("method", METHODS)
def test_options_of_other_methods_are_no_static_arguments(method):
    arguments, options = METHODS[method]
    f = bt.function(any_number if method.startswith("map") else any_keyword)
    for name in {"argnums", "wanted", "threads", "out", "stop", "deadline"} - set(options):
        if method == "__call__":
            continue  # keywords of the body
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            getattr(f, method)(*arguments, **{name: 0})


@pytest.mark.parametrize("body", [body for body in BODIES if body != "any"])
@pytest.mark.parametrize("method", METHODS)
def test_a_keyword_that_the_body_does_not_take_is_refused(method, body):
    arguments, _ = METHODS[method]
    f = bt.function(number if method.startswith("map") else BODIES[body])
    with pytest.raises(TypeError, match="unexpected keyword argument 'scales'; did you mean 'scale'"):
        getattr(f, method)(*arguments, scales=3.0)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'unheard_of'; it takes .*scale"):
        getattr(f, method)(*arguments, unheard_of=[1])
    assert f.stats()["traced"] == 0


@pytest.mark.parametrize("body", BODIES)
def test_static_arguments_still_arrive(body):
    f = bt.function(BODIES[body])
    assert f(X, scale=3.0) == 15.0
    assert list(f.grad(X, scale=3.0)) == [6.0, 12.0]
    assert f(bt.Vector(X), scale=3.0).data == 15.0


def test_values_as_arguments_do_not_let_a_keyword_through():
    f = bt.function(plain)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scal'; did you mean 'scale'"):
        f(bt.Vector(X), scal=1.0)


@pytest.mark.parametrize("make", [bt.Function, bt.function, lambda body, **options: bt.trace(body, X, **options)])
@pytest.mark.parametrize("option", ["dtype", "optimize", "max_paths", "max_variants", "max_nodes", "audit"])
def test_options_of_a_recording_are_refused_by_name(make, option):
    for name in misspelt(option):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'; did you mean '{option}'"):
            make(plain, **{name: 1})


@pytest.mark.parametrize("method", ["stats", "forget", "audit", "save", "bind"])
def test_methods_without_static_arguments_take_no_other_keyword(method):
    f = bt.trace(plain, X)
    arguments = {"save": ("nowhere",), "bind": (X,)}.get(method, ())
    with pytest.raises(TypeError, match=rf"{method}\(\) got an unexpected keyword argument 'durable'"):
        getattr(f, method)(*arguments, durable=True)
    if not arguments:
        with pytest.raises(TypeError, match=rf"{method}\(\) takes no arguments, found 1"):
            getattr(f, method)(1)


# All public callables that are not methods of a Function.


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("Function.")])
def test_no_public_call_takes_an_unknown_keyword(name):
    if name in ("viz.Live.add",):
        return  # a curve of any name
    with pytest.raises((TypeError, AttributeError)) as e:
        PUBLIC[name](unheard_of=1)
    assert e.type is TypeError


def test_bind_takes_functions_of_one_number():
    x, grad = array("d", [3.0]), array("d", [0.0])
    for body in (lambda x: x * x, lambda x: x[0] * x[0], lambda x: (x * x).sum(), lambda x: bt.sqr(x)):
        bound = bt.function(body).bind(x, grad)
        assert (bound(), list(grad)) == (9.0, [6.0])
        x[0] = 4.0
        assert (bound(), list(grad)) == (16.0, [8.0])
        x[0] = 3.0
    # The existing trace decides.
    f = bt.trace(lambda x: x * x, 2.0)
    assert f.bind(x, grad)() == 9.0
    assert f.stats()["variants"] == 1


def test_errors_of_the_body_are_not_taken_for_an_array():
    with pytest.raises(ZeroDivisionError):
        bt.function(lambda x: x * (1 / 0)).bind(array("d", [3.0]))()


@pytest.mark.parametrize(
    "body",
    [
        lambda v: bt.reduce_sum(bt.softmax(v) * v),
        lambda v: bt.reduce_sum(bt.log_softmax(v) * v),
        lambda v: bt.softmax_cross_entropy(v, 0) * 2.0,
    ],
)
def test_a_layer_of_vectors_is_traced_with_arrays(body):
    f, x = bt.function(body), bt.Vector(X)
    expected = body(x)
    expected.backward()
    value, gradient = f.value_and_grad(X)
    assert value == pytest.approx(expected.data, rel=1e-12)
    assert list(gradient) == pytest.approx(list(x.grad), rel=1e-12, abs=1e-15)
