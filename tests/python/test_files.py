"""Graphs, Parameters and states as files: raw, checkpoint format, pickled; a failure raises one error and changes
nothing."""

from __future__ import annotations

import copy
import io
import os
import pickle
import stat
import struct
from array import array
from pathlib import Path

import pytest

import burtorch as bt

DTYPES = ["float64", "float32", "float16", "bfloat16", "float128", "float32x8", "float64x4"]


def small_graph(dtype="float64"):
    """A graph of twelve nodes with labels and gradients."""
    graph = bt.Graph(dtype=dtype, reclaim=False)
    with graph:
        a, b = bt.Value(1.5, label="a"), bt.Value(-2.0, label="b ∇")
        c = (a * b + b**3) * 2
        d = bt.reduce_sum([c, a, a, b]) + bt.tanh(c)
    d.backward()
    return graph, d


def numbers(graph):
    return graph.raw_bytes(what="both")


# Raw.


def test_seven_doubles_are_56_bytes(tmp_path):
    graph = bt.Graph()
    x = graph.vector([float(k) for k in range(32)])
    path = tmp_path / "seven"
    graph.save_raw(path, 0, 6)
    assert path.read_bytes() == struct.pack("<7d", *range(7)) == graph.raw_bytes(0, 6)
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), array("d", range(7))):
        x[3].data = 100.0
        x[9].data = 9.5
        graph.load_raw(source, 0, 6)
        assert (x[3].data, x[9].data) == (3.0, 9.5)
    x[3].data = 100.0
    graph.load_raw(path, 0, 6, mmap=True)
    assert x[3].data == 3.0


def test_raw_numbers_of_a_list_and_of_gradients(tmp_path):
    graph, root = small_graph()
    a, b = graph.labelled("a"), graph.labelled("b ∇")
    assert graph.raw_bytes([b, a, b]) == struct.pack("<3d", -2.0, 1.5, -2.0)
    assert graph.raw_bytes([a, root], what="both") == struct.pack("<4d", 1.5, root.data, a.grad, 1.0)
    before = a.grad
    kept = graph.raw_bytes([a, b], what="grads")
    graph.zero_grad()
    graph.load_raw(kept, [a, b], what="grads")
    assert a.grad == before
    path = tmp_path / "all"
    graph.save_raw(path, atomic=True)
    assert len(path.read_bytes()) == 8 * len(graph)


def test_raw_memory_is_filled_in_place():
    graph = bt.Graph(dtype="float32")
    x = graph.vector([1.0, 2.0, 3.0])
    memory = array("f", [0.0] * 3)
    graph.save_raw(memory)
    assert list(memory) == [1.0, 2.0, 3.0]
    view = memoryview(bytearray(16))[4:]
    graph.save_raw(view, 0, 2)
    memory[1] = -7.0
    graph.load_raw(memory, 0, 2)
    assert x[1].data == -7.0
    for bad in (bytearray(11), bytearray(13), bytes(12), memoryview(bytearray(24))[::2]):
        with pytest.raises(ValueError):
            graph.save_raw(bad)
    # A graph may be saved to, and loaded from, the memory it uses.
    own = bytearray(bt.bytes_needed(4))
    inside = bt.Graph(buffer=own)
    inside.vector([1.0, 2.0])
    inside.load_raw(memoryview(own)[:16], 0, 1)


def test_another_length_is_refused(tmp_path):
    graph = bt.Graph()
    graph.vector([1.0, 2.0, 3.0])
    before = graph.raw_bytes()
    for n in (0, 1, 23, 25, 48, 4096):
        path = tmp_path / "other"
        path.write_bytes(bytes(n))
        for call in (
            lambda path=path: graph.load_raw(path),
            lambda path=path: graph.load_raw(path, mmap=True),
            lambda n=n: graph.load_raw(bytes(n)),
        ):
            with pytest.raises(bt.FormatError, match="expected exactly 24") as caught:
                call()
            assert caught.value.offset == min(n, 24)
            assert "24" in caught.value.reason
        assert path.stat().st_size == n
    assert graph.raw_bytes() == before


