"""No kind of call keeps memory.

Each kind runs in a loop of nothing else: the next call of another kind would give back references that were put off.

The measures are the blocks that Python has allocated, the resident memory of the process, and the length of the graph.
BURTORCH_LEAK_CALLS sets how often each kind is called (100,000 in a usual run; what takes long is called for a second).
"""

from __future__ import annotations

import decimal
import gc
import io
import itertools
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import burtorch as bt

CALLS = int(os.environ.get("BURTORCH_LEAK_CALLS", "100000"))
SECONDS = CALLS / 100_000
PARTS = 5


class Right:
    """Implements reflected operators."""

    def __radd__(self, other):
        return 1.0

    __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __radd__


class Strange:
    """Not a number in any respect."""

    def __getattr__(self, name):
        raise AttributeError(name)


class Falling:
    """Raises its own exception from every method."""

    @property
    def dtype(self):
        raise LookupError("dtype")

    def __float__(self):
        raise LookupError("float")

    def __iter__(self):
        raise LookupError("iter")


class MyValue(bt.Value):
    """A subclass with attributes."""


graph = bt.Graph()
x, y = graph.value(1.5), graph.value(-2.0)
other = bt.Graph().value(1.0)
single = bt.Graph(dtype="float32").value(1.5)
half = bt.Graph(dtype="float16").value(1.5)
lanes = bt.Graph(dtype="float32x4").value([1.0, 2.0, 3.0, 4.0])
wide = bt.Graph(dtype="float128").value("1.5")
v = graph.vector([1.0, 2.0, 3.0])
params = bt.Parameters(dtype="float64", seed=0)
w = params.tensor((2, 3), name="w")
layer = bt.nn.Linear(params, 3, 2)
oracle = bt.Oracle(layer, loss="mse")
batch = np.ones((4, 3)), np.ones((4, 2))
sgd = bt.optim.SGD(params, lr=0.0)
stale = graph.value(1.0)
strange, falling, right = Strange(), Falling(), Right()
array, objects = np.array([1.0, 2.0, 3.0]), np.array([x, y], object)
f = bt.function(lambda a, b: (a * b).exp() + a)
f(1.0, 2.0)
g = bt.function(lambda u: (u * u).sum())
g(array)
bound = g.bind(np.ones(3), np.zeros(3))
primitive = bt.primitive(lambda a: 2.0 * a)
primitive.defvjp(lambda t, z, a: 2.0 * t)
number = bt.parameter(2.0)
frozen = bt.Graph()
z = frozen.value(3.0)
(branch,) = frozen.branches(1)
fixed = bt.Graph(capacity=64, fixed=True)
fixed.vector(np.ones(64))
mark_graph = bt.Graph()
m = mark_graph.value(2.0)
program = f.program
dense = bt.inner_product(v, [1.0, 2.0, 3.0])

table = np.arange(12.0).reshape(4, 3)
matrix = bt.function(lambda a: bt.tanh(a @ a.T).sum())
matrix(table)
cubes = bt.function(lambda u: (u * u * u).sum())
matrix_gradient, matrix_hessian = bt.grad(matrix), bt.hessian(cubes)
steps = bt.function(lambda u: bt.fori_loop(0, 5, lambda k, c: bt.sin(c) + k, u).sum())
rows = bt.vmap(lambda u, r: bt.softplus(-(r @ u)), in_axes=(None, 0), reduce="mean")
rows_gradient = bt.value_and_grad(rows)
of_rows = bt.Oracle(lambda r, t: (r @ params_of_rows - t) ** 2, params=bt.Parameters(dtype="float64", seed=1))
params_of_rows = of_rows.params.tensor(3, name="w")
top, permuted, natural = bt.compress.TopK(2), bt.compress.PermK(), bt.compress.Natural()
message = top.compress(array)
problem = bt.opt.logistic_regression(table, [1, -1, 1, -1], l2=0.1)
page = bt.opt.PAGE(problem, sampling=bt.opt.Nice(1), seed=0)
ef21 = bt.opt.EF21(problem, clients=2, compressor=top, seed=0)

