"""Which attributes of a model hold its Tensors: all names and containers, and no foreign objects."""

import copy
import logging
import pickle
import threading
import types
import weakref
from collections import deque
from dataclasses import dataclass

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")


class Private(bt.nn.Module):
    def __init__(self, params):
        self._scale = params.tensor(2, init=1.0)
        self.w = params.tensor(2, init=1.0)
        self.__shift = params.tensor(2, init=0.0)
        self._head = bt.nn.Linear(params, 2, 1, activation="tanh")
        self._parts = {"first": [bt.nn.Neuron(params, 2)]}

    def __call__(self, x):
        return self._head((self._scale + self.w) * x + self.__shift)[0] ** 2 + self._parts["first"][0](x)


class Plain:
    __init__, __call__ = Private.__init__, Private.__call__


NAMES = ["_scale", "w", "_Private__shift", "_head.weight", "_head.bias", "_parts.first.0.weight", "_parts.first.0.bias"]


@pytest.mark.parametrize("kind", [Private, Plain])
def test_private_attributes_belong_to_a_model(kind):
    params = bt.Parameters(dtype="float64", seed=0)
    net = kind(params)
    assert [name for name, _ in bt.nn.named_parameters(net)] == list(bt.nn.state_dict(net)) == NAMES
    oracle, before = bt.Oracle(net, params=params), np.array(params.values)
    _, grad = oracle(np.ones((3, 2)))
    assert np.all(np.asarray(grad) != 0.0)
    bt.optim.SGD(net, lr=0.1).step()
    assert np.allclose(params.values, before - 0.1 * np.asarray(grad), rtol=1e-15)
    state, values = bt.nn.state_dict(net), list(params.values)
    params.values[:] = [0.0] * len(params)
    bt.nn.load_state_dict(net, state)
    assert list(params.values) == values
    params.freeze(net)
    assert params.n_trainable == 0


def test_private_attributes_are_counted_frozen_saved_and_copied(tmp_path):
    params = bt.Parameters(dtype="float64", seed=0)
    net = Private(params)
    assert net.n_parameters == len(params)
    net.freeze()
    assert params.n_trainable == 0
    net.unfreeze()
    net.save(tmp_path / "m.safetensors")
    again = Private(bt.Parameters(dtype="float64", seed=1))
    again.load(tmp_path / "m.safetensors")
    for other in (again, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.state_dict() == net.state_dict()


def test_own_attributes_of_layers_add_no_names():
    params = bt.Parameters()
    linear = bt.nn.Linear(params, 2, 3)
    linear.weight = params.tensor((3, 2))
    assert list(linear.state_dict()) == ["weight", "bias"]
    assert next(iter(linear.parameters())).span == linear.weight.span

    class Scaled(bt.nn.Linear):
        def __init__(self, params):
            super().__init__(params, 2, 3)
            self._scale = params.tensor(1)

    assert list(Scaled(params).state_dict()) == ["weight", "bias", "_scale"]


def test_deques_and_slots_hold_tensors():
    class Slotted(bt.nn.Module):
        __slots__ = ("__hidden", "empty", "layers")

        def __init__(self, params):
            self.layers = deque([bt.nn.Linear(params, 2, 2, bias=False), params.tensor(1)], maxlen=2)
            self.__hidden = params.tensor(2)
            self.rest = params.tensor(3)

    @dataclass(slots=True)
    class Pair:
        first: object
        second: object

    class Net(bt.nn.Module):
        def __init__(self, params):
            self.slotted, self.pair = Slotted(params), Pair(params.tensor(1), params.tensor(1))

    params = bt.Parameters()
    names = {
        "slotted.layers.0.weight",
        "slotted.layers.1",
        "slotted._Slotted__hidden",
        "slotted.rest",
        "pair.first",
        "pair.second",
    }
    net = Net(params)
    assert set(net.state_dict()) == names
    assert net.n_parameters == len(params)


def test_foreign_objects_are_not_visited():
    visited = []

    class Watched(dict):
        def items(self):
            visited.append(self)
            return super().items()

    class Child(bt.nn.Module):
        def __init__(self, params, parent):
            self.w, self._parent = params.tensor(1), weakref.proxy(parent)

    class Net(bt.nn.Module):
        def __init__(self, params):
            self._module = types.ModuleType("large")
            self._module.content = Watched()
            self._kind, self._lock, self._log = Watched, threading.RLock(), logging.getLogger("burtorch.test")
            self._condition, self._call = threading.Condition(), self.__call__
            self.child, self.after = Child(params, self), params.tensor(1)

        def __call__(self, x):
            return x

    net = Net(bt.Parameters())
    assert list(net.state_dict()) == ["child.w", "after"]
    assert list(net.child.state_dict()) == ["w"]
    child = net.child
    del net
    assert list(child.state_dict()) == ["w"]  # its parent no longer exists
    assert not visited


def clash(params, kind):
    a, b = params.tensor(1, init=1.0), params.tensor(2, init=2.0)
    return {
        "keys": {1: a, "1": b},
        "dots": {"a.b": a, "a": {"b": b}},
        "layer": {"l": bt.nn.Linear(params, 1, 1), "l.weight": a},
        "tuples": {(1, 2): a, "(1, 2)": b},
    }[kind]


@pytest.mark.parametrize("kind", ["keys", "dots", "layer", "tuples"])
def test_two_tensors_of_one_name_are_named(kind, tmp_path):
    class Net(bt.nn.Module):
        def __init__(self):
            self.d = clash(bt.Parameters(), kind)

    net = Net()
    path = tmp_path / "net.safetensors"
    calls = (net.state_dict, lambda: net.load_state_dict({}), lambda: net.save(path), lambda: bt.nn.state_dict(net))
    for call in calls:
        with pytest.raises(ValueError, match=r"two tensors of the model are named 'd\."):
            call()
    assert not path.exists()
    assert net.n_parameters >= 3
