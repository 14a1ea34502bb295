"""Public calls, each of which is run with every one of its allocations refused: expressions in scenes of names.

Run as ``refused_calls.py SCENE``: it prints ``at: CALL`` before it tries a call, so that the end of the process names one, and
``wrong: ...`` for what is not as it should be. Needs an extension that was built with the feature ``refuse-allocations``.
"""

# ruff: noqa: C408, E501, F401, N806, SIM905
from __future__ import annotations

import array
import copy
import dataclasses
import decimal
import gc
import itertools
import os
import pickle
import random
import sys
import tempfile
import warnings
from contextlib import suppress

import numpy as np

import burtorch as bt
from burtorch import micrograd

UNARY = "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh digamma elu erf erfc exp exp2 exp10 expm1 floor gelu inv inv_sqrt leaky_relu lgamma log log1p log2 log10 ndtr neg neg_log pow3 relu round selu sigmoid sign silu sin sinh softplus softsign sqr sqrt tan tanh".split()
BINARY = "add add_squares atan2 div floor_divide hypot logaddexp max mean mean_squares min mul negative_mean pow remainder sub xlogy".split()
REDUCTIONS = "logsumexp max mean min norm2 reduce_max reduce_mean reduce_mean_and_mean_squares reduce_mean_squares reduce_min reduce_mul reduce_negative_mean reduce_sub reduce_sum reduce_sum_of_squares softmax log_softmax variance variance_biased concat stack".split()