KINDS = {
    # making Values
    "Value(float)": lambda: bt.Value(1.0),
    "Value(int)": lambda: bt.Value(1),
    "Value(label)": lambda: bt.Value(1.0, label="w"),
    "Value(positional label)": lambda: bt.Value(1.0, "w"),
    "Value(graph)": lambda: bt.Value(1.0, graph=graph),
    "Value(numpy)": lambda: bt.Value(np.float64(1.0)),
    "Value(Decimal)": lambda: wide.graph.value(decimal.Decimal("1.5")),
    "Value(text on float128)": lambda: wide.graph.value("1.25"),
    "Value(lanes)": lambda: lanes.graph.value([1.0, 2.0, 3.0, 4.0]),
    "Value(nothing)": lambda: bt.Value(),
    "Value(text)": lambda: bt.Value("text"),
    "Value(strange)": lambda: bt.Value(strange),
    "Value(falling)": lambda: bt.Value(falling),
    "Value(unknown keyword)": lambda: bt.Value(1.0, colour=1),
    "Value(data twice)": lambda: bt.Value(1.0, data=2.0),
    "Value(label of another type)": lambda: bt.Value(1.0, label=1),
    "Value(a huge int)": lambda: bt.Value(10**400),
    "Value(on a frozen graph)": lambda: bt.Value(1.0, graph=frozen),
    "Value(on a full graph)": lambda: bt.Value(1.0, graph=fixed),
    "a subclass": lambda: MyValue(1.0),
    "graph.value": lambda: graph.value(1.0),
    "graph.constant": lambda: graph.constant(1.0),
    "graph.node": lambda: graph.node(0),
    "graph.node(of none)": lambda: graph.node(10**6),
    "graph.labelled(of none)": lambda: graph.labelled("nobody"),
    "detach": lambda: x.detach(),
    # operators
    "value + value": lambda: x + y,
    "value * float": lambda: x * 2.0,
    "float - value": lambda: 2.0 - x,
    "value * int": lambda: x * 2,
    "value * huge int": lambda: x * 10**400,
    "value * bool": lambda: x * True,
    "numpy scalar * value": lambda: np.float64(2) * x,
    "numpy int * value": lambda: np.int32(2) * x,
    "value * numpy scalar": lambda: x * np.float64(2),
    "value * 0-d array": lambda: x * np.array(2.0),
    "value * array": lambda: x * array,
    "array * value": lambda: array * x,
    "value * object array": lambda: x * objects,
    "value * right": lambda: x * right,
    "value - right": lambda: x - right,
    "value ** right": lambda: x**right,
    "value + text": lambda: x + "a",
    "text + value": lambda: "a" + x,
    "value + None": lambda: x + None,
    "value * strange": lambda: x * strange,
    "value * falling": lambda: x * falling,
    "value * complex": lambda: x * 1j,
    "value * list": lambda: x * [1.0, 2.0],
    "value * list of text": lambda: x * ["a"],
    "value * Decimal": lambda: x * decimal.Decimal(2),
    "wide * Decimal": lambda: wide * decimal.Decimal(2),
    "value * Parameter": lambda: x * number,
    "value // value": lambda: x // y,
    "-value": lambda: -x,
    "abs(value)": lambda: abs(x),
    "value ** 2": lambda: x**2,
    "pow with modulus": lambda: pow(x, 2, 3),
    "values of two graphs": lambda: x + other,
    "value of a frozen graph": lambda: z * 2.0,
    "values of float32": lambda: single * single,
    "values of float16": lambda: half * 2.0,
    "lanes": lambda: lanes * lanes,
    "float128": lambda: wide * wide,
    # reading
    "data": lambda: x.data,
    "grad": lambda: x.grad,
    "data of lanes": lambda: lanes.data,
    "data of float128": lambda: wide.data,
    "set data": lambda: setattr(y, "data", -2.0),
    "set data to text": lambda: setattr(y, "data", "a"),
    "set data to numpy": lambda: setattr(y, "data", np.float64(-2.0)),
    "delete data": lambda: delattr(y, "data"),
    "set label": lambda: setattr(y, "label", "y"),
    "set label to a number": lambda: setattr(y, "label", 1),
    "label": lambda: y.label,
    "operands": lambda: dense.operands,
    "_prev": lambda: dense._prev,
    "_op": lambda: dense._op,
    "_backward": lambda: dense._backward(),
    "operands of new Values": lambda: (x * y).operands,
    "op, index, graph": lambda: (x.op, x.index, x.graph),
    "repr": lambda: repr(x),
    "repr of lanes": lambda: repr(lanes),
    "to_string": lambda: x.to_string(),
    "format": lambda: f"{x:.3f}",
    "bad format": lambda: format(x, "q"),
    "round": lambda: round(x, 1),
    "float, int, trunc": lambda: (float(x), int(x), math.trunc(x)),
    "int of nan": lambda: int(x * math.nan),
    "hash": lambda: hash(x),
    "bool": lambda: bool(x),
    "bool of lanes": lambda: bool(lanes),
    "x < y": lambda: x < y,
    "x == text": lambda: x == "a",
    "x == tuple": lambda: x == (),
    "x < text": lambda: x < "a",
    "lanes == number": lambda: lanes == 1.0,
    "lanes == text": lambda: lanes == "a",
    "lanes < lanes": lambda: lanes < lanes,
    "float128 == Decimal": lambda: wide == decimal.Decimal("1.5"),
    "same_node": lambda: x.same_node(y),
    "same_node(text)": lambda: x.same_node("a"),
    "pickle": lambda: x.__reduce__(),
    "unknown attribute": lambda: x.colour,
    # op functions
    "tanh": lambda: bt.tanh(x),
    "method": lambda: x.tanh(),
    "tanh(float)": lambda: bt.tanh(1.0),
    "tanh(vector)": lambda: bt.tanh(v),
    "tanh(text)": lambda: bt.tanh("a"),
    "tanh(strange)": lambda: bt.tanh(strange),
    "tanh()": lambda: bt.tanh(),
    "tanh(unknown keyword)": lambda: bt.tanh(x, colour=1),
    "tanh(evaluate)": lambda: bt.mul(x, 2.0, evaluate=False),
    "tanh(evaluate=1)": lambda: bt.sin(x, evaluate=1),
    "exp(evaluate), refused": lambda: bt.exp(x, evaluate=False),
    "max(value, value)": lambda: bt.max(x, y),
    "max(list)": lambda: bt.max([x, y, 1.0]),
    "max(value, text)": lambda: bt.max(x, "a"),
    "max(value, parameter)": lambda: bt.max(x, number),
    "max method with text": lambda: x.max("a"),
    "mul_by_constant": lambda: bt.mul_by_constant(x, 2.0),
    "mul_by_constant(text)": lambda: bt.mul_by_constant(x, "a"),
    "mul_by_constant(vector)": lambda: bt.mul_by_constant(v, 2.0),
    "constant method with text": lambda: x.mul_by_constant("a"),
    "reduce_sum(values)": lambda: bt.reduce_sum([x, y]),
    "reduce_sum(with a number)": lambda: bt.reduce_sum([x, 1.0]),
    "reduce_sum(vector)": lambda: bt.reduce_sum(v),
    "reduce_sum(array)": lambda: bt.reduce_sum(array),
    "reduce_sum(text)": lambda: bt.reduce_sum("a"),
    "reduce_sum(nothing)": lambda: bt.reduce_sum([]),
    "reduce_sum(falling)": lambda: bt.reduce_sum([x, falling]),
    "reduce_sum(two graphs)": lambda: bt.reduce_sum([x, other]),
    "inner_product": lambda: bt.inner_product([x, y], [1.0, 2.0]),
    "inner_product(lengths)": lambda: bt.inner_product([x], [1.0, 2.0]),
    "inner_product(tensor)": lambda: bt.inner_product(v, w[0]),
    "concat": lambda: bt.concat(v, x),
    "concat(text)": lambda: bt.concat(v, "a"),
    "where": lambda: bt.where(True, x, 0.0),
    "softmax": lambda: v.softmax(),
    "affine": lambda: layer(v),
    "np.multiply": lambda: np.multiply(x, 2.0),
    "np.exp, refused": lambda: np.exp(x),
    "np.less": lambda: np.less(x, 1.0),
    "np.multiply(out), refused": lambda: np.multiply(x, 2.0, out=np.zeros(1)),
    "math.exp": lambda: math.exp(x),
    # Vectors and graphs
    "Vector(list)": lambda: bt.Vector([1.0, 2.0]),
    "Vector(array)": lambda: bt.Vector(array),
    "Vector(text)": lambda: bt.Vector("a"),
    "vector + vector": lambda: v + v,
    "vector * text": lambda: v * "a",
    "vector @ array": lambda: v @ array,
    "vector[k]": lambda: v[1],
    "vector[a:b]": lambda: v[1:],
    "vector[out of range]": lambda: v[9],
    "vector[text]": lambda: v["a"],
    "vector.data": lambda: v.data,
    "vector.data[...]": lambda: np.asarray(v.data),
    "vector.relu": lambda: v.relu(),
    "iteration": lambda: list(v),
    "Graph": lambda: bt.Graph(),
    "Graph(unknown dtype)": lambda: bt.Graph(dtype="int"),
    "Graph(buffer)": lambda: bt.Graph(buffer=bytearray(4000)),
    "with graph": lambda: graph.__enter__() and graph.__exit__(None, None, None),
    "leaving what was not entered": lambda: graph.__exit__(None, None, None),
    "scope": lambda: mark_graph.scope(),
    "mark and rewind": lambda: mark_graph.rewind(mark_graph.mark()),
    "backward": lambda: dense.backward(),
    "backward(seed)": lambda: dense.backward(seed=2.0),
    "backward(text)": lambda: dense.backward("a"),
    "backward(unknown keyword)": lambda: dense.backward(colour=1),
    "backward of a frozen graph": lambda: z.backward(),
    "recompute": lambda: graph.recompute(dense),
    "branches": lambda: mark_graph.branches(2) and mark_graph.join(),
    "branches, dropped": lambda: mark_graph.branches(1) and mark_graph.drop_branches(),
    "values": lambda: graph.values[0:2],
    "to_dot": lambda: mark_graph.to_dot(m),
    "memory": lambda: graph.memory(),
    "no_grad": lambda: bt.no_grad().__enter__() or bt.no_grad().__exit__(None, None, None),
    # traced functions
    "f(1.0, 2.0)": lambda: f(1.0, 2.0),
    "f(1, 2)": lambda: f(1, 2),
    "f.value_and_grad": lambda: f.value_and_grad(1.0, 2.0),
    "f.grad": lambda: f.grad(1.0, 2.0),
    "f(text)": lambda: f("a", 1.0),
    "f(falling)": lambda: f(falling, 1.0),
    "f()": lambda: f(),
    "f(Value)": lambda: f(x, 2.0),
    "f.hessian": lambda: f.hessian(1.0, 2.0),
    "f.jvp": lambda: f.jvp((1.0, 2.0), (1.0, 0.0)),
    "f.map": lambda: f.map(np.ones((4, 2))),
    "f.stats": lambda: f.stats(),
    "f.program": lambda: str(f.program),
    "f.unknown": lambda: f.colour,
    "g(array)": lambda: g(array),
    "g.grad(array)": lambda: g.grad(array),
    "g(list)": lambda: g([1.0, 2.0, 3.0]),
    "bound()": lambda: bound(),
    "bound(1)": lambda: bound(1),
    "bind": lambda: g.bind(np.ones(3)),
    "bind(text)": lambda: g.bind("a"),
    "Function(text)": lambda: bt.function("a"),
    "function and call": lambda: bt.function(lambda a: a * 2.0)(1.0),
    "trace error": lambda: bt.function(lambda a: float(a))(1.0),
    "primitive(float)": lambda: primitive(1.0),
    "primitive(value)": lambda: primitive(x),
    "primitive(text)": lambda: primitive("a"),
    "new primitive": lambda: bt.primitive(lambda a: a),
    "parameter": lambda: bt.parameter(1.0) * x,
    # models
    "params.values": lambda: params.values,
    "params.values[k]": lambda: params.values[0],
    "tensor[k]": lambda: w[0],
    "tensor * value": lambda: w * x,
    "oracle": lambda: oracle(*batch),
    "oracle.loss": lambda: oracle.loss(*batch),
    "oracle(wrong)": lambda: oracle(1.0, "a"),
    "sgd.step": lambda: sgd.step(),
    "SGD(text)": lambda: bt.optim.SGD("a"),
    "Schedule": lambda: bt.optim.Schedule(sgd, "cosine", total=2),
    "Parameters": lambda: bt.Parameters(capacity=4),
    "saving to a stream": lambda: graph.save(io.BytesIO()),
    # arrays and transforms
    "matrix function": lambda: matrix(table),
    "matrix function of text": lambda: matrix("a"),
    "matrix function of objects": lambda: matrix(objects),
    "gradient by a matrix": lambda: matrix_gradient(table),
    "Hessian of a new function": lambda: bt.hessian(lambda u: (u * u).sum())(array),
    "hessian": lambda: matrix_hessian(array),
    "hvp": lambda: bt.hvp(cubes, (array,), (array,)),
    "jvp": lambda: bt.jvp(matrix, (table,), (table,)),
    "jvp(wrong shape)": lambda: bt.jvp(matrix, (table,), (array,)),
    "vjp": lambda: bt.vjp(matrix, table)[1](1.0),
    "a new function of a matrix": lambda: bt.function(lambda a: (a * 2.0).sum())(table),
    "a body with a wrong product": lambda: bt.function(lambda a: a @ a)(table),
    "loop": lambda: steps(array),
    "a loop of another type": lambda: bt.fori_loop(0, 3, lambda k, c: (c, c), 1.0),
    "scan": lambda: bt.scan(lambda c, e: (c + e, c * e), 0.0, array),
    "scan over unequal lengths": lambda: bt.scan(lambda c, e: (c, c), 0.0, (array, table)),
    "vmap": lambda: rows(array, table),
    "gradient of vmap": lambda: rows_gradient(array, table),
    "vmap of wrong shapes": lambda: rows(table, table),
    "oracle of rows": lambda: of_rows(table, [1.0, 2.0, 3.0, 4.0]),
    "oracle of wrong rows": lambda: of_rows(array, table),
    "np.exp of an array": lambda: bt.exp(table),
    # compressors and methods
    "compress": lambda: top.compress(array),
    "compress out": lambda: top.compress(array, out=message),
    "PermK": lambda: permuted.compress(array, bt.compress.Draw(1, 2, 0), n_clients=3),
    "compress NaN": lambda: natural.compress(array * np.nan, bt.compress.Draw(1, 2, 0)),
    "compress text": lambda: top.compress("a"),
    "decompress": lambda: message.decompress(),
    "TopK(wrong)": lambda: bt.compress.TopK(-1),
    "problem.grad": lambda: problem.grad(array, [0, 2]),
    "problem.grad(of none)": lambda: problem.grad(array, [7]),
    "problem.loss(text)": lambda: problem.loss("a"),
    "PAGE step": lambda: page.step(),
    "EF21 step": lambda: ef21.step(),
    "PAGE(wrong)": lambda: bt.opt.PAGE(problem, sampling=bt.opt.Nice(9)),
    "FiniteSum of text": lambda: bt.opt.logistic_regression("a", "b"),
}


