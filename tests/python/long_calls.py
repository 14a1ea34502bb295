"""Public calls that can take more than 100 ms, each with work of any size; and those that cannot, with the reason.

A test fails if a new public call is in neither group. "Can" refers to up to 10^7 nodes, numbers or bytes.
"""

# ruff: noqa: SIM905
from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import shutil
import tempfile
import weakref
from array import array

import numpy as np

import burtorch as bt

# By name of a call: the smallest and largest size, and a factory for work of a given size. The work is a call without
# arguments that returns bits, which must be equal in every run.
LONG = {}


def long(*names, n=1000, most=10**7):
    def add(make):
        for name in names:
            LONG[name] = (n, most, make)
        return make

    return add


def bits(found):
    """Bytes that identify a result."""
    if found is None or isinstance(found, (str, int, float, bool)):
        return repr(found)
    if isinstance(found, (list, tuple)):
        return [bits(part) for part in found]
    if isinstance(found, dict):
        return {key: bits(part) for key, part in found.items()}
    if hasattr(found, "indptr"):
        return [bits(part) for part in (found.data, found.indices, found.indptr)]
    if isinstance(found, (bt.Value, bt.Vector)):
        return bits(found.data)
    return hashlib.sha256(memoryview(found).cast("B")).hexdigest()


def numbers(n):
    return array("d", [0.001 * (k % 1000) + 0.25 for k in range(n)])


class Folder:
    """A path that exists as long as the object."""

    def __init__(self):
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder)
        self.path = os.path.join(folder, "file")


def chain(n):
    graph = bt.Graph(reclaim=False)
    x = y = graph.value(0.5)
    for _ in range(n):
        y = y * 1.0001
    return graph, x, y


def block(n):
    graph = bt.Graph(reclaim=False)
    x = graph.vector(numbers(n))
    y = x
    for _ in range(4):
        y = y * x
    return graph, x, y.sum()


# Graphs


@long("Graph.to_dot", "Graph.to_svg", "Graph.to_html", most=100_000)
def drawing(name, n):
    _, _, root = chain(n)
    if name == "Graph.to_html":
        # The page contains times.
        return lambda: root.graph.to_html(root, max_nodes=n + 2).count("<rect")
    draw = getattr(root.graph, name.split(".")[1])
    return lambda: bits(hashlib.sha256(draw(root, max_nodes=n + 2).encode()).digest())


@long("Graph._repr_svg_", "Graph._repr_html_")
def shown(name, n):
    graph, _, _ = block(n)
    return lambda: getattr(graph, name.split(".")[1])()


@long("Graph.backward", "Value.backward")
def sweep(name, n):
    graph, x, root = block(n)

    def run():
        graph.zero_grad()
        graph.backward(root) if name == "Graph.backward" else root.backward()
        return bits(x.grad)

    return run


@long("Array.backward", n=1000, most=10**5)
def sweep_of_arrays(name, n):
    graph = bt.Graph()
    y = graph.array(list(numbers(1000)))
    for _ in range(n):
        y = y * 1.0
    y = y.sum()
    return y.backward


@long("Graph.recompute")
def recompute(name, n):
    graph, _, root = block(n)
    return lambda: graph.recompute(root)


@long("Graph.vector", "Vector")
def vector(name, n):
    data = list(numbers(n))
    graph = bt.Graph(reclaim=False)

    def run():
        graph.clear()
        made = graph.vector(data) if name == "Graph.vector" else bt.Vector(data, graph=graph)
        return len(made)

    return run


@long("Graph.save", "Graph.to_bytes", "Graph.load", "load_graph", "Graph.__reduce__")
def checked(name, n):
    graph, _, root = block(n)
    place = Folder()
    graph.save(place.path, durable=False)
    data = graph.to_bytes()
    return {
        "Graph.save": lambda: graph.save(place.path, durable=False) or os.path.getsize(place.path),
        "Graph.to_bytes": lambda: bits(graph.to_bytes()),
        "Graph.load": lambda: graph.load(data) or bits(root),
        "load_graph": lambda: len(bt.load_graph(data)),
        "Graph.__reduce__": lambda: bits(pickle.dumps(graph)),
    }[name]