def test_bad_arguments_are_one_typed_error(tmp_path):
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0])
    other = bt.Value(1.0, graph=bt.Graph())
    path = tmp_path / "x"
    for error, call in [
        (ValueError, lambda: graph.save_raw(path, 0, 2)),
        (ValueError, lambda: graph.save_raw(path, 1, 0)),
        (ValueError, lambda: graph.save_raw(path, what="all")),
        (ValueError, lambda: graph.save(path, what="grads")),
        (OverflowError, lambda: graph.save_raw(path, -1, 0)),
        (TypeError, lambda: graph.save_raw(3)),
        (TypeError, lambda: graph.load_raw(None)),
        (TypeError, lambda: graph.load_raw(b"", mmap=True)),
        (TypeError, lambda: graph.save_raw(path, [1.0])),
        (TypeError, lambda: graph.save_raw(path, [x[0]], 1)),
        (bt.GraphMismatchError, lambda: graph.save_raw(path, [other])),
        (TypeError, lambda: graph.save(bytearray(99))),
        (OSError, lambda: graph.save("a\0b")),
        (IndexError, lambda: graph.node(2)),
        (KeyError, lambda: graph.labelled("x")),
        (ValueError, lambda: bt.Graph().save_raw(path)),
    ]:
        with pytest.raises(error):
            call()
    assert list(tmp_path.iterdir()) == []


# Checked.


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_comes_back(tmp_path, dtype):
    graph, root = small_graph(dtype)
    path = tmp_path / "graph"
    graph.save(path, what="both")
    again = bt.load_graph(path)
    assert (again.dtype, len(again)) == (graph.dtype, len(graph))
    assert numbers(again) == numbers(graph)
    assert again.labelled("a").label == "a"
    again.backward(again.node(root.index))
    root.backward()
    assert numbers(again) == numbers(graph)
    values_only = bt.load_graph(graph.to_bytes())
    assert values_only.raw_bytes() == graph.raw_bytes()
    assert set(values_only.raw_bytes(what="grads")) == {0}


def test_loading_needs_an_equal_structure(tmp_path):
    graph, root = small_graph()
    path = tmp_path / "graph"
    graph.save(path)
    data = root.data
    root.data = 0.0
    graph.load(path)
    assert root.data == data
    other, other_root = small_graph()
    bt.exp(other_root)
    before = numbers(other)
    with pytest.raises(bt.FormatError, match="nodes, the graph has") as caught:
        other.load(path)
    assert caught.value.offset > 0
    assert numbers(other) == before


def test_a_range_is_loaded_where_it_came_from(tmp_path):
    graph = bt.Graph()
    x = graph.vector([float(k) for k in range(32)])
    path = tmp_path / "range"
    graph.save(path, 2, 8)
    x[5].data = x[20].data = -1.0
    graph.load(path)
    assert (x[5].data, x[20].data) == (5.0, -1.0)
    with pytest.raises(bt.FormatError, match="7 nodes from 2, the graph has 3"):
        load_into_three(path)
    with pytest.raises(bt.FormatError, match="values of a range of nodes, expected a graph"):
        bt.load_graph(path)


def load_into_three(path):
    graph = bt.Graph()
    graph.vector([1.0, 2.0, 3.0])
    graph.load(path)


def test_a_graph_over_parameters(tmp_path):
    params = bt.Parameters(dtype="float64", seed=3)
    w = params.tensor(3, name="w")
    graph = bt.Graph(reclaim=False)
    with graph:
        x = graph.vector([1.0, 2.0, 3.0])
        y = bt.inner_product(x, w)
    assert graph.parameters == [params]
    graph.save(tmp_path / "graph")
    params.save(tmp_path / "params")
    params_again = bt.load_parameters(tmp_path / "params")
    again = bt.load_graph(tmp_path / "graph", params_again)
    again.backward(again.node(y.index))
    y.backward()
    assert list(params_again.grads) == list(params.grads) == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="1 different ones, found 0"):
        bt.load_graph(tmp_path / "graph")
    with pytest.raises(TypeError, match="float64 graph cannot read float32"):
        bt.load_graph(tmp_path / "graph", bt.Parameters())
    with pytest.raises(ValueError, match="of number 0 at least 3, found 0") as caught:
        bt.load_graph(tmp_path / "graph", bt.Parameters(dtype="float64"))
    assert not isinstance(caught.value, bt.FormatError)


def test_a_graph_over_several_parameters_comes_back():
    params = [bt.Parameters(dtype="float64", seed=k) for k in range(3)]
    tensors = [p.tensor(shape) for p, shape in zip(params, [(3, 2), 3, 5])]
    with bt.Graph(reclaim=False) as graph:
        y = bt.affine(tensors[0], graph.vector([1.0, 2.0]), tensors[1])
        loss = (y * y).sum() + bt.norm2(tensors[2])
    loss.backward()
    wanted = [list(p.grads) for p in params]
    for p in params:
        p.zero_grad()
    data, order = graph.to_bytes(), graph.parameters
    assert {id(p) for p in order} == {id(p) for p in params}
    again = bt.load_graph(data, order)
    again.backward(again.node(loss.index))
    assert [list(p.grads) for p in params] == wanted
    with pytest.raises(ValueError, match="in the order in which it names them"):
        bt.load_graph(data, order[::-1])