def resident():
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(call, n, seconds):
    """Makes `n` calls, or calls for this many seconds, and only reads the clock besides. Returns the number of
    calls."""
    end, done = time.perf_counter() + seconds, 0
    while done < n and time.perf_counter() < end:
        for _ in itertools.repeat(None, min(n - done, 200)):
            try:  # noqa: SIM105 (a context manager would cost as much as the call)
                call()
            except Exception:
                pass
        done += min(n - done, 200)
    return done


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_call_keeps_nothing(name):
    call = KINDS[name]
    gc.collect()
    # The default graph grows in proportion to what it has held: a large graph of an earlier test counts as old nodes.
    bt.Value(1.0).graph.collect()
    run(call, max(CALLS // 20, 2000), SECONDS / 4)
    gc.collect()
    run(call, 2000, SECONDS / 4)
    gc.disable()
    try:
        memory, grown, n = 0, [], 0
        for part in range(PARTS):
            if part == 1:
                # The first part may touch code and memory for the first time.
                memory = resident()
            blocks = sys.getallocatedblocks()
            n += run(call, CALLS // PARTS, SECONDS / PARTS)
            # Cycles, such as a traceback and its frame, are collected.
            gc.collect()
            grown.append(sys.getallocatedblocks() - blocks)
        memory = resident() - memory
    finally:
        gc.enable()
    # The interpreter fills caches such as free lists in one part; a leak shows in all.
    assert min(grown) < 20, f"{grown} blocks in {PARTS} parts of {n} calls"
    assert memory < (1 << 20) + 4 * n, f"{memory} bytes after {n} calls"
    assert len(graph) < 20_000


def test_there_are_a_hundred_kinds():
    assert len(KINDS) >= 100