CALLS = {
    "arrays": """
        f(a, b)
        f.grad(a, b)
        f.value_and_grad(a, b)
        fb(a, b)
        fb(-abs(a), b)
        fw(a)
        gradient(a, b)
        gradient(a.astype("float32"), b.astype("float32"))
        hessian(x)
        bt.function(matrix)(a, b)
        bt.function(linear)(a, b)
        bt.grad(linear)(a, b)
        bt.grad(matrix)(a, b)
        bt.value_and_grad(matrix)(a, b)
        bt.jacobian(lambda x: bt.sin(x) * x[0])(x)
        bt.hessian(square)(x)
        bt.hvp(square)(x, x)
        bt.jvp(square, (x,), (x,))
        bt.vjp(square, x)[1](1.0)
        bt.vmap(square)(rows)
        bt.vmap(bt.grad(square))(rows)
        bt.value_and_grad(bt.vmap(squared_distance, (None, 0), reduce="mean"))(x, rows)
        bt.vmap(bt.value_and_grad(squared_distance), (None, 0), reduce="sum")(x, rows)
        bt.grad(lambda x: (bt.grad(square)(x) ** 2).sum())(x)
        bt.concatenate([a, b.T])
        bt.function(np.sort)(a)
        bt.grad(lambda x: (np.sort(x) ** 2).sum() + np.median(x))(a)
        f.grad(a, b, argnums=0, out=np.zeros(a.shape))
        f.value_and_grad(a, b, out=(np.zeros(a.shape), np.zeros(b.shape)))
        str(f.program)
        pickle.dumps(f)
        pickle.dumps(fw)
        pickle.loads(pickled)(a, b)
        copy.deepcopy(fw)(a)
        bt.grad(pickle.loads(pickled))(a, b)
        bt.einsum("ij,jk->ik", a, b)
        bt.outer(x, x)
        bt.matmul(a, b)
        loop(x)
        bt.grad(loop)(x)
        bt.fori_loop(0, 6, turn, x)
        bt.while_loop(lambda c: c[0] < 4.0, lambda c: c * 1.5 + 1.0, x)
        bt.scan(step, 0.5, x)
        bt.grad(lambda x: bt.scan(step, x[0], x)[0])(x)
        bt.cond(True, bt.sin, bt.cos, 0.5)
        of_rows(rows, [0.5, 1.5, 2.5])
        of_rows.loss(rows, [0.5, 1.5, 2.5])
        of_rows.per_sample_grads(rows, [0.5, 1.5, 2.5])
        """.strip().split("\n        "),
    "arrays of a graph": """
        g.array(numbers)
        bt.array([[1.0, 2.0], [3.0, 4.0]])
        a + b.T
        2.0 * a
        a / (1.0 + a * a)
        a @ b
        -a
        a ** 2.0
        a > 0.5
        np.exp(a)
        np.tanh(a) * a
        bt.softmax(a, axis=1)
        bt.layer_norm(a)
        a.sum()
        a.mean(axis=0)
        a.max(axis=1)
        a[1:, ::2]
        a[[0, 2, 0]]
        a[a > 0.0]
        a.T.reshape(-1)
        np.concatenate([a, a])
        np.where(a > 0.5, a, 0.0)
        np.cumsum(a, axis=1)
        np.einsum("ij,jk->ik", a, b)
        np.linalg.solve(b @ a + 9.0 * np.eye(6), b)
        a @ w
        a.data
        a.grad
        a.detach()
        bt.stop_gradient(a)
        repr(a)
        root.backward()
        deep.backward()
        g.zero_grad()
        bt.grad(square)(a)
        f(a)
        loop(a)
        bt.scan(step, 0.5, a.reshape(-1))
        p.values
        """,
    "methods": """
        top.compress(vector)
        top.compress(vector, out=message)
        bt.compress.RandK(20).compress(vector, draw)
        bt.compress.PermK().compress(vector, draw, n_clients=4)
        bt.compress.QSGD(4).compress(vector, draw)
        both.compress(vector, draw)
        both.omega(400)
        message.decompress()
        message.decompress(out)
        message.to_bytes()
        bt.compress.Message.from_bytes(wire)
        bt.opt.logistic_regression(X, y, l2=0.1)
        bt.opt.least_squares(X, y)
        bt.opt.FiniteSum(of_sample, 12, 4)
        problem.loss(point)
        problem.grad(point)
        problem.grad(point, [0, 3, 5])
        bt.opt.smoothness(problem)
        gd.step()
        sgd.step()
        lsvrg.step()
        saga.step()
        page.step()
        diana.step()
        marina.step()
        ef21.step()
        scaffnew.step()
        fedavg.step()
        fedbuff.step()
        lists.step()
        bt.opt.FedAvg([bt.opt.Client(problem), bt.opt.Client(problem)], step=0.1)
        page.state_dict()
        saga.load_state_dict(saga.state_dict())
        bt.opt.load_libsvm(path_of_data)
        bt.opt.make_logistic(30, 4, seed=1)
        bt.opt.split(12, 3, seed=1)
        """,
    "graph": [
        *(f"bt.{op}(x)" for op in UNARY),
        *(f"bt.{op}(v)" for op in UNARY),
        *(f"bt.{op}(x, y)" for op in BINARY),
        *(f"bt.{op}(v, {'w' if k % 2 else '2.0'})" for k, op in enumerate(BINARY)),
        *(f"bt.{op}({'[x, y] * 50' if k % 2 else 'v'})" for k, op in enumerate(REDUCTIONS)),
        *(f"x {op} y" for op in ("+", "-", "*", "/", "**", "//", "%")),
        *(f"x {op} 1.5" for op in ("+", "-", "*", "/", "**", "//", "%")),
        *(f"v {op} w" for op in ("+", "-", "*", "/", "**", "//", "%", "@")),
        *(f"v {op} numbers" for op in ("+", "*", "@")),
        *"""
        -x
        abs(x)
        divmod(x, y)
        round(x, 1)
        f"{x:.3f} {x!r}"
        hash(x)
        x == y
        x.to_string()
        x.operands
        root.operands
        x.detach()
        bt.Value(2.0, "a label that is long enough for a list of its own", graph=g)
        g.value(2.0)
        g.constant(2.0)
        bt.Vector(numbers, graph=g)
        bt.Vector(np.arange(300.0), graph=g)
        bt.Vector(array.array("f", [1.0] * 300), graph=g)
        bt.Vector((float(k) for k in range(300)), graph=g)
        g.vector([x, y] * 40)
        list(v)
        v[3]
        v[3:30]
        v[::-1]
        v.data
        v.grad
        repr(v)
        np.asarray(v.data)
        v.data.tolist()
        bt.inner_product(v, w)
        bt.inner_product(v, numbers)
        bt.inner_product_with_bias(v, w, x)
        bt.concat(v, [x, y], w, 1.0)
        bt.stack([x, y, 2.0] * 20)
        bt.stop_gradient(v)
        bt.where([True, False] * 20, v, w)
        bt.clamp(v, -0.2, 0.2)
        bt.softmax_cross_entropy(v, 3)
        bt.softmax_cross_entropy(v, w)
        root.backward()
        g.backward(root, 2.0)
        g.backward(root, skip_zero_adjoints=True)
        g.recompute(root)
        g.find_nonfinite()
        g.zero_grad()
        g.collect()
        g.memory()
        g.mark()
        g.scope()
        with_scope(g, v)
        g.values[5]
        list(g.values)
        memoryview(g.values)
        g.values[2:9]
        g.node(3)
        g.labelled("x")
        set_label(y, "some label that is new, and longer than a short text")
        set_values(g, 2, 12, numbers[:10])
        set_data(v, numbers[:40])
        set_data(x, 3.0)
        set_grad(v, numbers[:40])
        g.to_dot()
        g.to_dot(root)
        g.to_svg()
        g.to_html()
        g._repr_svg_()
        g.to_dot(max_nodes=5)
        g.to_bytes()
        g.to_bytes(what="both")
        g.raw_bytes()
        g.raw_bytes([x, y, root])
        g.load_raw(raw)
        g.load(saved)
        bt.load_graph(saved)
        bt.load_graph(saved, reclaim=True)
        pickle.dumps(g)
        pickle.loads(pickled)
        copy.deepcopy(g)
        g.save(path)
        g.save_raw(path)
        g.save_raw(path, [x, y])
        g.load(path_of_graph)
        bt.load_graph(path_of_graph)
        g.load_raw(path_of_raw)
        g.load_raw(path_of_raw, mmap=True)
        g.clear()
        g.rewind(mark)
        bt.check_grads(lambda a: (a * a).sum(), numbers[:5])
        bt.Graph()
        bt.Graph("float32", capacity=1000)
        bt.Graph(capacity=1000, fixed=True)
        bt.Graph(buffer=bytearray(100_000))
        bt.bytes_needed(1000)
        no_grad(g, x)
        unevaluated(g, x)
        bt.exp(v, evaluate=False)
        np.exp(x)
        np.exp(v)
        np.float64(2.0) * x
        np.ones(40) * v
        """.strip().split("\n        "),
    ],
    "dtypes": """
        f32 * 2.0
        bt.exp(v32)
        v32 @ v32
        v32.sum().backward()
        v32.data
        f16 * f16
        bt.exp(v16)
        v16.data
        f128 * f128
        bt.exp(v128)
        v128.data
        f128.data
        f128.to_string()
        (f128 * 2).backward()
        bt.Value("0.123456789012345678901234567890", graph=f128.graph)
        lanes * 2.0
        bt.exp(vlanes)
        lanes.data
        vlanes.data
        lanes.backward()
        bt.Value([1.0, 2.0, 3.0, 4.0], graph=lanes.graph)
        bt.Vector(decimals, graph=f128.graph)
        bt.Graph("float16")
        bt.Graph("float64x4")
        bt.Graph("float128")
        fixed * 2.0
        fixed.graph.vector(numbers[:10])
        """,
    "branches": """
        g.branches(3)
        [b.value(1.0).data for b in g.branches(3)]
        grow(g, x)
        grow(g, v)
        grow_twice(g, v)
        nested(g, x)
        dropped(g, x)
        bt.parallel(lambda k: x * k, range(5), g, threads=1)
        bt.parallel(lambda k: x * k, range(5), g, threads=3)
        bt.parallel(lambda k: bt.exp(v * k), range(4), g, threads=2)
        bt.parallel(lambda k: bt.Vector([k + 0.5] * 500).sum(), range(6), g, threads=4)
        bt.parallel(lambda k: layer(v[:5]), range(3), g, threads=2)
        """,
    "functions": """
        bt.function(body)(point)
        bt.function(body).grad(point)
        bt.function(body).value_and_grad(point)
        bt.function(body)(np.array(point))
        bt.function(body).grad(np.array(point))
        bt.function(body, dtype="float32")(point)
        bt.function(body, optimize="fast").grad(point)
        bt.function(vector).jacobian(point)
        bt.function(body).hessian(point)
        bt.function(body).hessian(np.array(point))
        bt.function(vector).jacobian(np.array(point))
        bt.function(body).hessian_sparsity(np.array(point))
        bt.function(vector).jacobian_sparsity(np.array(point))
        bt.function(body).sparse_hessian(np.array(point))
        bt.function(vector).sparse_jacobian(np.array(point))
        bt.function(body).hvp(point, point)
        bt.function(vector).jvp(point, point)
        bt.function(vector).vjp(point, point)
        bt.function(body).map(rows)
        bt.function(body).map_value_and_grad(rows)
        bt.function(body).map_value_and_grad(rows, threads=2)
        bt.function(branchy)(0.5)
        bt.function(branchy).grad(-0.5)
        bt.function(tree)({"a": 1.0, "b": [2.0, 3.0]})
        bt.function(tree).grad({"a": 1.0, "b": [2.0, 3.0]})
        bt.function(static)(1.0, k=3)
        bt.function(large)(numbers)
        bt.function(large).grad(numbers)
        bt.trace(body, point)
        bt.trace(body, point).program.dot()
        f(point)
        f.grad(point)
        f.value_and_grad(point)
        f(array_point)
        f.grad(array_point)
        f.hessian(array_point)
        f.hvp(array_point, array_point)
        f.sparse_hessian(array_point)
        f.map(rows)
        f.map(rows, threads=3)
        f.map_value_and_grad(rows)
        f.program
        f.program.dot()
        f.program.op_counts
        f.stats()
        f.audit()
        f.forget()
        f.bind(array_point)()
        f.bind(array_point, np.zeros(6))()
        fv.jacobian(array_point)
        fv.sparse_jacobian(array_point)
        fv.jvp(array_point, array_point)
        fv.vjp(array_point, array_point)
        f([a, b, a, b, a, b])
        f(bt.stack([a, b, a, b, a, b]))
        fp(point)
        fp.grad(point)
        pickle.dumps(f)
        pickle.loads(pickled_function)(point)
        copy.deepcopy(f)(point)
        f.save(path)
        bt.load_function(path_of_function)(point)
        bt.load_function(path_of_function).grad(array_point)
        bt.parameter(2.0)
        bt.parameter(2.0) * 3.0
        bt.function(lambda x: bt.parameter(2.0) * x)(1.0)
        bt.function(with_parameter)(1.0)
        bt.primitive(lambda x: x * 2.0)
        primitive(2.0)
        bt.function(lambda x: primitive(x) * x)(2.0)
        bt.function(lambda x: primitive(x) * x).grad(2.0)
        primitive(a)
        bt.function(wrong)(1.0)
        """,
    "models": """
        bt.Parameters("float64", seed=3)
        P.tensor((3, 4))
        P.tensor((3, 4), "a name that is new", "he")
        P.tensor(1000, None, 0.5, False)
        P.named("weights")
        P.names
        P.values
        list(P.values)
        np.asarray(P.grads)
        P.values.tolist()
        P.values[2:9]
        P.freeze(W)
        P.unfreeze(W)
        P.freeze(W[1])
        P.zero_grad()
        P.find_nonfinite()
        P.to_bytes()
        P.to_bytes("both")
        P.save(path)
        P.load(saved_parameters)
        bt.load_parameters(saved_parameters)
        bt.load_parameters(path_of_parameters)
        pickle.dumps(P)
        copy.deepcopy(P)
        W.values
        W[1]
        W[1, 2]
        W[:, 1]
        W @ v
        W + 1.0
        bt.exp(W)
        bt.affine(W, v)
        bt.affine(W, v, B, "tanh")
        bt.gather(W, [0, 2, 1])
        bt.rms_norm(v, B5)
        bt.nn.Linear(P, 6, 4)
        bt.nn.Linear(P, 6, 4)(v6)
        linear(v)
        linear([0.1] * 5)
        bt.nn.MLP(P, [5, 4, 3])
        mlp(v)
        mlp([0.1] * 5)
        mlp.save(path)
        mlp.load(path_of_mlp)
        bt.nn.load_model(path_of_mlp)
        bt.nn.CharMLP(P, 5, 3, 4, 6)
        char.logits([0, 1, 2])
        char.save(path, "abcde")
        bt.nn.GPT(P, 7, 4, 1, 2, 4)
        gpt.logits([0, 1, 2])
        gpt.named_tensors()
        gpt.save(path, "abcdefg")
        own(v)
        own.state_dict()
        own.load_state_dict(state)
        own.save(path)
        list(own.named_parameters())
        bt.nn.Embedding(P, 5, 4)([0, 1])
        block(embedding([0, 1, 2])).rows()
        block(embedding([0, 1, 2])).cross_entropy([1, 2, 3])
        bt.nn.Neuron(P, 3)([0.1, 0.2, 0.3])
        bt.memory(mlp)
        micrograd.MLP(2, [3, 1])([1.0, 2.0])
        small([1.0, 2.0])
        small.zero_grad()
        bt.nn.load_model(path_of_mlp)
        bt.Value(1.0).backward()
        """,
    "training": """
        bt.Oracle(char)
        oracle(contexts, targets)
        oracle.grad(contexts, targets)
        oracle.loss(contexts, targets)
        oracle.losses(contexts, targets)
        oracle.per_sample_grads(contexts, targets)
        oracle.per_sample_grad_norms(contexts, targets)
        oracle.per_sample(contexts, targets, lambda k, loss, grad: None)
        oracle.step(contexts, targets, 0.1)
        oracle.memory()
        oracle(contexts, targets, at=[0, 2, 1])
        bt.Oracle(char, threads=3)(contexts, targets)
        bt.Oracle(char)(contexts, targets, wanted=[1, 5, 9])
        bt.Oracle(char, threads=2).grad(contexts, targets, wanted=range(3, 40))
        bt.Oracle(char)(contexts, targets, deadline=60.0, on_stop="partial")
        bt.Oracle(char)(contexts, targets, compress=bt.compress.RandK(3), draw=bt.compress.Draw(1))
        bt.Oracle(char)(contexts, targets, random_backward=0.5, draw=bt.compress.Draw(1))
        bt.Oracle(gpt, threads=2)(windows, windows_after, random_backward=0.5, draw=bt.compress.Draw(1))
        bt.Oracle(char).stream(contexts, targets, lambda part, gradient: None)
        bt.Oracle(char, threads=2).stream(contexts, targets, lambda part, gradient: None, keep=False)
        bt.Oracle(gpt).stream(windows[:1], windows_after[:1], lambda part, gradient: None, keep=False)
        bt.Oracle(char).subset([1, 5, 9])
        bt.Oracle(char, lanes=4)(contexts, targets)
        bt.Oracle(char, lanes=8, threads=2).losses(contexts, targets)
        bt.Oracle(gpt)(windows, windows_after)
        bt.Oracle(gpt, threads=2).per_sample_grads(windows, windows_after)
        bt.Oracle(mlp, loss="mse")(inputs, outputs)
        bt.Oracle(mlp, loss="cross_entropy").losses(inputs, classes)
        bt.Oracle(linear, loss="mse", lanes=4).step(inputs, outputs, 0.1)
        bt.Oracle(loss_of, params=P)(inputs, outputs)
        bt.Oracle(loss_of, params=P).per_sample_grad_norms(inputs, outputs)
        bt.Oracle(loss_of, params=P, threads=2).losses(inputs, outputs)
        own_oracle(inputs, outputs)
        own_oracle.step(inputs, outputs, 0.1)
        bt._core.sample_loss(char, contexts[0], targets[0])
        bt.optim.SGD(P, lr=0.1, momentum=0.9)
        bt.optim.Adam(P)
        bt.optim.AdamW(mlp)
        bt.optim.SGD([a, b], lr=0.1)
        sgd.step()
        sgd_of_values.step()
        adam.step()
        adam.zero_grad()
        adam.save_state()
        adam.load_state(adam_state)
        adam_of_part.step()
        adamw.step()
        bt.optim.clip_grad_norm(Q, 0.1)
        bt.optim.clip_grad_norm(mlp, 0.1)
        bt.optim.clip_grad_norm([a, b], 0.1)
        bt.optim.Schedule(sgd, "cosine", total=10)
        schedule.step()
        bt.text.WordContexts(words, 3)
        word_contexts.batch(4)
        word_contexts.train(0, 5)
        word_contexts.heldout(0, 1)
        word_contexts.save_state()
        word_contexts.load_state(word_state)
        word_contexts.batch(4)[0].tolist()
        bt.text.TextWindows(text, 4)
        text_windows.batch(4)
        text_windows.train(0, 3)
        text_windows.save_state()
        bt.text.sample(char, alphabet, 2, seed=1)
        bt.text.generate(gpt, "abcdefg", 5, prompt="a")
        bt.data.default_words()
        bt.viz.heat_map_script([[1.0, 2.0], [3.0, 4.0]], ["a", "b"])
        bt.viz.plot_script(lambda x: x * x, 0.0, 1.0, 9)
        bt.memory(char, adam, (contexts, targets))
        bt.system.cpu_level()
        bt._core.available_cpu_levels()
        bt._core.ops()
        """,
}
CALLS = {scene: rows.split("\n") if isinstance(rows, str) else rows for scene, rows in CALLS.items()}
CALLS = {scene: [row.strip() for row in rows if row.strip()] for scene, rows in CALLS.items()}