def test_parameters_come_back(tmp_path):
    params = bt.Parameters(seed=9)
    params.tensor((2, 3), name="w", init="he")
    params.tensor(4, trainable=False)
    params.grads[:6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    path = tmp_path / "params"
    params.save(path, what="both")
    again = bt.load_parameters(path)
    assert list(again.values) == list(params.values)
    assert list(again.grads) == list(params.grads)
    assert (again.names, again.n_trainable, again.named("w").shape) == (["w"], 6, (2, 3))
    assert list(again.tensor(5).values) == list(params.tensor(5).values)
    other = bt.Parameters(seed=1)
    other.tensor((3, 2), name="w")
    other.tensor(4)
    before = list(other.values)
    with pytest.raises(bt.FormatError, match='starts tensor "w"'):
        other.load(path)
    assert list(other.values) == before


def test_every_prefix_and_every_flipped_bit_is_refused():
    data = small_graph()[0].to_bytes(what="both")
    bt.load_graph(data)
    for n in range(len(data)):
        with pytest.raises(bt.FormatError):
            bt.load_graph(data[:n])
    flipped = bytearray(data)
    for bit in range(8 * len(data)):
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(bt.FormatError):
            bt.load_graph(flipped)
        flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(bt.FormatError, match="not a file in burtorch"):
        bt.load_graph(b"\x93NUMPY")
    with pytest.raises(bt.FormatError, match="contains a graph, expected parameters"):
        bt.load_parameters(data)


# Pickles and copies.


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_graphs_and_parameters_pickle(protocol):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, name="w")
    graph, _ = small_graph()
    with graph:
        y = bt.inner_product(graph.vector([1.0, 2.0]), w)
    again, params_again = pickle.loads(pickle.dumps((graph, params), protocol))
    assert numbers(again) == numbers(graph)
    assert again.parameters == [params_again]
    again.backward(again.node(y.index))
    assert list(params_again.grads) == [1.0, 2.0]
    assert list(params.grads) == [0.0, 0.0]


def test_copies():
    graph, _ = small_graph()
    for clone in (copy.copy(graph), copy.deepcopy(graph), copy.deepcopy([graph])[0]):
        clone.node(0).data = 77.0
        assert graph.node(0).data == 1.5
        assert clone.labelled("a").data == 77.0
    fixed = bt.Graph(capacity=10, fixed=True)
    fixed.vector([1.0])
    clone = copy.deepcopy(fixed)
    assert (clone.fixed, clone.capacity, len(clone)) == (True, 10, 1)
    assert not copy.copy(graph).memory()["reclaims"]
    assert copy.copy(bt.Graph()).memory()["reclaims"]
    params = bt.Parameters()
    params.tensor(2, init=1.0)
    clone = copy.deepcopy(params)
    clone.values[0] = 5.0
    assert params.values[0] == 1.0


def test_a_pickle_that_is_damaged_is_refused():
    data = pickle.dumps(small_graph()[0])
    at = data.index(b"\x89btorch")
    damaged = data[: at + 100] + bytes([data[at + 100] ^ 1]) + data[at + 101 :]
    with pytest.raises(bt.FormatError):
        pickle.load(io.BytesIO(damaged))


# Paths.


class Spy:
    """A path whose conversion changes the graph being saved."""

    def __init__(self, graph, path):
        self.graph, self.path = graph, path

    def __fspath__(self):
        self.graph.clear()
        return str(self.path)


def test_a_path_may_be_any_code(tmp_path):
    graph, _ = small_graph()
    with pytest.raises((IndexError, ValueError)):
        graph.save_raw(Spy(graph, tmp_path / "x"), 0, 5)
    graph, _ = small_graph()
    graph.save_raw(tmp_path / "x", 0, 5)
    with pytest.raises((IndexError, ValueError)):
        graph.load_raw(Spy(graph, tmp_path / "x"), 0, 5)


def test_modes_and_links_are_kept(tmp_path):
    graph, _ = small_graph()
    path, link = tmp_path / "x", tmp_path / "link"
    graph.save(path)
    path.chmod(0o640)
    link.symlink_to("x")
    graph.save(link)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "x"]


def test_saving_into_the_present_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph, _ = small_graph()
    graph.save("here")
    assert len(bt.load_graph(Path("here"))) == len(graph)


# Blocks over tokens.


def gpt_graph():
    params = bt.Parameters(dtype="float64", seed=4)
    table = bt.nn.Embedding(params, 5, 4, positions=9)
    block, head = bt.nn.Block(params, 4, 2), bt.nn.Linear(params, 4, 5)
    graph = bt.Graph(reclaim=False)
    with graph:
        loss = head(block(table([0, 3, 1, 1, 4, 2, 0, 3, 2]))).cross_entropy([3, 1, 1, 4, 2, 0, 3, 2, 1])
    loss.label = "loss"
    return graph, loss, params


