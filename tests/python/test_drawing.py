"""Drawing code that uses `id()`, and code written for micrograd: one object per node, under micrograd's names.

The pictures are compared with the graph: as many boxes as nodes, each with its number, and an edge per operand.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import threading
import weakref

import pytest

import burtorch as bt
from burtorch import micrograd


class Digraph:
    """The part of graphviz's class used below: records boxes and edges."""

    def __init__(self):
        self.boxes, self.edges = {}, []

    def node(self, name, label):
        assert self.boxes.setdefault(name, label) == label, "two boxes of one name"

    def edge(self, tail, head):
        self.edges.append((tail, head))


def walked(root):
    """Nodes and edges as collected by drawing code for micrograd: in sets, from `_prev`."""
    nodes, edges, todo = set(), set(), [root]
    while todo:
        v = todo.pop()
        if v in nodes:
            continue
        nodes.add(v)
        for operand in v._prev:
            edges.add((operand, v))
            todo.append(operand)
    return nodes, edges


def drawn(root) -> Digraph:
    """A box for each value, named by its id, preceded by a box for its op."""
    picture = Digraph()
    nodes, edges = walked(root)
    for v in nodes:
        name = str(id(v))
        picture.node(name, f"{v.label}|{v.data:.4f}|{v.grad:.4f}")
        if v._op:
            picture.node(name + v._op, v._op)
            picture.edge(name + v._op, name)
    for tail, head in edges:
        picture.edge(str(id(tail)), str(id(head)) + head._op)
    # The ids are those of live objects.
    del nodes, edges
    return picture


def by_label(picture: Digraph) -> set[tuple[str, str]]:
    """The edges, named by the boxes' labels."""
    assert all(name in picture.boxes for edge in picture.edges for name in edge), "an edge from or to no box"
    assert len(set(picture.edges)) == len(picture.edges)
    return {(picture.boxes[tail].split("|")[0], picture.boxes[head].split("|")[0]) for tail, head in picture.edges}


def neuron(value):
    """The usual first picture: tanh of a weighted sum."""
    x1, x2 = value(2.0, label="x1"), value(0.0, label="x2")
    w1, w2 = value(-3.0, label="w1"), value(1.0, label="w2")
    b = value(6.8813735870195432, label="b")
    for v, label in [(x1w1 := x1 * w1, "x1w1"), (x2w2 := x2 * w2, "x2w2"), (both := x1w1 + x2w2, "both")]:
        v.label = label
    n = both + b
    n.label = "n"
    o = n.tanh()
    o.label = "o"
    return o, [x1, x2, w1, w2, b]


NEURON = {
    ("x1", "*"), ("w1", "*"), ("*", "x1w1"), ("x2", "*"), ("w2", "*"), ("*", "x2w2"), ("x1w1", "+"), ("x2w2", "+"),
    ("+", "both"), ("both", "+"), ("b", "+"), ("+", "n"), ("n", "tanh"), ("tanh", "o"),
}  # fmt: skip


@pytest.fixture(params=[bt.Value, micrograd.Value], ids=["burtorch", "micrograd"])
def value(request):
    with bt.Graph():
        yield request.param


def test_the_picture_of_a_neuron(value):
    o, leaves = neuron(value)
    o.backward()
    picture = drawn(o)
    assert by_label(picture) == NEURON
    assert len(picture.boxes) == 10 + 5
    assert len(picture.edges) == 5 + 9
    assert picture.boxes[str(id(o))] == "o|0.7071|1.0000"
    assert {str(id(v)) for v in leaves} < set(picture.boxes)


def test_the_picture_of_nodes_without_holders(value):
    o = neuron(value)[0]
    gc.collect()
    assert by_label(drawn(o)) == NEURON


def test_one_node_is_one_object(value):
    x = value(3.0)
    y, z = x * 2.0, x + 1.0
    assert y.operands[0] is x
    assert z.operands[0] is x
    assert y._prev == z.operands[0]._prev | set(y.operands)
    constant = y.operands[1]
    assert y.operands[1] is constant
    assert (constant.op, constant._op, constant.data, constant._prev) == ("constant", "", 2.0, set())
    a, b = (x * y) * z, y - z
    assert a.operands[0].operands[0] is x
    product = a.operands[0]
    assert (product + 1.0).operands[0] is product
    assert a.operands[0] is product
    assert b.operands == (y, z)
    seen = weakref.ref(product)
    del product
    assert seen() is None
    assert a.operands[0].data == 18.0