FOLDER = tempfile.mkdtemp()
NUMBERS = [0.01 * k + 0.1 for k in range(300)]


def filled_graph(dtype="float64"):
    """A graph that is full, so that the next node needs memory."""
    graph = bt.Graph(dtype, reclaim=False)
    names = {"g": graph, "x": bt.Value(0.5, "x", graph=graph), "y": graph.value(0.25), "mark": graph.mark()}
    names["v"] = graph.vector(NUMBERS[:40])
    names["w"] = graph.vector(NUMBERS[40:80])
    root = bt.sin(names["v"] * names["x"]).sum() * names["y"] + names["w"] @ names["v"]
    names["root"] = root
    root.backward()
    while len(graph) < graph.capacity:
        graph.value(0.0)
    return names


def with_scope(g, v):
    with g.scope():
        return bt.exp(v).sum().data


def no_grad(g, x):
    with bt.no_grad(g):
        return (x * 2.0).data


def unevaluated(g, x):
    return bt.exp(x, evaluate=False).data


def set_label(value, label):
    value.label = label


def set_values(g, first, last, numbers):
    g.values[first:last] = numbers


def set_data(value, numbers):
    value.data = numbers


def set_grad(value, numbers):
    value.grad = numbers


def graph():
    names = filled_graph()
    g = names["g"]
    names.update(numbers=NUMBERS, raw=g.raw_bytes(), saved=g.to_bytes(), pickled=pickle.dumps(g))
    for name, save in (("graph", g.save), ("raw", g.save_raw)):
        names[f"path_of_{name}"] = os.path.join(FOLDER, name)
        save(names[f"path_of_{name}"])
    return names