@long("Graph.save_raw", "Graph.raw_bytes", "Graph.load_raw", n=100_000)
def raw(name, n):
    graph = bt.Graph(reclaim=False)
    x = graph.vector(numbers(n))
    place = Folder()
    graph.save_raw(place.path)
    return {
        "Graph.save_raw": lambda: graph.save_raw(place.path) or os.path.getsize(place.path),
        "Graph.raw_bytes": lambda: bits(graph.raw_bytes()),
        "Graph.load_raw": lambda: graph.load_raw(place.path) or bits(x[n - 1]),
    }[name]


# Vectors: one entry per kind of op


@long("bt.elementwise", "Vector.elementwise", "Value.elementwise", "Vector.operators")
def elementwise(name, n):
    graph = bt.Graph(reclaim=False)
    x = graph.vector(numbers(n))
    mark = graph.mark()
    apply = {
        "bt.elementwise": lambda: bt.lgamma(x),
        "Vector.elementwise": lambda: x.lgamma(),
        "Value.elementwise": lambda: x[0].hypot(x),
        "Vector.operators": lambda: x**x,
    }[name]

    def run():
        graph.rewind(mark)
        return bits(apply())

    return run


@long("bt.reductions", "Vector.reductions")
def reduction(name, n):
    graph = bt.Graph(reclaim=False)
    x = graph.vector(numbers(n))
    mark = graph.mark()
    apply = {
        "bt.reductions": lambda: bt.logsumexp(x),
        "Vector.reductions": lambda: x.softmax().norm2(),
    }[name]

    def run():
        graph.rewind(mark)
        return bits(apply())

    return run


@long("where", "clamp", "stack", "concat", "max of a Vector", "stop_gradient", n=10_000, most=10**6)
def choosing(name, n):
    graph = bt.Graph(reclaim=False)
    x = graph.vector(numbers(n))
    values = [x[k] for k in range(0, n, 2)]
    mark = graph.mark()
    apply = {
        "where": lambda: bt.where([k % 3 == 0 for k in range(n)], x, 0.0),
        "clamp": lambda: bt.clamp(x, 0.3, 0.9),
        "stack": lambda: bt.stack(values).sum(),
        "concat": lambda: bt.concat(*[x] * 100).sum(),
        "max of a Vector": lambda: bt.max(x, x).sum(),
        "stop_gradient": lambda: bt.stop_gradient(x).sum(),
    }[name]

    def run():
        graph.rewind(mark)
        return bits(apply())

    return run


@long("parallel", n=16, most=10_000)
def parallel(name, n):
    graph = bt.Graph()

    def run():
        graph.clear()
        made = bt.parallel(lambda k: sum((bt.sin(bt.Value(k + i)) for i in range(200)), 0.0), range(n), graph=graph)
        return bits([value.data for value in made])

    return run


@long("check_grads", n=8, most=400)
def check_grads(name, n):
    return lambda: bt.check_grads(lambda x: (x * x).sum(), numbers(n))


# Traced functions


def rounds(k):
    def f(v):
        s = 0.0
        n = len(v)
        for _ in range(k):
            for i in range(n):
                s = s + bt.sin(v[i] * v[(i + 1) % n])
        return s

    return f


def system(v):
    n = len(v)
    return [bt.sin(v[i] * v[(i + 1) % n]) + v[i] for i in range(n)]


@long("Function.trace", "Function.compile", "trace", "Function.audit", "Function.__reduce__", n=4, most=4000)
def recording(name, n):
    x = numbers(50)

    def run():
        if name == "trace":
            return len(bt.trace(rounds(n), x).program)
        f = bt.function(rounds(n), audit=False)
        f.trace(x)
        if name == "Function.compile":
            return bits(f.compile(x)(x))
        if name == "Function.audit":
            return bits(f.audit())
        if name == "Function.__reduce__":
            return bits(pickle.dumps(f))
        return len(f.program)

    return run