def test_a_graph_of_blocks_over_tokens_comes_back(tmp_path):
    graph, loss, params = gpt_graph()
    path = tmp_path / "gpt"
    graph.save(path, what="both")
    params.save(tmp_path / "params")
    again_params = bt.load_parameters(tmp_path / "params")
    again = bt.load_graph(path, again_params)
    assert numbers(again) == numbers(graph)
    again.backward(again.labelled("loss"))
    loss.backward()
    assert list(again_params.grads) == list(params.grads)
    assert any(params.grads)
    assert numbers(again) == numbers(graph)
    before = graph.raw_bytes()
    for node in range(len(graph)):
        graph.node(node).data = 0.0
    graph.load(path)
    assert graph.raw_bytes() == before
    copied, copied_params = pickle.loads(pickle.dumps((graph, params)))
    copied_params.zero_grad()
    copied.zero_grad()
    copied.backward(copied.labelled("loss"))
    assert list(copied_params.grads) == list(params.grads)


def test_every_cut_and_flipped_bit_of_a_graph_over_tokens_is_refused():
    graph, _, params = gpt_graph()
    data = graph.to_bytes()
    for n in range(0, len(data), 5):
        with pytest.raises(bt.FormatError):
            bt.load_graph(data[:n], params)
    flipped = bytearray(data)
    for bit in range(0, 8 * len(data), 3):
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(bt.FormatError):
            bt.load_graph(flipped, params)
        flipped[bit // 8] ^= 1 << bit % 8


def test_a_branch_is_saved_once_it_is_joined(tmp_path):
    graph = bt.Graph(reclaim=False)
    with graph:
        a = bt.Value(2.0)
    (branch,) = graph.branches(1)
    with branch:
        b = a * a
        with pytest.raises(ValueError, match="join its branches first"):
            branch.save(tmp_path / "branch")
    with pytest.raises(bt.BusyError, match="join its graph first"):
        branch.save(tmp_path / "branch")
    assert list(tmp_path.iterdir()) == []
    graph.join()
    graph.save(tmp_path / "graph")
    assert bt.load_graph(tmp_path / "graph").node(b.index).data == 4.0


def savers():
    graph = bt.Graph()
    graph.vector([1.0, 2.0])
    params = bt.Parameters()
    model = bt.nn.MLP(params, [2, 3])
    f = bt.trace(lambda x: x * x, 1.0)
    return {
        "Graph.save": graph.save,
        "Graph.save_raw": graph.save_raw,
        "Graph.save_raw atomic": lambda path: graph.save_raw(path, atomic=True),
        "Parameters.save": params.save,
        "Function.save": f.save,
        "MLP.save": model.save,
        "Linear.save": model.layers[0].save,
    }


@pytest.mark.skipif(os.name != "posix", reason="links")
@pytest.mark.parametrize("name", savers())
def test_saving_through_a_link_that_leads_nowhere_makes_the_file(tmp_path, name):
    save = savers()[name]
    save(str(tmp_path / "plain"))
    wanted = (tmp_path / "plain").read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "to folder").symlink_to("folder")
    links = {
        "absolute": str(tmp_path / "a"),
        "relative": "b",
        "into a folder": "folder/c",
        "through a link to a folder": "to folder/d",
        "to a link": "relative again",
        "up and down": "to folder/../e",
    }
    (tmp_path / "relative again").symlink_to("folder/f")
    for kind, target in links.items():
        (tmp_path / kind).symlink_to(target)
        save(str(tmp_path / kind))
        assert (tmp_path / kind).is_symlink()
        assert (tmp_path / kind).read_bytes() == wanted, kind
        # The next call finds a file.
        save(str(tmp_path / kind))
        assert (tmp_path / kind).read_bytes() == wanted, kind
    assert sorted(os.listdir(tmp_path / "folder")) == ["c", "d", "f"]


@pytest.mark.skipif(os.name != "posix", reason="links")
@pytest.mark.parametrize("name", savers())
def test_a_link_that_can_lead_nowhere_is_refused_as_by_open(tmp_path, name):
    save = savers()[name]
    (tmp_path / "round").symlink_to("and round")
    (tmp_path / "and round").symlink_to("round")
    (tmp_path / "missing folder").symlink_to("nowhere/file")
    (tmp_path / "folder").symlink_to(".")
    before = sorted(os.listdir(tmp_path))
    for link in ("round", "missing folder", "folder"):
        with pytest.raises(OSError) as wanted:
            open(tmp_path / link, "wb").close()
        with pytest.raises(OSError) as found:
            save(str(tmp_path / link))
        assert found.value.errno == wanted.value.errno, link
    assert sorted(os.listdir(tmp_path)) == before