def dtypes():
    names = {"g": bt.Graph(), "numbers": NUMBERS, "decimals": [decimal.Decimal(k) / 7 for k in range(40)]}
    for name, dtype in (("f32", "float32"), ("f16", "float16"), ("f128", "float128"), ("lanes", "float64x4")):
        graph = bt.Graph(dtype, reclaim=False)
        names[name] = graph.value(0.5)
        names["v" + name.removeprefix("f")] = graph.vector(NUMBERS[:40])
        while len(graph) < graph.capacity:
            graph.value(0.0)
    names["fixed"] = bt.Graph(capacity=40, fixed=True).value(0.5)
    return names


N_REFUSED = [0]


def grant():
    """Stops refusing: cleaning up after a refusal is not tested."""
    N_REFUSED[0] += bt._core._refuse()


def grow(g, x):
    branches = g.branches(3)
    try:
        made = []
        for k, branch in enumerate(branches):
            with branch:
                y = bt.exp(x * (k + 1.0))
                made.append(y if isinstance(y, bt.Value) else y.sum())
        g.join()
        return made
    except BaseException:
        grant()
        with suppress(ValueError):
            g.drop_branches()
        raise


def grow_twice(g, v):
    for _ in range(2):
        mark = g.mark()
        made = [y.data for y in grow(g, v)]
        g.rewind(mark)
    return made