@long("jvp", "vjp", "Function.value_and_param_grad", n=1, most=500)
def of_arrays(name, n):
    x = np.linspace(0.1, 0.9, 20_000 * n)[None]
    params = bt.Parameters("float64")
    w = params.tensor(1, init=2.0)

    def body(x):
        return (w * bt.tanh(x * x) + bt.sin(x)).sum()

    f = bt.function(body)

    def run():
        if name == "jvp":
            return bits(bt.jvp(body, (x,), (x,)))
        if name == "vjp":
            value, pulled = bt.vjp(body, x)
            return bits([value, *pulled(1.0)[0].ravel()[:5]])
        return bits([f.value_and_param_grad(x)[0], *params.grads])

    return run


@long("Function.planning", n=4, most=2000)
def planning(name, n):
    x = numbers(50)
    f = bt.trace(rounds(n), x)
    data = pickle.dumps(f)

    def run():
        # The plan is created when a program runs for the second time.
        g = pickle.loads(data)
        return bits([g(x), g(x), g(x)])

    return run


@long(
    *("Function.__call__", "Function.value_and_grad", "Function.grad", "Function.jvp", "Function.vjp", "Function.hvp"),
    *("Function.hessian", "Function.sparse_hessian", "Function.hessian_sparsity", "BoundFunction.__call__"),
    n=1,
    most=4000,
)
def derivative(name, n):
    x = numbers(100)
    f = bt.trace(rounds(n), x)
    method = name.split(".")[1]
    if name.startswith("Bound"):
        bound = f.bind(x, numbers(100))
        return lambda: bits(bound())
    more = {"jvp": (x,), "hvp": (x,), "vjp": (1.0,)}.get(method, ())
    # Many short calls: the interrupted call may be any of them.
    return lambda: [bits(getattr(f, method)(x, *more)) for _ in range(3)]


@long(
    *("Function.jacobian", "Function.sparse_jacobian", "Function.jacobian_sparsity"),
    n=10,
    most=3000,
)
def jacobian(name, n):
    x = numbers(n)
    f = bt.trace(system, x)
    return lambda: bits(getattr(f, name.split(".")[1])(x))


@long("Function.map", "Function.map_value_and_grad")
def rows(name, n):
    f = bt.trace(lambda a, b: bt.log1p(bt.exp(a * b)) / (1.0 + a * a) - bt.tanh(b), 0.5, 0.25)
    a, b = numbers(n), numbers(n)
    return lambda: bits(getattr(f, name.split(".")[1])(a, b))


@long("Function.map of a large program", n=8, most=4000)
def rows_of_large(name, n):
    import numpy as np

    x = np.asarray(numbers(100))
    f = bt.trace(rounds(400), x)
    table = np.stack([x] * n)
    return lambda: bits(f.map(table))


@long("Function.save", "load_function", "Program.__str__", "Program.dot", "optimize='fast'", n=4, most=2000)
def program(name, n):
    x = numbers(50)
    place = Folder()
    f = bt.trace(rounds(n), x)
    f.save(place.path)
    return {
        "Function.save": lambda: f.save(place.path) or os.path.getsize(place.path),
        "load_function": lambda: len(bt.load_function(place.path).program),
        "Program.__str__": lambda: len(str(f.program)),
        "Program.dot": lambda: len(f.program.dot()),
        "optimize='fast'": lambda: len(bt.trace(rounds(n), x, optimize="fast").program),
    }[name]


# Parameters and models


@long("Parameters.tensor", n=100_000)
def tensor(name, n):
    return lambda: bits(bt.Parameters(seed=1).tensor(n, init="normal").values)


@long(
    "Parameters.save", "Parameters.to_bytes", "Parameters.load", "load_parameters", "Parameters.__reduce__", n=100_000
)
def parameters(name, n):
    params = bt.Parameters(dtype="float64")
    params.tensor(n, init="normal")
    place = Folder()
    data = params.to_bytes()
    return {
        "Parameters.save": lambda: params.save(place.path, durable=False) or os.path.getsize(place.path),
        "Parameters.to_bytes": lambda: bits(params.to_bytes()),
        "Parameters.load": lambda: params.load(data) or bits(params.values),
        "load_parameters": lambda: len(bt.load_parameters(data)),
        "Parameters.__reduce__": lambda: bits(pickle.dumps(params)),
    }[name]