def test_a_value_used_twice_is_one_box(value):
    x = value(3.0, label="x")
    y = x * x
    assert y.operands[0] is y.operands[1] is x
    assert y._prev == {x}
    y.label = "y"
    assert by_label(drawn(y)) == {("x", "*"), ("*", "y")}
    unheld = (x + 1.0) * 1.0
    unheld = unheld.operands[0] * unheld.operands[0]
    first, second = unheld.operands
    assert first is second
    z = y + x + y
    z.label = "z"
    picture = drawn(z)
    assert len(picture.boxes) == 4 + 3
    assert len(picture.edges) == 3 + 1 + 2 + 2


def test_a_leaf_alone(value):
    x = value(1.5, label="x")
    picture = drawn(x)
    assert (list(picture.boxes.values()), picture.edges) == (["x|1.5000|0.0000"], [])


@pytest.mark.parametrize(
    ("symbol", "body"),
    [
        ("+", lambda x, y: x + y),
        ("+", lambda x, _: x + 2.0),
        ("+", lambda x, _: 2.0 + x),
        ("*", lambda x, y: x * y),
        ("*", lambda x, _: 3.0 * x),
        ("-", lambda x, y: x - y),
        ("/", lambda x, y: x / y),
        ("/", lambda x, _: 1.0 / x),
        ("//", lambda x, y: x // y),
        ("%", lambda x, y: x % y),
        ("**", lambda x, y: x**y),
        ("**", lambda x, _: 2.0**x),
        ("**2", lambda x, _: x**2),
        ("**3", lambda x, _: x**3),
        ("**-1", lambda x, _: x**-1),
        ("**2.5", lambda x, _: x**2.5),
        ("**-4", lambda x, _: x**-4),
        ("ReLU", lambda x, _: x.relu()),
        ("tanh", lambda x, _: x.tanh()),
        ("exp", lambda x, _: x.exp()),
        ("log", lambda x, _: x.log()),
        ("neg", lambda x, _: -x),
        ("reduce_sum", lambda x, y: bt.reduce_sum([x, y])),
        ("inner_product", lambda x, y: bt.inner_product([x, y], [y, x])),
        ("softmax", lambda x, y: bt.softmax([x, y])[0]),
        ("sin", lambda x, y: bt.sin(bt.concat(x, y))[0]),
        ("", lambda x, _: x.detach()),
    ],
)
def test_ops_have_the_names_of_micrograd(symbol, body):
    with bt.Graph():
        x, y = bt.Value(1.5), bt.Value(0.5)
        z = body(x, y)
        assert z._op == symbol
        assert (x._op, x._prev) == ("", set())
        # The exponent of a power is a constant of the op, not a node as in micrograd.
        expected = set(z.operands[:1] if symbol.startswith("**") and len(symbol) > 2 else z.operands)
        assert z._prev == expected
        assert {id(v) for v in z._prev} == {id(v) for v in expected}


def test_reductions_of_vectors():
    with bt.Graph():
        v = bt.Vector([1.0, 2.0, 3.0])
        y = (v * v).sum()
        picture = drawn(y)
        # A block of 3 products reads the vector; the sum reads the block.
        assert [box.split("|")[1] for box in sorted(picture.boxes.values()) if "|" in box] == (
            ["1.0000", "1.0000", "14.0000", "2.0000", "3.0000", "4.0000", "9.0000"]
        )
        assert y.operands[0] is y.operands[0]
        assert [x.data for x in y.operands] == [1.0, 4.0, 9.0]
        first = v[0]
        assert v.sum().operands[0] is first
        assert v.max().operands[0] is first
        s = bt.softmax(v)
        assert s[1]._prev == set(v)
        assert s[0]._op == s[2]._op == "softmax"
        # Ranges of one node are Vectors too, not Values.
        one = bt.Vector([4.0])
        assert one.sum().operands[0].data == 4.0


def test_two_objects_of_one_node_are_one_operand():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
        y = x * x
        also = graph.node(0)
        assert also is not x
        assert y.operands[0] is x
        z = also + y
        assert z.operands[0] is x
        del x
        gc.collect()
        assert (y * also).operands[1].same_node(also)
        assert y.operands[0] is (also + 1.0).operands[0]


def test_values_of_a_subclass_are_found():
    class Named(bt.Value):
        def __init__(self, data, name):
            self.name = name

    with bt.Graph():
        x = Named(3.0, "width")
        y = x * 2.0
        assert y.operands[0] is x
        assert [v.name for v in (y * x).operands if v is not y] == ["width"]
        seen = weakref.ref(x)
        del x
        assert seen() is None
        assert type(y.operands[0]) is bt.Value


def test_values_that_die_while_they_are_looked_at():
    class Clinging(bt.Value):
        found = ()

        def __del__(self):
            Clinging.found = y.operands

    with bt.Graph():
        x = Clinging(3.0)
        y = x * 2.0
        del x
        assert [v.data for v in Clinging.found] == [3.0, 2.0]
        again = y.operands
        assert again[0].data == 3.0
        assert again[1] is Clinging.found[1]
        Clinging.found = ()


@pytest.mark.parametrize("held", [True, False])
def test_after_reclaim(held):
    with bt.Graph() as graph:
        o, leaves = neuron(bt.Value)
        operands = o.operands if held else None
        for round_ in range(3):
            for k in range(5000):
                _ = leaves[0] * float(k)
            graph.collect()
            assert len(graph) < 2000
            picture = drawn(o)
            assert by_label(picture) == NEURON
            assert {str(id(v)) for v in leaves} < set(picture.boxes)
            if operands:
                assert o.operands[0] is operands[0], round_


def test_after_rewinds():
    with bt.Graph() as graph:
        x = bt.Value(3.0, label="x")
        for round_ in range(5):
            mark = graph.mark()
            y = x * float(round_)
            z = y + x
            first = z.operands[0]
            assert first is y
            assert z.operands[1] is x
            kept = y.operands[1]
            graph.rewind(mark)
            for name in ("operands", "_prev", "_op"):
                with pytest.raises(bt.StaleValueError):
                    getattr(z, name)
            with pytest.raises(bt.StaleValueError):
                z._backward()
            # The node after the rewind has the number of the removed one.
            again = x * 7.0
            assert again.operands[0] is x
            assert again.operands[1] is not kept
            assert again.operands[1].data == 7.0
            graph.rewind(mark)
        graph.clear()
        a = bt.Value(1.0)
        assert (a + a).operands[0] is a


def test_in_branches():
    with bt.Graph() as graph:
        x = bt.Value(3.0, label="x")
        y = x * x
        y.label = "y"
    one, two = graph.branches(2)
    pictures = {}

    def build(branch):
        with branch:
            z = y + x
            z.label = "z"
            w = z * y
            w.label = "w"
            assert z.operands == (y, x)
            assert z.operands[0] is y
            assert w._prev == {z, y}
            assert w.operands[0] is z
            pictures[branch] = w, by_label(drawn(w))

    threads = [threading.Thread(target=build, args=(branch,)) for branch in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {("x", "*"), ("*", "y"), ("y", "+"), ("x", "+"), ("+", "z"), ("z", "*"), ("y", "*"), ("*", "w")}
    assert pictures[one][1] == pictures[two][1] == expected
    # A step of a backward pass changes numbers, whereas drawing only reads.
    with one, pytest.raises(bt.BusyError):
        pictures[one][0]._backward()
    graph.join()
    for branch in (one, two):
        w = pictures[branch][0]
        assert by_label(drawn(w)) == expected
        assert w.operands[1] is y
        assert w.operands[0].operands[1] is x
    dropped = graph.branches(1)[0]
    with dropped:
        z = x + y
        assert z.operands[0] is x
    graph.drop_branches()
    with pytest.raises(bt.StaleValueError):
        _ = z.operands
    assert (x + y).operands[1] is y


def test_in_branches_of_branches():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    (outer,) = graph.branches(1)
    with outer:
        y = x * x
    with outer:
        (inner,) = outer.branches(1)
        with inner:
            z = x + y
            assert z.operands == (x, y)
            assert z.operands[0] is x
            assert z.operands[1] is y
            assert z.operands[1].operands[0] is x
        outer.join()
    graph.join()
    assert z.operands[0] is x
    assert z.operands[1] is y


def topological(root):
    """Nodes in topological order, as micrograd sorts them."""
    order, visited, todo = [], set(), [(root, False)]
    while todo:
        v, is_ready = todo.pop()
        if is_ready:
            order.append(v)
        elif v not in visited:
            visited.add(v)
            todo.append((v, True))
            todo.extend((operand, False) for operand in v._prev)
    return order


def stepped(root):
    """micrograd's backward()."""
    root.grad = 1.0
    for v in reversed(topological(root)):
        v._backward()


def test_steps_of_the_neuron_by_hand(value):
    o, (x1, x2, w1, w2, b) = neuron(value)
    o.grad = 1.0
    o._backward()
    (n,) = o.operands
    assert math.isclose(n.grad, 0.5)
    n._backward()
    both = n.operands[0]
    assert math.isclose(b.grad, 0.5)
    both._backward()
    for product in both.operands:
        product._backward()
    assert [round(v.grad, 12) for v in (x1, x2, w1, w2)] == [-1.5, 0.5, 1.0, 0.0]


def test_a_step_adds(value):
    x, y = value(3.0), value(5.0)
    z = x * y
    z.grad = 2.0
    z._backward()
    z._backward()
    assert (x.grad, y.grad, z.grad) == (20.0, 12.0, 2.0)
    x.grad = 1.0
    square = x * x
    square.grad = 1.0
    square._backward()
    assert x.grad == 7.0
    x._backward()
    assert x.grad == 7.0
    # A backward pass starts with the gradients of leaves, and with zero elsewhere.
    total = square + z
    total.backward()
    assert (x.grad, y.grad, z.grad) == (7.0 + 6.0 + 5.0, 15.0, 1.0)


def test_steps_are_a_sweep_for_random_programs(value):
    random.seed(0)
    unary = ["relu", "tanh", "exp", "sin", "softplus", "sqr", "abs"]
    for _ in range(100):
        values = [value(random.uniform(-2, 2)) for _ in range(3)]
        leaves = list(values)
        for _ in range(random.randrange(1, 25)):
            x, y = random.choice(values), random.choice(values)
            values.append(
                random.choice(
                    [
                        lambda x=x, y=y: x + y,
                        lambda x=x, y=y: x * y * 0.5,
                        lambda x=x, y=y: x - y / 3.0,
                        lambda x=x: getattr(x, random.choice(unary))().tanh(),
                        lambda x=x, y=y: bt.reduce_sum([x, y, x]),
                        lambda x=x, y=y: bt.softmax([x, y, x])[random.randrange(3)],
                        lambda x=x, y=y: bt.inner_product([x, y], [y, x]),
                        lambda x=x, y=y: bt.tanh(bt.concat(x, y))[random.randrange(2)],
                        lambda x=x, y=y: bt.max(x, y) ** 3,
                    ]
                )()
            )
        root = values[-1].tanh()
        stepped(root)
        found = [v.grad for v in leaves]
        for v in leaves:
            v.grad = 0.0
        root.backward()
        for got, expected in zip(found, [v.grad for v in leaves]):
            assert math.isclose(got, expected, rel_tol=1e-12, abs_tol=1e-12)


def test_steps_reach_parameters():
    params = bt.Parameters(dtype="float64", seed=0)
    w = params.tensor((3, 2), name="w", init="glorot")
    x = bt.Vector([1.0, -2.0], graph=bt.Graph())
    y = (w @ x).tanh()
    root = y.sum()
    stepped(root)
    steps, of_x = params.grads.tolist(), list(x.grad)
    assert any(steps)
    params.zero_grad()
    x.graph.zero_grad()
    root.backward()
    assert params.grads.tolist() == pytest.approx(steps, rel=1e-14)
    assert list(x.grad) == pytest.approx(of_x, rel=1e-14)


def test_a_micrograd_model_can_be_drawn():
    random.seed(1)
    with bt.Graph():
        model = micrograd.MLP(2, [3, 1])
        loss = model([1.0, -2.0])
        nodes, edges = walked(loss)
        assert {id(p) for p in model.parameters()} <= {id(v) for v in nodes}
        assert len({id(v) for v in nodes}) == len(nodes)
        assert all(id(tail) in {id(v) for v in nodes} for tail, _ in edges)
        stepped(loss)
        found = [p.grad for p in model.parameters()]
        model.zero_grad()
        loss.backward()
        assert [p.grad for p in model.parameters()] == pytest.approx(found)


def test_a_long_chain():
    """As many objects as nodes, which are freed when unused."""
    with bt.Graph() as graph:
        x = bt.Value(1.0)
        values = [x]
        for _ in range(20_000):
            values.append(values[-1] * 1.0)
        nodes, edges = walked(values[-1])
        assert len(nodes) == 40_001
        assert len(edges) == 40_000
        assert {id(v) for v in values} <= {id(v) for v in nodes}
        handles = graph.memory()["handles"]
        assert handles == 40_001
        del nodes, edges
        assert graph.memory()["handles"] == 20_001


def test_caches_do_not_grow():
    with bt.Graph() as graph:
        x = bt.Value(1.0)
        y = x * 2.0
        for _ in range(3000):
            _ = y.operands
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(20_000):
            z = y * 2.0
            _ = z.operands[1].data
        del z
        graph.collect()
        _ = y.operands
        gc.collect()
        assert sys.getallocatedblocks() - before < 500


def test_refused_while_recorded_and_in_use():
    def body(x):
        y = x * 2.0
        assert y.operands[0].same_node(x)
        assert y._op == "*"
        assert len(y._prev) == 2
        with pytest.raises(bt.TraceError):
            y._backward()
        return y

    assert bt.function(body)(3.0) == 6.0
    graph = bt.Graph()
    x = bt.Value(3.0, graph=graph)
    (branch,) = graph.branches(1)
    with pytest.raises(bt.BusyError):
        x._backward()
    assert x.operands == ()
    del branch
    graph.drop_branches()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float128", "float64x4", "float32"])
def test_every_dtype(dtype):
    with bt.Graph(dtype=dtype):
        x = bt.Value(3.0)
        y = x * x
        assert y.operands[0] is y.operands[1] is x
        y.grad = 1.0
        y._backward()
        n = 6.0
        assert x.grad == ((n,) * 4 if dtype.endswith("x4") else n)