def nested(g, x):
    branches = []
    try:
        branches = g.branches(2)
        inner = branches[0].branches(2)
        with inner[1]:
            y = x * 2.0
        branches[0].join()
        g.join()
        return y
    except BaseException:
        grant()
        for graph in [*branches[:1], g]:
            with suppress(ValueError, bt.BusyError):
                graph.drop_branches()
        raise


def dropped(g, x):
    branches = g.branches(2)
    try:
        with branches[1]:
            bt.exp(x)
    finally:
        g.drop_branches()


def branches():
    names = filled_graph()
    params = bt.Parameters("float64", seed=1)
    return {**names, "layer": bt.nn.Linear(params, 5, 3), "params": params}


def body(x):
    return sum(bt.exp(a * b) for a, b in itertools.pairwise(x)) + bt.sin(x[0]) / x[1]


def vector(x):
    return [bt.exp(a * b) - a for a, b in zip(x, [*x[1:], x[0]])]


def branchy(x):
    return x * 2.0 if x > 0 else bt.sin(x)


def tree(x):
    return x["a"] * x["b"][0] + bt.exp(x["b"][1])


def static(x, k):
    for _ in range(k):
        x = bt.sin(x)
    return x


def large(x):
    y = list(x)
    for _ in range(3):
        y = [bt.sin(a) * b + a for a, b in zip(y, [*y[1:], y[0]])]
    return bt.reduce_sum(y)


SCALE = bt.parameter(2.0)


def with_parameter(x):
    return SCALE * x


def wrong(x):
    return "no number" if not isinstance(x, str) else x