def batch(n, width=16):
    x = [[(7 * k + 3 * i) % 27 for i in range(width)] for k in range(n)]
    return x, [k % 27 for k in range(n)]


@long(
    *("Oracle.__call__", "Oracle.grad", "Oracle.loss", "Oracle.losses", "Oracle.step", "Oracle.per_sample"),
    *("Oracle.per_sample_grads", "Oracle.per_sample_grad_norms", "Oracle.stream", "Oracle.cost"),
    n=64,
    most=20_000,
)
def oracle(name, n):
    params = bt.Parameters(seed=0)
    model = bt.nn.CharMLP(params, embedding=8, hidden=32)
    made = bt.Oracle(model)
    x, y = batch(n)
    start = array("f", params.values)
    method = name.split(".")[1]

    def run():
        params.values[:] = start
        if method == "step":
            return bits(made.step(x, y, 0.1))
        if method == "stream":
            parts = []
            made.stream(x, y, lambda _, part: parts.extend(part))
            return bits(parts)
        if method == "cost":
            return sorted(made.cost(range(10), x, y))
        if method == "per_sample":
            losses = []
            made.per_sample(x, y, lambda k, loss, grad: losses.append(loss))
            return bits(losses)
        return bits(getattr(made, method)(x, y))

    return run


@long("Oracle of a callable", n=16, most=20_000)
def callable_oracle(name, n):
    params = bt.Parameters(seed=0, dtype="float64")
    w = params.tensor(8, init="normal")
    made = bt.Oracle(lambda x, y: (bt.inner_product(w, x) - y[0]) ** 2, params=params, lanes=1)
    x, y = [list(numbers(8)) for _ in range(n)], [[0.5] for _ in range(n)]
    return lambda: bits(made(x, y))


@long("text.sample", "text.continue_text", n=4, most=1000)
def generating(name, n):
    params = bt.Parameters(seed=0)
    if name == "text.sample":
        model = bt.nn.CharMLP(params, embedding=8, hidden=64)
        letters = "\n" + "abcdefghijklmnopqrstuvwxyz"
        return lambda: bt.text.sample(model, letters, n)
    model = bt.nn.GPT(params, vocab=3, context=8)
    return lambda: bt.text.continue_text(model, "abc", n, prompt="a")


@long("text.sample of long prompts", n=1000, most=10**6)
def prompted(name, n):
    model = bt.nn.CharMLP(bt.Parameters(seed=0), vocab=3, context=2, embedding=2, hidden=2)
    # Longer than any word, so that nothing is computed.
    return lambda: len(bt.text.sample(model, "\nab", n, prompt="ab" * 100))


