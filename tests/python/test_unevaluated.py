"""A gradient without the value: evaluate=False."""

from __future__ import annotations

import pytest

import burtorch as bt

UNARY = [op["name"] for op in bt.system.ops() if op["arity"] == "unary"]
BINARY = [op["name"] for op in bt.system.ops() if op["arity"] == "binary"]
NEEDS_VALUE = {op["name"] for op in bt.system.ops() if op["reads_output"]}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "float128", "float32x8"])
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_the_gradient_is_that_of_the_evaluated_op(name, dtype):
    function = getattr(bt, name)
    graph = bt.Graph(dtype=dtype)
    x, y = graph.value(1.25 if name == "acosh" else 0.75), graph.value(1.5)
    operands = (x,) if name in UNARY else (x, y)
    if name in NEEDS_VALUE:
        n_nodes = len(graph)
        with pytest.raises(ValueError, match="reads its value"):
            function(*operands, evaluate=False)
        assert len(graph) == n_nodes
        return
    z = function(*operands, evaluate=False)
    z.backward()
    found = (x.grad, y.grad, z.grad)
    x.grad = y.grad = 0
    wanted = function(*operands, evaluate=True)
    wanted.backward()
    assert (x.grad, y.grad, wanted.grad) == found
    assert z.data == wanted.data


REDUCTIONS = [op["name"] for op in bt.system.ops() if op["arity"] == "reduction"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "float128", "float32x8"])
@pytest.mark.parametrize("name", [*REDUCTIONS, "inner_product", "inner_product_with_bias"])
def test_reductions_may_wait_for_their_value(name, dtype):
    graph = bt.Graph(dtype=dtype)
    x, bias = graph.vector([0.5, -1.25, 2.0, 3.5]), graph.value(0.5)
    function = getattr(bt, name)
    for operands in (x, [x[:2], x[2:]], list(x)[::-1]):
        arguments = (operands, x) if name == "inner_product" else (operands,)
        arguments = (operands, x, bias) if name == "inner_product_with_bias" else arguments
        graph.zero_grad()
        y = function(*arguments, evaluate=False)
        y.backward()
        graph.backward(y)
        found = list(x.grad), bias.grad
        graph.zero_grad()
        evaluated = function(*arguments, evaluate=True)
        evaluated.backward()
        evaluated.backward()
        assert found == (list(x.grad), bias.grad)
        assert y.data == evaluated.data
    with pytest.raises(TypeError, match="evaluate must be"):
        function(*arguments, evaluate="no") if name in REDUCTIONS else bt.reduce_sum(x, evaluate=1)
    with pytest.raises(TypeError):
        function(*arguments, unheard_of=True)


def test_a_reduction_over_parameters_is_evaluated_at_once():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=3.0)
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0])
    y, z = bt.reduce_sum([x, w], evaluate=False), bt.inner_product(x, w, evaluate=False)
    params.values[:] = [0.0, 0.0]
    assert (y.data, z.data) == (9.0, 9.0)
    y.backward()
    assert list(params.grads) == [1.0, 1.0]


def test_a_sweep_does_not_evaluate_its_root():
    """Shown by a value: the operand was changed before the value was requested."""
    for sweep in (lambda y: y.backward(), lambda y: y.graph.backward(y), lambda y: y.graph.backward(y, seed=2.0)):
        graph = bt.Graph()
        x = graph.value(3.0)
        for y in (bt.sqr(x, evaluate=False), bt.reduce_sum_of_squares([x], evaluate=False)):
            x.data = 3.0
            sweep(y)
            x.data = 5.0  # an evaluated node would keep 9
            assert y.data == 25.0


def test_a_root_that_is_never_evaluated():
    graph = bt.Graph()
    x = graph.vector([0.5, -1.5, 2.0])
    loss = bt.sqr(bt.reduce_sum(x * x) - 1.0, evaluate=False)
    loss.backward()
    s = 0.25 + 2.25 + 4.0 - 1.0
    assert list(x.grad) == [2 * s * 2 * v for v in (0.5, -1.5, 2.0)]
    assert loss.grad == 1.0
    loss.backward()
    assert list(x.grad) == [4 * s * 2 * v for v in (0.5, -1.5, 2.0)]


@pytest.mark.parametrize(
    "use",
    [
        lambda z: z.data,
        lambda z: (z + 1.0).data - 1.0,
        lambda z: (2.0 * z).data / 2.0,
        lambda z: (z * z).sqrt().data,
        lambda z: bt.exp(z).log().data,
        lambda z: bt.reduce_sum([z, 0.0]).data,
        lambda z: bt.concat(z, [1.0])[0].data,
        lambda z: float(z),
        lambda z: z.graph.recompute(z),
        lambda z: z.detach().data,
        lambda z: z.graph.node(z.index).data,
        lambda z: list(z.graph.values[0:2])[1],
        lambda z: float(bt.load_graph(z.graph.to_bytes()).node(1).data),
        lambda z: (z == 9.0) * 9.0,
    ],
)
def test_the_value_is_computed_on_demand(use):
    graph = bt.Graph()
    x = graph.value(3.0)
    z = bt.sqr(x, evaluate=False)
    assert use(z) == pytest.approx(9.0, rel=1e-15)
    assert z.data == 9.0
    assert repr(z) == "Value(data=9.0, grad=0.0)"


def test_marks_rewinds_and_reclaim():
    graph = bt.Graph()
    x = graph.value(3.0)
    kept = bt.mul(x, 2.0, evaluate=False)
    mark = graph.mark()
    gone = bt.sqr(x, evaluate=False)
    graph.rewind(mark)
    with pytest.raises(bt.StaleValueError):
        gone.backward()
    with pytest.raises(bt.StaleValueError):
        gone.data  # noqa: B018
    for _ in range(3000):
        x + 1.0
    assert graph.collect() >= 0
    assert kept.grad == 0.0
    kept.backward()
    assert (x.grad, kept.data) == (2.0, 6.0)


def test_bad_calls():
    x = bt.Value(1.0)
    for call in (
        lambda: bt.sqr(x, evaluate=0),
        lambda: bt.sqr(x, evaluates=False),
        lambda: bt.sqr(evaluate=False),
        lambda: bt.sqr(1.0, evaluate=False),
        lambda: bt.sqr(x.graph.vector([1.0, 2.0]), evaluate=False),
        lambda: bt.add(x, evaluate=False),
        lambda: bt.add(1.0, 2.0, evaluate=False),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(bt.GraphMismatchError):
        bt.add(x, bt.Graph().value(1.0), evaluate=False)


def test_without_gradients_the_value_is_computed():
    x = bt.Value(3.0)
    with bt.no_grad():
        z = bt.sqr(x, evaluate=False)
    assert (z.op, z.data) == ("constant", 9.0)