def functions():
    f, fv, fp = bt.function(body), bt.function(vector), bt.function(with_parameter_rows)
    point = [0.1 * k + 0.2 for k in range(6)]
    for call in (f, fv, fp):
        call(point)
    f.grad(np.array(point))
    primitive = bt.primitive(lambda x: x * x)
    primitive.defvjp(lambda g, y, x: g * 2.0 * x)
    names = {"f": f, "fv": fv, "fp": fp, "point": point, "array_point": np.array(point), "numbers": NUMBERS[:60]}
    names.update(rows=np.array([point] * 20), primitive=primitive, pickled_function=pickle.dumps(f))
    names["path_of_function"] = os.path.join(FOLDER, "function")
    f.save(names["path_of_function"])
    g = names["g"] = bt.Graph(reclaim=False)
    return {**names, "a": g.value(0.3), "b": g.value(0.4)}


def matrix(a, b):
    z = bt.exp(a @ b / 9.0)
    return bt.where(z > 1.0, z, bt.sin(a[:, :4] * b[:4])).sum() + np.concatenate([a, b.T]).mean()


def linear(a, b):
    return np.linalg.solve(b @ a + 9.0 * np.eye(6), b[:, 0]).max()


def array_branch(a, b):
    return (a * a).sum() if a[0, 0] > 0.0 else b.sum()


def with_tensor(a, w):
    return bt.softmax(a @ w, axis=1).std()


def square(x):
    return (x * x * bt.sin(x)).sum()


def squared_distance(x, row):
    return ((x - row) ** 2).sum() * (x @ row)


def arrays():
    rng = np.random.default_rng(1)
    names = {
        "a": rng.normal(size=(4, 6)),
        "b": rng.normal(size=(6, 4)),
        "x": rng.normal(size=5),
        "p": bt.Parameters("float64", seed=1),
    }
    names["g"] = bt.Graph()
    names["w"] = names["p"].tensor((6, 3), init="he", name="w")
    tensor = names["w"]
    names.update(f=bt.function(matrix), fb=bt.function(array_branch), fw=bt.function(lambda a: with_tensor(a, tensor)))
    names.update(gradient=bt.grad(matrix, argnums=(0, 1)), hessian=bt.hessian(square), rows=rng.normal(size=(3, 5)))
    for call in ("f", "fb", "gradient"):
        names[call](names["a"], names["b"])
    names["fw"](names["a"])
    names["pickled"] = pickle.dumps(names["f"])
    part = bt.Parameters("float64", seed=3)
    v = part.tensor(5, name="v")
    names.update(of_rows=bt.Oracle(lambda x, y: (x @ v - y) ** 2, params=part), part=part)
    return names


def arrays_of_a_graph():
    rng = np.random.default_rng(1)
    g, p = bt.Graph(), bt.Parameters("float64", seed=1)
    w, numbers = p.tensor((6, 3), init="he", name="w"), rng.normal(size=(4, 6))
    a, b = g.array(numbers), g.array(rng.normal(size=(6, 4)))
    root = (np.tanh(a @ b) * 2.0).sum()
    deep = a
    for _ in range(5):
        deep = np.sin(deep) * a + deep
    deep = bt.softmax(deep @ w, axis=1).std()
    f = bt.function(square)
    f(numbers)
    return dict(g=g, p=p, w=w, numbers=numbers, a=a, b=b, root=root, deep=deep, f=f)


def turn(k, c):
    return bt.sin(c) + k


def loop(x):
    return bt.fori_loop(0, 6, turn, x).sum()


def step(c, x):
    return c * x + bt.sin(c), c


def of_sample(x, i):
    return bt.sin(x * (1.0 + i)).sum()


def methods():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(12, 4)), np.sign(rng.normal(size=12))
    problem, top, vector = bt.opt.logistic_regression(X, y, l2=0.1), bt.compress.TopK(2), rng.normal(size=400)
    names = dict(X=X, y=y, problem=problem, top=top, vector=vector, point=np.ones(4), out=np.zeros(400))
    names.update(draw=bt.compress.Draw(1, 2, 0), message=top.compress(vector), g=bt.Graph())
    names.update(wire=names["message"].to_bytes())
    names.update(both=bt.compress.Compose(bt.compress.RandK(40), bt.compress.Natural()))
    finite, nice = dict(seed=0, x0=np.ones(4)), dict(sampling=bt.opt.Nice(2))
    clients = dict(clients=3, **finite)
    names.update(gd=bt.opt.GD(problem, **finite), sgd=bt.opt.SGD(problem, **nice, **finite))
    names.update(lsvrg=bt.opt.LSVRG(problem, **nice, **finite), saga=bt.opt.SAGA(problem, **finite))
    names.update(page=bt.opt.PAGE(problem, **nice, **finite), scaffnew=bt.opt.Scaffnew(problem, **clients))
    rand = bt.compress.RandK(2)
    names.update(
        diana=bt.opt.DIANA(problem, compressor=rand, **clients),
        marina=bt.opt.MARINA(problem, compressor=rand, **clients),
    )
    names.update(ef21=bt.opt.EF21(problem, compressor=top, **clients), fedavg=bt.opt.FedAvg(problem, **clients))
    own = [bt.opt.Client(bt.opt.least_squares(X, y, l2=l2)) for l2 in (0.1, 0.2)]
    names["lists"] = bt.opt.FedAvg(own, step=0.1, **finite)
    delays = bt.opt.Delays([1.0, 2.0, 3.0])
    names["fedbuff"] = bt.opt.FedBuff(problem, delays=delays, buffer=2, step=0.1, **clients)
    names["path_of_data"] = os.path.join(FOLDER, "data")
    with open(names["path_of_data"], "w") as file:
        file.write("1 1:0.5 3:2\n-1 2:1.5\n" * 20)
    return names