@long("text.WordContexts", "text.WordContexts.batch", "text.WordContexts.train", "text.WordContexts.heldout")
def words(name, n):
    given = ["word" + "xyz"[k % 3] for k in range(n // 4)]
    if name == "text.WordContexts":
        return lambda: bt.text.WordContexts(given).n_train
    return places(name, bt.text.WordContexts(given, holdout=0.5))


@long("text.TextWindows", "text.TextWindows.batch", "text.TextWindows.train", "text.TextWindows.heldout")
def windows(name, n):
    given = "to be or not to be? " * (n // 20)
    if name == "text.TextWindows":
        return lambda: bt.text.TextWindows(given).n_train
    return places(name, bt.text.TextWindows(given, holdout=0.5))


@long(
    *("text.WordContexts.save_state", "text.WordContexts.load_state"),
    *("text.TextWindows.save_state", "text.TextWindows.load_state"),
    *("text.WordContexts.__reduce__", "text.TextWindows.__reduce__"),
)
def states(name, n):
    data = (windows if "Windows" in name else words)(name, n)
    return data


def places(name, data):
    state = data.save_state()
    method = name.split(".")[2]

    def run():
        data.load_state(state)
        if method == "batch":
            found = data.batch(data.n_train)
        elif method == "train":
            found = data.train(0, data.n_train)
        elif method == "heldout":
            found = data.heldout(0, data.n_heldout)
        elif method == "__reduce__":
            return bits(pickle.dumps(data))
        else:
            return bits(data.save_state())
        return [bits(part) for part in found]

    return run


@long("nn.save_model", "nn.load_model", "nn.state_dict", "nn.load_state_dict", n=64, most=2000)
def models(name, n):
    params = bt.Parameters(seed=0)
    model = bt.nn.MLP(params, [n, n, n])
    place = Folder()
    model.save(place.path)
    state = {key: list(part) for key, part in bt.nn.state_dict(model).items()}
    return {
        "nn.save_model": lambda: model.save(place.path) or os.path.getsize(place.path),
        "nn.load_model": lambda: bt.nn.load_model(place.path)[0].n_parameters,
        "nn.state_dict": lambda: {key: bits(part) for key, part in bt.nn.state_dict(model).items()},
        "nn.load_state_dict": lambda: bt.nn.load_state_dict(model, state) or bits(params.values),
    }[name]


@long("data.read_text", "data.read_words", n=10_000)
def reading(name, n):
    place = Folder()
    with open(place.path, "w", encoding="ascii") as file:
        file.write("word\n" * (n // 5))
    return lambda: len(getattr(bt.data, name.split(".")[1])(place.path))


@long("optim.SGD.save_state", "optim.SGD.load_state", "optim.Adam.save_state", "optim.Adam.load_state", n=100_000)
def optimiser(name, n):
    params = bt.Parameters(seed=0)
    params.tensor(n, init=0.5)
    made = bt.optim.SGD(params, momentum=0.9) if "SGD" in name else bt.optim.Adam(params)
    made.step()
    state = made.save_state()
    return (lambda: bits(made.save_state())) if "save" in name else (lambda: made.load_state(state))


# Short calls, with reasons.

SHORT = {}


def short(why, *names):
    for name in names:
        assert name not in SHORT, name
        SHORT[name] = why


MODELS = (
    "GPT",
    "MLP",
    "Block",
    "CausalSelfAttention",
    "CharMLP",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "RMSNorm",
)

short(
    "makes one object",
    *(
        "Function",
        "Function.bind",
        "Function.stats",
        "Function.forget",
        "function",
        "Graph",
        "Graph.mark",
        "Graph.scope",
    ),
    *(
        "Graph.value",
        "Graph.constant",
        "Graph.node",
        "Graph.set_no_grad",
        "Graph.rewind",
        "Graph.clear",
        "Mark",
        "Oracle",
        "Oracle.memory",
        *("Stop", "Stop.set", "Stop.clear", "Stop.is_set", "Subset"),
    ),
    *(
        "Parameters",
        "Parameters.named",
        "Program",
        "Scope",
        "TokenIds",
        "TokenIds.__getitem__",
        "TokenIds.__str__",
        "Value",
        "Value.detach",
    ),
    *("Value.same_node", "Value.to_string", "Vector.__getitem__", "Vector.__iter__", "bytes_needed", "current_graph"),
    *("Graph.array", "array"),
    *("no_grad", "parameter", "parameter.__reduce__", "primitive", "primitive.defjvp", "primitive.defvjp", "memory"),
    *("optim.SGD", "optim.Adam", "optim.AdamW", "optim.Schedule", "optim.Schedule.rate", "optim.Schedule.step"),
    "optim.Schedule.__reduce__",
    *("micrograd.Module", "nn.Tokens", "nn.Tokens.at", "nn.Tokens.rows", "Oracle.__reduce__"),
)
short("is refused at once", "Mark.__reduce__", "Value.__reduce__", "Vector.__reduce__")
short(
    "a pass of a nanosecond or less for each of 10^7 numbers, all of it or nothing",
    "Subset.__reduce__",
    *("Graph.zero_grad", "Graph.find_nonfinite", "Graph.labelled", "Graph.memory", "Parameters.zero_grad"),
    *("Parameters.find_nonfinite", "Parameters.freeze", "Parameters.unfreeze", "nn.find_nonfinite"),
    *("Oracle.subset", "Parameters.subset"),
    *("optim.SGD.step", "optim.Adam.step", "optim.AdamW.step", "optim.clip_grad_norm"),
    *(f"optim.{rule}.zero_grad" for rule in ("SGD", "Adam", "AdamW")),
    *(f"nn.{model}.{method}" for model in MODELS for method in ("zero_grad", "freeze", "unfreeze")),
)
short(
    "some nanoseconds for each node, all of it or nothing: a tenth of a second for 10^7 nodes",
    *("Graph.collect", "Graph.branches", "Graph.join", "Graph.drop_branches"),
)
short(
    "one pass of a model or a layer for one sample",
    *("nn.GPT.logits", "nn.CharMLP.logits", "nn.sample_loss", "nn.Tokens.cross_entropy", "nn.Embedding.rows"),
    *(f"nn.{model}.__call__" for model in MODELS if model != "Module"),
)
short(
    "a loop of Python, which Ctrl-C ends between two steps",
    *("nn.parameters", "nn.named_parameters", "data.default_words", "primitive.__call__"),
    *(f"nn.{model}.{method}" for model in MODELS for method in ("parameters", "named_parameters")),
    *(f"nn.{model}.named_tensors" for model in ("GPT", "MLP", "CharMLP", "Neuron")),
    "nn.MLP.__getitem__",
    *(f"micrograd.{kind}" for kind in ("MLP", "Layer", "Neuron")),
    *(f"micrograd.{kind}.__call__" for kind in ("MLP", "Layer", "Neuron")),
    *(
        f"micrograd.{kind}.{method}"
        for kind in ("MLP", "Layer", "Neuron", "Module")
        for method in ("parameters", "zero_grad")
    ),
    *("nn.Neuron", "nn.Neuron.__call__", "viz.heat_map", "viz.heat_map_script", "viz.plot", "viz.plot_loss"),
    *("viz.plot_script", "viz.Live", "viz.Live.add", "viz.Live.close", "viz.live", "viz.run", "viz.show"),
)
short(
    "a look at a table, or at a file",
    *(f"system.{name}" for name in ("available_cpu_levels", "cpu_level", "energy", "force_cpu_level", "ops")),
)
short("makes tensors as Parameters.tensor does, which is long", *(f"nn.{model}" for model in MODELS))


@long("scan", "while_loop", "fori_loop", "cond", n=2000, most=4000)
def loops(name, n):
    def count(x):
        return bt.while_loop(lambda c: c[1] < n, lambda c: (bt.sin(c[0]), c[1] + 1), (x, 0.0))[0]

    def run():
        if name == "scan":
            return bits([bt.scan(lambda c, _: (bt.sin(c), None), 0.5, length=n)[0]])
        if name == "fori_loop":
            return bits([bt.fori_loop(0, n, lambda i, c: bt.sin(c), 0.5)])
        return bits([count(0.5) if name == "while_loop" else bt.cond(True, count, lambda x: x, 0.5)])

    return run


@long("opt.FiniteSum.loss", "opt.FiniteSum.grad", "opt.FiniteSum.gradients")
def finite_sum(name, n):
    problem = bt.opt.logistic_regression(np.array(numbers(n)).reshape(-1, 10), np.ones(n // 10))
    run = getattr(problem, name.split(".")[-1])
    return lambda: bits(run(np.full(10, 0.1)))


@long("opt.GD.run", n=10, most=1000)
def optimisation(name, n):
    problem = bt.opt.least_squares(np.array(numbers(100_000)).reshape(-1, 10), numbers(10_000))

    def run():
        method = bt.opt.GD(problem, step=1e-3)
        method.run(n)
        return bits(method.x)

    return run


@long("opt.load_libsvm", "opt.make_least_squares", "opt.make_logistic", "opt.split")
def samples(name, n):
    labels = numbers(n)
    folder = Folder()
    with open(folder.path, "w") as file:
        file.writelines(f"{label} 1:{label}\n" for label in labels if name == "opt.load_libsvm")

    def run():
        if name == "opt.split":
            return bits(bt.opt.split(labels, 10, "sorted"))
        if name == "opt.load_libsvm":
            return bits(bt.opt.load_libsvm(folder.path)[0].values)
        return bits(getattr(bt.opt, name[4:])(n // 10, 10)[0])

    return run


# Special methods that compute something.
SPECIAL = {"__call__", "__getitem__", "__setitem__", "__iter__", "__reduce__", "__matmul__", "__str__"}


def methods(kind):
    for name in dir(kind):
        own = getattr(object, name, None) is not getattr(kind, name)
        if own and callable(getattr(kind, name)) and (not name.startswith("_") or name in SPECIAL):
            yield name


OF_OPT = [name for name, kind in vars(bt.opt).items() if isinstance(kind, type) and issubclass(kind, bt.opt.Method)]
OF_RULES = [
    name
    for name, kind in vars(bt.opt).items()
    if isinstance(kind, type) and issubclass(kind, (bt.opt.Prox, bt.opt.Sampling))
]
short("makes one object, and reads the numbers it is of", *(f"opt.{name}" for name in OF_OPT + OF_RULES))
short("a pass by NumPy or SciPy over its entries", *(f"opt.Rows.{name}" for name in methods(bt.opt.Rows)))
short("makes one object, and reads the numbers it is of", "opt.Rows", "opt.FiniteSum", "opt.Record", "opt.Smoothness")
short("makes one object, and reads the numbers it is of", "opt.Client", "mpi.Predicted")
short("makes one object, and reads the numbers it is of", "opt.from_oracle")
short("reads each number once", *(f"opt.{name}_regression" for name in ("logistic", "robust", "softmax")))
short("reads each number once", "opt.least_squares", "opt.FiniteSum.features", "opt.FiniteSum.__reduce__")
short("arithmetic with a few numbers", "opt.optimal_batch", "opt.page_step", "mpi.predict")
short("makes one object, and reads the numbers it is of", "opt.Delays", "opt.Delays.probability", "opt.Network")
short("an exchange by mpi4py, which asks between two tests of a request", "mpi.Engine", "mpi.Engine.gather")
short("an exchange by mpi4py, which asks between two tests of a request", "mpi.Engine.rows", "mpi.Engine.same")
short("an exchange by mpi4py, which asks between two tests of a request", "mpi.Engine.tell")
short("makes an object of flwr, which runs it", "flower.client_app", "flower.server_app")
short("a gradient by an oracle, which asks, and such exchanges", "mpi.Engine.gradient")
short("divides two numbers, or ends the process", "mpi.Engine.here", "mpi.Engine.abort")
short("NumPy's linear algebra: Ctrl-C ends it between two calls", "opt.smoothness", "opt.solve")
short(
    "a draw, or a pass over a point",
    *(f"opt.{rule}.{name}" for rule in OF_RULES for name in methods(getattr(bt.opt, rule))),
)


COMPRESSORS = [name for name in bt.compress.__all__ if name not in ("Draw", "Message")]


@long("compress.Compressor.compress", "compress.Message.to_bytes", "compress.Message.from_bytes", n=100_000)
def compression(name, n):
    x, c, draw = numbers(n), bt.compress.QSGD(100), bt.compress.Draw(seed=0)
    message = c.compress(x, draw)
    data = message.to_bytes()
    return {
        "compress.Compressor.compress": lambda: bits(c.compress(x, draw).values),
        "compress.Message.to_bytes": lambda: bits(message.to_bytes()),
        "compress.Message.from_bytes": lambda: bits(bt.compress.Message.from_bytes(data).values),
    }[name]


short("holds a few constants", *(f"compress.{c}" for c in COMPRESSORS), "compress.Draw", "compress.Message")
short(
    "arithmetic on a few constants, or makes a tuple of them",
    *(f"compress.{c}.{method}" for c in COMPRESSORS for method in ("omega", "alpha", "density", "__reduce__")),
)
short(
    "some nanoseconds for each of 10^7 numbers, all of it or nothing",
    *(f"compress.Message.{method}" for method in ("decompress", "add_to", "__reduce__")),
    *("compress.Draw.of", "compress.Draw.__reduce__"),
)

OF_ARRAYS = (
    "__getitem__ __iter__ __matmul__ __setitem__ all any argmax argmin astype clip copy cumprod cumsum detach "
    "diagonal dot flatten item log_softmax logsumexp max mean min norm2 prod ravel reshape round softmax "
    "squeeze std sum swapaxes take tolist trace transpose var "
).split()
LIKE_NUMPY = (
    "all any argmax argmin argsort attention broadcast_to clip concatenate cumprod cumsum diag diagonal dot einsum "
    "expand_dims flip hstack matmul maximum median minimum moveaxis norm outer percentile prod quantile ravel repeat "
    "reshape roll segment_sum sort split squeeze std sum swapaxes take take_along_axis tensordot tile transpose tril "
    "triu var vstack "
).split()
# Names in the op table: functions, and methods of Values, Vectors and Arrays.
OPS = {op["name"] for op in bt.system.ops() if op["arity"] != "nullary"} | {"elu", "leaky_relu"}
OPS_OF_ARRAYS = sorted(name for name in OPS if hasattr(bt.Array, name) and name not in OF_ARRAYS)
short(
    "appends an instruction to a trace, or is refused",
    "Array",
    *(f"Array.{method}" for method in (*OF_ARRAYS, *OPS_OF_ARRAYS)),
)
short("appends an instruction to a trace, or is NumPy's own function", *LIKE_NUMPY)
short("calls a model in a trace", "nn.functional_call")
short("makes a function", "grad", "value_and_grad", "hessian", "jacobian", "hvp", "vmap", "checkpoint")

# Calls that share the code of a call in the table.
LIKE = {
    "Graph.to_dot": ["viz.show"],
    "nn.save_model": [f"nn.{model}.save" for model in MODELS],
    "nn.load_model": ["nn.load_model", *(f"nn.{model}.load" for model in MODELS)],
    "nn.state_dict": [f"nn.{model}.state_dict" for model in MODELS],
    "nn.load_state_dict": [f"nn.{model}.load_state_dict" for model in MODELS],
    "compress.Compressor.compress": [f"compress.{c}.compress" for c in COMPRESSORS],
    "optim.Adam.save_state": ["optim.AdamW.save_state"],
    "optim.Adam.load_state": ["optim.AdamW.load_state"],
    "Vector.reductions": ["Vector.__matmul__", "Vector.dot", "Vector.sum", "Vector.prod"],
    "Oracle of a callable": ["Oracle"],
    "opt.GD.run": [f"opt.{kind}.{name}" for kind in OF_OPT for name in methods(getattr(bt.opt, kind)) if name != "run"]
    + [f"opt.{kind}.run" for kind in OF_OPT if kind != "GD"],
}
LIKE = {name: [call for call in calls if call not in SHORT] for name, calls in LIKE.items()}


def public():
    """All public callables by name: functions of the modules, classes, their methods."""
    names = ("compress", "data", "flower", "micrograd", "mpi", "nn", "opt", "optim", "system", "text", "viz")
    modules = ["", *(f".{name}" for name in names)]
    found = {}
    for module in modules:
        holder = importlib.import_module("burtorch" + module)
        for name in holder.__all__:
            thing = getattr(holder, name)
            full = f"{module[1:]}.{name}".lstrip(".")
            if not callable(thing) or (isinstance(thing, type) and issubclass(thing, BaseException)):
                continue
            if any(thing is other for other in found.values()):
                continue
            found[full] = thing
            if isinstance(thing, type):
                found.update({f"{full}.{method}": getattr(thing, method) for method in methods(thing)})
    return found


def covered():
    """Names of public calls in the table."""
    of_ops = {f"{holder}{name}" for name in OPS for holder in ("", "Vector.", "Value.")} & set(public())
    return set(LONG) | of_ops | {call for calls in LIKE.values() for call in calls}
