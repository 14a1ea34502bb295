"""Graphs in the caller's memory, and neurons made of scalars."""

import array

import pytest

import burtorch as bt


def tiny(graph: bt.Graph) -> tuple[float, float, float]:
    a, b = bt.Value(-41.0, graph=graph), bt.Value(2.0, graph=graph)
    g = ((a + b) - (a * b + b**3)) ** 2 / 2
    g.backward()
    return g.data, a.grad, b.grad


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_graph_works_in_memory_of_the_caller(dtype: str) -> None:
    memory = bytearray(bt.bytes_needed(16, dtype))
    graph = bt.Graph(dtype, buffer=memory)
    assert graph.fixed
    assert graph.capacity >= 16
    assert tiny(graph) == (612.5, -35.0, 1050.0)
    assert any(memory)


def test_a_full_buffer_is_an_error_and_changes_nothing() -> None:
    graph = bt.Graph(capacity=3, buffer=bytearray(bt.bytes_needed(3)))
    values = [bt.Value(float(k), graph=graph) for k in range(3)]
    with pytest.raises(bt.GraphFullError):
        _ = values[0] + values[1]
    assert len(graph) == 3
    assert [v.data for v in values] == [0.0, 1.0, 2.0]


def test_a_buffer_that_is_too_small_or_not_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="needs"):
        bt.Graph(capacity=100, buffer=bytearray(100))
    with pytest.raises(ValueError, match="writable"):
        bt.Graph(buffer=bytes(10_000))
    with pytest.raises(TypeError, match="buffer protocol"):
        bt.Graph(buffer=3)


def test_the_graph_keeps_its_memory_alive() -> None:
    graph = bt.Graph(buffer=array.array("d", bytes(8000)))
    assert tiny(graph) == (612.5, -35.0, 1050.0)
    graph.clear()
    assert tiny(graph) == (612.5, -35.0, 1050.0)


@pytest.mark.parametrize("activation", ["identity", "tanh", "relu", "sigmoid"])
def test_a_neuron_is_one_row_of_a_layer(activation: str) -> None:
    params = bt.Parameters(dtype="float64", seed=3)
    neuron = bt.nn.Neuron(params, 3, activation=activation)
    x = bt.current_graph().vector([0.5, -1.0, 2.0])
    y = neuron(x)
    layer = bt.nn.Linear(bt.Parameters(dtype="float64", seed=3), 3, 1, activation=activation)
    assert y.data == pytest.approx(layer([0.5, -1.0, 2.0])[0], abs=1e-12)
    y.backward()
    slope = params.grads[3]
    assert list(params.grads)[:3] == pytest.approx([slope * 0.5, -slope, slope * 2.0])
    with pytest.raises(ValueError, match="takes 3 inputs, found 2"):
        neuron([1.0, x[0]])
    assert y.data == layer([0.5, -1.0, 2.0])[0]
    assert neuron([0.5, -1.0, 2.0]) == y.data