def with_parameter_rows(x):
    return SCALE * x[0] + x[1]


class Own(bt.nn.Module):
    def __init__(self, params):
        self.first = bt.nn.Linear(params, 5, 4, activation="tanh")
        self.norm = params.tensor(4, init=1.0)

    def __call__(self, x):
        return bt.rms_norm(self.first(x), self.norm)


def models():
    P = bt.Parameters("float64", seed=1)
    W, B, B5 = P.tensor((3, 5), "weights", "he"), P.tensor(3), P.tensor(5, init=1.0)
    linear, mlp = bt.nn.Linear(P, 5, 3), bt.nn.MLP(P, [5, 4, 3])
    own, embedding = Own(P), bt.nn.Embedding(P, 5, 4)
    random.seed(1)
    g = bt.Graph(reclaim=False)
    names = {"P": P, "W": W, "B": B, "B5": B5, "linear": linear, "mlp": mlp, "own": own, "embedding": embedding, "g": g}
    names.update(char=bt.nn.CharMLP(P, 5, 3, 4, 6), gpt=bt.nn.GPT(P, 7, 4, 1, 2, 4), block=bt.nn.Block(P, 4, 2, 2))
    names.update(
        v=g.vector(NUMBERS[:5]), v6=g.vector(NUMBERS[:6]), state=own.state_dict(), saved_parameters=P.to_bytes()
    )
    names.update(small=micrograd.MLP(2, [3, 1]))
    for name, save in (("parameters", P.save), ("mlp", mlp.save)):
        names[f"path_of_{name}"] = os.path.join(FOLDER, name)
        save(names[f"path_of_{name}"])
    return names


def training():
    words = ["anna", "hanna", "ana", "nana", "otto", "emma"] * 3
    word_contexts = bt.text.WordContexts(words, 3, seed=1)
    text_windows = bt.text.TextWindows("abcdefg" * 20, 4, seed=1)
    P = bt.Parameters("float64", seed=1)
    char = bt.nn.CharMLP(P, len(word_contexts.vocabulary), 3, 4, 6)
    gpt, mlp, linear = bt.nn.GPT(P, 7, 4, 1, 2, 4), bt.nn.MLP(P, [5, 4, 3]), bt.nn.Linear(P, 5, 3)
    contexts, targets = word_contexts.batch(6)
    windows, windows_after = text_windows.batch(3)
    inputs, outputs = [NUMBERS[k : k + 5] for k in range(4)], [NUMBERS[k : k + 3] for k in range(4)]

    def loss_of(x, y):
        return bt.reduce_mean_squares(mlp(x) - y)

    oracle, own_oracle = bt.Oracle(char), bt.Oracle(loss_of, params=P)
    oracle(contexts, targets)
    own_oracle(inputs, outputs)
    g = bt.Graph(reclaim=False)
    a, b = g.value(0.5), g.value(0.25)
    (a * b).backward()
    # A failed call of an oracle leaves zero gradients.
    P.zero_grad()
    Q = bt.Parameters("float64", seed=2)
    part = bt.nn.Linear(Q, 5, 3)
    bt.Oracle(bt.nn.Linear(Q, 5, 3), loss="mse")(inputs, outputs)
    adam, adamw, sgd = bt.optim.Adam(Q), bt.optim.AdamW(Q), bt.optim.SGD(Q, lr=0.1, momentum=0.9)
    adam.step()
    names = dict(words=words, word_contexts=word_contexts, word_state=word_contexts.save_state(), text="abcdefg" * 20)
    names.update(text_windows=text_windows, P=P, char=char, gpt=gpt, mlp=mlp, linear=linear, contexts=contexts, g=g)
    names.update(
        targets=targets, windows=windows, windows_after=windows_after, inputs=inputs, outputs=outputs, a=a, b=b
    )
    names.update(
        classes=[0, 1, 2, 1], loss_of=loss_of, oracle=oracle, own_oracle=own_oracle, adam=adam, adamw=adamw, sgd=sgd
    )
    names.update(
        adam_state=adam.save_state(), adam_of_part=bt.optim.Adam(part), Q=Q, sgd_of_values=bt.optim.SGD([a, b], lr=0.1)
    )
    names.update(alphabet=word_contexts.vocabulary, schedule=bt.optim.Schedule(sgd, "cosine", total=10))
    return names


SCENES = {
    "graph": graph,
    "arrays": arrays,
    "arrays of a graph": arrays_of_a_graph,
    "methods": methods,
    "dtypes": dtypes,
    "branches": branches,
    "functions": functions,
    "models": models,
    "training": training,
}


def seen_of_graph(graph):
    if graph.dtype == "float64" and len(graph):
        return f"{len(graph)} {graph.raw_bytes(what='both')!r}"
    return f"{len(graph)} {list(graph.values)!r}"


