"""Calls of layers: the fast paths follow the layer's attributes, including assigned ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def _graph_of_its_own() -> Iterator[None]:
    with bt.Graph(dtype="float64"):
        yield


def test_a_layer_uses_the_tensors_that_are_assigned_to_it() -> None:
    params = bt.Parameters(dtype="float64")
    layer = bt.nn.Linear(params, 2, 2, activation="tanh")
    layer.weight.values[:] = [1.0, 0.0, 0.0, 1.0]
    x = bt.current_graph().vector([0.5, -0.25])
    for _ in range(3):
        assert list(layer(x).data) == [math.tanh(0.5), math.tanh(-0.25)]
    # Tied weights, and a bias that is removed, before and after calls.
    other = bt.nn.Linear(params, 2, 2)
    other.weight.values[:] = [0.0, 2.0, 1.0, 0.0]
    other.bias.values[:] = [10.0, 20.0]
    assert list(other(x).data) == list(other(x).data) == [9.5, 20.5]
    other.weight, other.bias = layer.weight, None
    for _ in range(2):
        assert list(other(x).data) == [0.5, -0.25]
    layer.weight.values[:] = [2.0, 0.0, 0.0, 2.0]
    assert list(other(x).data) == [1.0, -0.5]


def test_a_layer_with_a_weight_that_is_computed_asks_for_it_at_each_call() -> None:
    params = bt.Parameters(dtype="float64")

    class Alternating(bt.nn.Linear):
        calls = 0

        @property
        def weight(self) -> bt.Tensor:
            self.calls += 1
            return self.tensors[self.calls % 2]

        @weight.setter
        def weight(self, first: bt.Tensor) -> None:
            self.tensors = [first, params.tensor((1, 1), init=5.0)]

    layer = Alternating(params, 1, 1, bias=False)
    layer.tensors[0].values[:] = [3.0]
    x = bt.current_graph().vector([1.0])
    assert [layer(x).data[0] for _ in range(4)] == [5.0, 3.0, 5.0, 3.0]


def test_layers_are_copied_called_by_keyword_and_refuse_invalid_arguments() -> None:
    params = bt.Parameters(dtype="float64")
    layer, table = bt.nn.Linear(params, 2, 1, bias=False), bt.nn.Embedding(params, 3, 2)
    x = bt.current_graph().vector([1.0, 2.0])
    again, rows = copy.copy(layer), copy.copy(table)
    for _ in range(2):
        assert list(again(x=x).data) == list(layer(x).data)
        assert list(layer(rows.rows([1])).data) == list(layer(table.rows([1])).data)
        with pytest.raises(ValueError, match="a dense layer with a weight"):
            layer(bt.current_graph().vector([1.0, 2.0, 3.0]))
    with pytest.raises(TypeError):
        layer()
    with pytest.raises(IndexError):
        table.rows([3])
    with pytest.raises(TypeError):
        table.rows(None)


def test_own_models_show_their_parts():
    params = bt.Parameters(dtype="float64")

    class Net(bt.nn.Module):
        def __init__(self):
            self.home, self.rate = params, 0.5
            self.layers = [bt.nn.Linear(params, 2, 3), bt.nn.Linear(params, 3, 1, bias=False)]
            self.scale = params.tensor(2)

    class Outer(bt.nn.Module):
        def __init__(self):
            self.net, self.itself = Net(), self

    first = 'Linear(2, 3, bias=True, activation="identity")'
    second = 'Linear(3, 1, bias=False, activation="identity")'
    assert repr(Net()) == f"Net(layers=[{first}, {second}], scale=Tensor((2,)))"
    assert repr(Outer()) == f"Outer(net={Net()!r}, itself=...)"
    assert repr(bt.nn.Module()) == "Module()"


def test_layers_of_a_model_by_number():
    net = bt.nn.MLP(bt.Parameters(dtype="float64"), [3, 4, 1])
    assert [layer.n_out for layer in net] == [net[0].n_out, net[-1].n_out] == [4, 1]
    net.params.freeze(net[0])
    assert net.params.n_trainable == 5
    sgd = bt.optim.SGD(net[1], lr=1.0)
    for k in range(net.params.n):
        net.params.grads[k] = 1.0
    before = list(net[0].weight.values)
    sgd.step()
    assert list(net[0].weight.values) == before
    with pytest.raises(IndexError):
        net[2]


@pytest.mark.parametrize("kind", [bt.nn.LayerNorm, bt.nn.RMSNorm])
@pytest.mark.parametrize("eps", [-1.0, float("nan"), float("inf")])
def test_normalisations_refuse_roots_of_negative_numbers(kind, eps):
    params = bt.Parameters(dtype="float64")
    with pytest.raises(ValueError, match="eps must be finite and at least 0"):
        kind(params, 3, eps=eps)
    assert params.n == 0


@pytest.mark.parametrize("use", [bt.nn.state_dict, bt.nn.parameters, bt.nn.named_parameters])
@pytest.mark.parametrize("wrong", [3, "model", None, 0.5])
def test_numbers_and_texts_are_no_models(use, wrong):
    with pytest.raises(TypeError, match="expected a model, a layer or a container of them"):
        use(wrong)


def test_a_layer_of_an_array_is_trained_in_bodies_that_are_not_traced():
    params = bt.Parameters(dtype="float64", seed=1)
    net, scale = bt.nn.MLP(params, [3, 4, 2]), params.tensor(2, init=1.0)

    def body(x):
        return (scale * net(bt.array(np.ones(3)))).sum() * x

    traced, plain = (np.array(bt.Oracle(body, params=params, lanes=lanes)([1.0])[1]) for lanes in (None, 1))
    assert traced.all()
    np.testing.assert_allclose(plain, traced, rtol=1e-14)
