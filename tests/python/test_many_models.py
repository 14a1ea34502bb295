"""A graph reads from any number of Parameters, and releases those that no live node reads."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

import burtorch as bt


def model(seed):
    params = bt.Parameters(dtype="float64", seed=seed)
    return params, bt.nn.MLP(params, [2, 3, 1])


@pytest.fixture(params=["default graph", "fresh graph"])
def graph(request):
    if request.param == "default graph":
        yield bt.current_graph()
    else:
        with bt.Graph() as fresh:
            yield fresh


@pytest.mark.parametrize("kind", ["values", "vectors", "parameters alone"])
def test_a_hundred_models_one_after_the_other(graph, kind):
    alive = weakref.WeakSet()
    most = 0
    for seed in range(100):
        params, net = model(seed)
        alive.add(params)
        if kind == "values":
            out = net([bt.Value(0.5), bt.Value(-1.0)])[0]
        elif kind == "vectors":
            out = net(bt.Vector([0.5, -1.0])).sum()
        else:
            out = bt.reduce_sum(list(params.tensor((4,), init="glorot") * 2.0))
        out.backward()
        assert np.any(params.grads)
        if kind != "parameters alone":
            assert out.data == pytest.approx(net([0.5, -1.0])[0], rel=1e-14)
        most = max(most, len(alive))
        assert out.graph is graph
    # Dead models are freed: their numbers take the memory.
    assert most <= 24
    del params, net, out
    graph.collect()
    gc.collect()
    assert len(graph.parameters) == 0


def test_twenty_models_at_once(graph):
    models = [model(seed) for seed in range(20)]
    x = bt.Vector([0.5, -1.0])
    outs = [net(x).sum() for _, net in models]
    loss = bt.reduce_sum([out * float(k + 1) for k, out in enumerate(outs)])
    loss.backward()
    assert list(graph.parameters) == [params for params, _ in models]
    for k, (params, net) in enumerate(models):
        got = np.array(params.grads)
        params.zero_grad()
        alone = net(bt.Vector([0.5, -1.0], graph=bt.Graph())).sum()
        alone.backward()
        assert np.allclose(got, (k + 1) * np.array(params.grads), rtol=1e-13)
    assert graph.recompute(loss) == loss.data
    for k in range(5000):
        _ = x[0] * float(k)
    assert len(graph.parameters) == 20
    assert graph.recompute(loss) == pytest.approx(
        sum((k + 1) * net([0.5, -1.0])[0] for k, (_, net) in enumerate(models))
    )
    # Half of them are freed.
    del loss, alone
    kept = outs[10:]
    del outs, models[:10], params, net
    graph.collect()
    assert list(graph.parameters) == [params for params, _ in models]
    assert [out.data for out in kept] == pytest.approx([net([0.5, -1.0])[0] for _, net in models])
    extra, net = model(99)
    total = bt.reduce_sum(kept) + net(x).sum()
    for params, _ in models:
        params.zero_grad()
    total.backward()
    assert all(np.any(params.grads) for params in [extra, *(params for params, _ in models)])


def test_a_graph_of_twenty_models_is_saved(tmp_path):
    with bt.Graph() as graph:
        models = [model(seed) for seed in range(20)]
        x = bt.Vector([0.5, -1.0])
        loss = bt.reduce_sum([net(x).sum() for _, net in models])
        index, data = loss.index, loss.data
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.node(index).data == data
    copy.node(index).backward()
    loss.backward()
    for own, (params, _) in zip(copy.parameters, models):
        assert np.array_equal(own.grads, params.grads)
    path = tmp_path / "graph.bt"
    graph.save(path)
    loaded = bt.load_graph(path, parameters=[params for params, _ in models])
    assert loaded.node(index).data == data
    with pytest.raises(ValueError, match="20 different ones"):
        bt.load_graph(path, parameters=[params for params, _ in models[:19]])


def test_branches_read_twenty_models():
    with bt.Graph() as graph:
        x = bt.Vector([0.5, -1.0])
    models = [model(seed) for seed in range(20)]
    outs = []
    for k, branch in enumerate(graph.branches(4)):
        with branch:
            outs += [net(x).sum() for _, net in models[5 * k : 5 * k + 5]]
    graph.join()
    assert len(graph.parameters) == 20
    bt.reduce_sum(outs).backward()
    assert all(np.any(params.grads) for params, _ in models)