def seen(thing):
    """The observable state of an object, as text."""
    if isinstance(thing, bt.Value):
        return f"{thing.data!r} {thing.grad!r} {thing.label!r}"
    if isinstance(thing, bt.Vector):
        return f"{list(thing.data)!r} {list(thing.grad)!r}"
    if isinstance(thing, bt.Array):
        return f"{seen(thing.data)} {seen(thing.grad)}"
    if isinstance(thing, bt.Graph):
        with suppress(bt.BusyError):
            return seen_of_graph(thing)
        return "a branch"
    if isinstance(thing, bt.Parameters):
        return f"{list(thing.values)!r} {list(thing.grads)!r} {thing.names!r} {thing.n_trainable!r}"
    if isinstance(thing, (bt.optim.SGD, bt.optim.Adam, bt.text.WordContexts, bt.text.TextWindows)):
        return repr(thing.save_state())
    if isinstance(thing, bt.opt.Method):
        return seen({**thing.state_dict(), "seconds": 0.0})
    if isinstance(thing, bt.opt.Record):
        return repr(dataclasses.replace(thing, seconds=0.0))
    if isinstance(thing, bt.optim.Schedule):
        return repr(thing.n_steps)
    if isinstance(thing, micrograd.Module):
        return seen(thing.parameters())
    if isinstance(thing, bt.Program):
        return repr((len(thing), thing.op_counts, thing.n_inputs))
    if isinstance(thing, bt.nn.Tokens if hasattr(bt.nn, "Tokens") else ()):
        return repr(thing.rows())
    if isinstance(thing, (list, tuple)):
        return f"{type(thing).__name__}({', '.join(map(seen, thing))})"
    if isinstance(thing, dict):
        return repr({key: seen(value) for key, value in thing.items()})
    if hasattr(thing, "toarray"):
        return seen(thing.toarray())
    if isinstance(thing, memoryview) or hasattr(thing, "tolist"):
        return repr(thing.tolist())
    if thing is None or isinstance(thing, (int, float, complex, str, bytes, decimal.Decimal)):
        return repr(thing)
    return type(thing).__name__


STATEFUL = (
    bt.Graph,
    bt.Value,
    bt.Vector,
    bt.Parameters,
    bt.optim.SGD,
    bt.optim.Adam,
    bt.text.WordContexts,
    bt.text.TextWindows,
    bt.opt.Method,
    bt.Array,
)


def look(names):
    """The state that a call might have changed."""
    return {key: seen(thing) for key, thing in names.items() if isinstance(thing, STATEFUL)}


COMPOSITE = {"grow_twice", "unevaluated", "no_grad", "with_scope", "dropped", "own", "bt.clamp", "bt.stop_gradient"}
"""Helpers that make several calls; those before a refusal may have appended nodes."""

UNTOLD = {
    "f.stats()",
    "bt.memory(char, adam, (contexts, targets))",
    "bt.memory(mlp)",
    "hash(x)",
    "oracle.memory()",
    "g.memory()",
}
"""Calls whose results differ each time."""


def is_several(call):
    return call.count("(") - call.count("((") > 1 or call.split("(")[0] in COMPOSITE


def attempt(code, names, n=None, rest=False):
    """Runs a call with allocation `n` refused. Returns the observable result, or None; the number of refusals;
    whether an error was raised."""
    with names["g"]:
        return evaluated(code, names, n, rest)


def evaluated(code, names, n, rest):
    scope = {**globals(), **names, "path": os.path.join(FOLDER, "written")}
    result, is_told, N_REFUSED[0] = None, False, 0
    bt._core._refuse(n, rest)
    try:
        result = eval(code, scope)
    except MemoryError:
        is_told = True
    except (bt.TraceError, OSError) as error:
        result = type(error).__name__
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    finally:
        grant()
    return (None if is_told else seen(result)), N_REFUSED[0], is_told


def numbers_to_refuse(limit):
    n = 0.0
    while True:
        yield int(n)
        n += 1 if n < limit else max(1, n * 0.05)


def check(scene, call, rest, limit):
    """Refuses the first allocation of a call, then the second, and so on. Returns their number."""
    code = compile(call, call, "eval")
    make = SCENES[scene]
    names = make()
    wanted = attempt(code, names)[0]
    # A step may be complete before an allocation for its report is refused.
    whole = [look(names)] if call.endswith(".step()") else []
    tried = 0
    for n in numbers_to_refuse(limit):
        names = make()
        before = look(names)
        found, refused, is_told = attempt(code, names, n, rest)
        after = look(names) if is_told else before
        if is_told and after != before and after not in whole and not is_several(call):
            changed = [key for key in before if before[key] != after[key]]
            return f"refusal {n} changed {changed}: {before[changed[0]][:150]} -> {after[changed[0]][:150]}"
        if not is_told and found != wanted and call not in UNTOLD:
            return f"refusal {n} gave {found[:300]}, not {wanted[:300]}"
        if is_told:
            again, *_ = attempt(code, names)
            if again != wanted and call not in UNTOLD and not is_several(call) and after == before:
                return f"after refusal {n} the call gives {str(again)[:300]}, not {wanted[:300]}"
        tried += 1
        if not is_told and not refused and n > 0:
            return tried
        if tried > 3000:
            return tried
        del names
    return tried


def main(scene, mode, first, step, limit):
    warnings.simplefilter("ignore")
    gc.disable()
    n_calls = n_refused = 0
    for call in CALLS[scene][int(first) :: int(step)]:
        print("at:", call, flush=True)
        found = check(scene, call, mode == "rest", int(limit))
        if isinstance(found, str):
            print("wrong:", call, "|", found, flush=True)
        else:
            n_refused += found
        n_calls += 1
    print("end:", n_calls, n_refused, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
