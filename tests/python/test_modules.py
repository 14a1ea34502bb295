"""Layers composed in Python: their values and gradients are those of the built-in GPT."""

import copy
import math
import pickle

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

VOCAB, CONTEXT, LAYERS, HEADS, WIDTH = 11, 9, 2, 2, 8


class GPT(bt.nn.Module):
    """The built-in GPT, rebuilt from layers; its tensors have the same order."""

    def __init__(self, params):
        self.embedding = bt.nn.Embedding(params, VOCAB, WIDTH, positions=CONTEXT)
        self.blocks = [bt.nn.Block(params, WIDTH, HEADS) for _ in range(LAYERS)]
        self.head = bt.nn.Linear(params, WIDTH, VOCAB)

    def __call__(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 8, 9])
def test_layers_are_the_built_in_gpt(dtype, n):
    params, theirs = bt.Parameters(dtype=dtype), bt.Parameters(dtype=dtype, seed=2)
    model = GPT(params)
    built_in = bt.nn.GPT(theirs, VOCAB, CONTEXT, LAYERS, HEADS, WIDTH)
    assert model.n_parameters == built_in.n_parameters == len(params)
    params.values[:] = list(theirs.values)
    tokens, classes = [k * 3 % VOCAB for k in range(n)], [k * 5 % VOCAB for k in range(n)]
    loss, grad = bt.Oracle(built_in)([tokens], [classes])
    with bt.Graph(dtype=dtype):
        logits = model(tokens)
        value = logits.cross_entropy(classes)
        value.backward()
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert value.data == pytest.approx(loss, rel=tolerance)
    assert list(params.grads) == pytest.approx(list(grad), abs=tolerance)
    assert logits.shape == (n, VOCAB)
    expected = built_in.logits(tokens)
    for row, other in zip(logits.rows(), expected):
        assert row == pytest.approx(other, abs=tolerance * 10)
    assert logits.at(n - 1, 2).data == pytest.approx(expected[-1][2], abs=tolerance * 10)


def test_a_character_model_from_layers_is_the_built_in_one():
    params, theirs = bt.Parameters(dtype="float64"), bt.Parameters(dtype="float64", seed=1)
    table = bt.nn.Embedding(params, 27, 6)
    hidden, output = bt.nn.Linear(params, 24, 5), bt.nn.Linear(params, 5, 27)
    built_in = bt.nn.CharMLP(theirs, context=4, embedding=6, hidden=5)
    params.values[:] = list(theirs.values)
    with bt.Graph():
        logits = output(hidden(table.rows([0, 3, 26, 3])).tanh())
        assert list(logits.data) == pytest.approx(built_in.logits([0, 3, 26, 3]), rel=1e-12)


def test_state_goes_out_and_in_by_name():
    params = bt.Parameters(seed=3)
    model = GPT(params)
    names = [name for name, _ in model.named_parameters()]
    assert names[:3] == ["embedding.weight", "embedding.positions", "blocks.0.norm1.weight"]
    assert names[-1] == "head.bias"
    assert len(names) == len(set(names)) == 2 + LAYERS * 13 + 2
    state = model.state_dict()
    before = list(params.values)
    params.values[:] = [0.0] * len(params)
    model.load_state_dict(state)
    assert list(params.values) == before
    for wrong in ({**state, "more": [1.0]}, {name: state[name] for name in names[1:]}, {**state, "head.bias": [1.0]}):
        with pytest.raises(ValueError):
            model.load_state_dict(wrong)
        assert list(params.values) == before
    assert model.params is params
    assert sum(len(tensor.values) for tensor in model.parameters()) == len(params)


def test_a_tensor_used_twice_counts_once():
    params = bt.Parameters()
    first = bt.nn.Linear(params, 3, 3)
    tied = GPT(params)
    tied.again = first
    tied.first = first
    assert tied.n_parameters == len(params)


def test_layers_refuse_mismatches():
    params = bt.Parameters(dtype="float64")
    with pytest.raises(ValueError):
        bt.nn.Block(params, 8, 3)
    table, norm = bt.nn.Embedding(params, 5, 4, positions=6), bt.nn.LayerNorm(params, 3)
    with bt.Graph() as graph:
        x, one = table([1, 2]), table([1])
        n = len(graph)
        for call, error in (
            (lambda: table([5]), IndexError),
            (lambda: table([]), ValueError),
            (lambda: table([0] * 7), ValueError),
            (lambda: norm(x), ValueError),
            (lambda: bt.nn.Linear(params, 5, 2)(x), ValueError),
            (lambda: x + one, ValueError),
            (lambda: x.cross_entropy([1]), ValueError),
            (lambda: x.cross_entropy([1, 4]), IndexError),
            (lambda: x.at(2, 0), IndexError),
        ):
            with pytest.raises(error):
                call()
            assert len(graph) == n
    with bt.Graph(dtype="float32"), pytest.raises(TypeError):
        table([1])


@pytest.mark.parametrize("activation", ["identity", "tanh", "relu", "sigmoid"])
def test_a_linear_takes_numbers_vectors_lists_of_operands_and_tokens(activation):
    params = bt.Parameters(dtype="float64", seed=4)
    layer = bt.nn.Linear(params, 3, 2, activation=activation)
    x = [0.5, -1.0, 2.0]
    numbers = layer(x)
    assert isinstance(numbers, list)
    with bt.Graph() as graph:
        v = graph.vector(x)
        assert list(layer(v).data) == pytest.approx(numbers, rel=1e-12)
        assert list(layer([v[0:1], v[1], v[2]]).data) == pytest.approx(numbers, rel=1e-12)
        table = bt.nn.Embedding(params, 4, 3)
        rows = layer(table([1, 3])).rows()
        for row, token in zip(rows, (1, 3)):
            assert row == pytest.approx(layer(list(table.weight[token].values)), rel=1e-12)
    with pytest.raises(ValueError):
        layer([1.0, 2.0])
    with pytest.raises(ValueError):
        bt.nn.Linear(params, 3, 0)


def test_built_in_models_speak_as_modules_do():
    params = bt.Parameters(dtype="float64", seed=1)
    chars = bt.nn.CharMLP(params, vocab=7, context=3, embedding=4, hidden=5)
    mlp = bt.nn.MLP(params, [2, 3, 1])
    gpt = bt.nn.GPT(params, vocab=7, context=4, layers=2, heads=2, width=8, final_norm=True)
    names = ["embedding", "hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    assert [name for name, _ in chars.named_parameters()] == names
    assert [name for name, _ in mlp.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [name for name, _ in gpt.named_parameters()] == [name for name, _ in gpt.named_tensors()]
    for model in (chars, mlp, gpt):
        assert sum(len(tensor.values) for tensor in model.parameters()) == model.n_parameters
        state, before = model.state_dict(), list(params.values)
        for tensor in model.parameters():
            tensor.values[:] = [0.0] * len(tensor.values)
        model.load_state_dict(state)
        assert list(params.values) == before
        with pytest.raises(ValueError):
            model.load_state_dict({**state, "more": [1.0]})
    with bt.Graph() as graph:
        assert list(chars([1, 2, 6]).data) == pytest.approx(chars.logits([1, 2, 6]), rel=1e-12)
        assert list(mlp(graph.vector([0.5, -0.5])).data) == pytest.approx(mlp([0.5, -0.5]), rel=1e-12)
        for n in (1, 4):
            for row, other in zip(gpt(range(n)).rows(), gpt.logits(range(n))):
                assert row == pytest.approx(other, rel=1e-10)
        loss = gpt([0, 1, 2, 3]).cross_entropy([1, 2, 3, 4])
        loss.backward()
        found = [list(tensor.grads) for tensor in gpt.parameters()]
        for call, error in ((lambda: chars([1, 2]), ValueError), (lambda: chars([1, 2, 7]), IndexError)):
            n_nodes = len(graph)
            with pytest.raises(error):
                call()
            assert len(graph) == n_nodes
    bt.Oracle(gpt)([[0, 1, 2, 3]], [[1, 2, 3, 4]])
    for tensor, grads in zip(gpt.parameters(), found):
        assert list(tensor.grads) == pytest.approx(grads, abs=1e-12)
    assert isinstance(chars.hidden, bt.nn.Linear)
    assert isinstance(mlp.layers[0], bt.nn.Linear)


class Chars:
    """The character model as a plain class, without a base class or registration."""

    def __init__(self, params, vocab=7, context=3, embedding=5, hidden=6):
        self.table = bt.nn.Embedding(params, vocab, embedding)
        self.layers = {
            "hidden": bt.nn.Linear(params, context * embedding, hidden, activation="tanh"),
            "output": bt.nn.Linear(params, hidden, vocab),
        }

    def __call__(self, symbols, label):
        logits = self.layers["output"](self.layers["hidden"](self.table.rows(symbols)))
        return bt.softmax_cross_entropy(logits, label)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_plain_class_is_a_model(dtype):
    params, theirs = bt.Parameters(dtype=dtype), bt.Parameters(dtype=dtype, seed=3)
    model, built_in = Chars(params), bt.nn.CharMLP(theirs, vocab=7, context=3, embedding=5, hidden=6)
    params.values[:] = list(theirs.values)
    x, y = [[(k * k + 3 * j) % 7 for j in range(3)] for k in range(70)], [(5 * k + 2) % 7 for k in range(70)]
    oracle, sgd = bt.Oracle(model), bt.optim.SGD(model, lr=0.1)
    loss, grad = oracle(x, y)
    expected_loss, expected = bt.Oracle(built_in)(x, y)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    assert list(grad) == pytest.approx(list(expected), abs=tolerance)
    sgd.step()
    assert oracle.loss(x, y) < loss
    assert list(bt.nn.state_dict(model)) == [
        "table.weight",
        "layers.hidden.weight",
        "layers.hidden.bias",
        "layers.output.weight",
        "layers.output.bias",
    ]
    with pytest.raises(TypeError):
        bt.Oracle(lambda x, y: x)


def test_a_gpt_of_layers_goes_through_an_oracle_one_sample_at_a_time():
    params, theirs = bt.Parameters(dtype="float64"), bt.Parameters(dtype="float64", seed=2)
    layers = GPT(params)
    built_in = bt.nn.GPT(theirs, VOCAB, CONTEXT, LAYERS, HEADS, WIDTH)
    params.values[:] = list(theirs.values)
    x, y = [[(k + 2 * t) % VOCAB for t in range(CONTEXT)] for k in range(5)], [[k] * CONTEXT for k in range(5)]
    loss, grad = bt.Oracle(lambda tokens, classes: layers(tokens).cross_entropy(classes), params=params, lanes=1)(x, y)
    expected_loss, expected = bt.Oracle(built_in)(x, y)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert list(grad) == pytest.approx(list(expected), abs=1e-12)
    with pytest.raises(ValueError, match="lanes=1"):
        bt.Oracle(lambda tokens, classes: layers(tokens).cross_entropy(classes), params=params)(x, y)


def test_non_finite_parameters_are_named():
    params = bt.Parameters()
    model = bt.nn.GPT(params, vocab=5, context=2, layers=1, heads=1, width=4, name="gpt")
    assert bt.nn.find_nonfinite(model) is None
    assert params.find_nonfinite() is None
    tensor = dict(model.named_parameters())["blocks.0.up.weight"]
    tensor.grads[3] = float("inf")
    assert bt.nn.find_nonfinite(model) == ("blocks.0.up.weight", "grad", 3, float("inf"))
    tensor.values[5] = float("nan")
    name, kind, place, number = bt.nn.find_nonfinite(model)
    assert (name, kind, place, number != number) == ("blocks.0.up.weight", "value", 5, True)
    kind, place, name, number = params.find_nonfinite()
    assert (kind, place, name) == ("value", tensor.span[0] + 5, "gpt.blocks.0.up.weight")
    loss, _grad = bt.Oracle(model)([[0, 1]], [[1, 2]])
    assert loss != loss
    assert bt.nn.find_nonfinite(model)[:2] == ("blocks.0.up.weight", "value")


@pytest.mark.parametrize(
    "make", [list, np.array, lambda rows: np.asfortranarray(rows), lambda rows: np.array(rows, "f4")]
)
def test_states_may_have_the_shapes_of_tensors(make):
    layer = bt.nn.Linear(bt.Parameters(dtype="float64"), 3, 2)
    rows = [[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]
    layer.load_state_dict({"weight": make(rows), "bias": make([[7.0, 8.0]][0])})
    assert list(layer.weight.values) == [x for row in rows for x in row]
    assert list(layer.bias.values) == [7.0, 8.0]
    before = {name: list(values) for name, values in layer.state_dict().items()}
    transposed = [list(column) for column in zip(*rows)]
    for wrong in (transposed, [rows], rows[:1], [[0.5, 1.0, 1.5], [2.0, 2.5]], [[0.5, 1.0, 1.5], 2.0], []):
        for given in (wrong, *([np.array(wrong)] if wrong in (transposed, [rows], rows[:1]) else [])):
            with pytest.raises(ValueError, match=r"weight|rows of a state"):
                layer.load_state_dict({"weight": given, "bias": [0.0, 0.0]})
    with pytest.raises((TypeError, ValueError)):
        layer.load_state_dict({"weight": np.array(rows, complex) * 1j, "bias": [0.0, 0.0]})
    assert {name: list(values) for name, values in layer.state_dict().items()} == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3, 8, 9])
def test_layers_of_arrays_are_the_built_in_gpt(dtype, n):
    params, theirs = bt.Parameters(dtype=dtype), bt.Parameters(dtype=dtype, seed=2)
    model = GPT(params)
    built_in = bt.nn.GPT(theirs, VOCAB, CONTEXT, LAYERS, HEADS, WIDTH)
    params.values[:] = list(theirs.values)
    tokens = np.array([[(k * 3 + row) % VOCAB for k in range(n)] for row in range(4)])
    classes = (tokens * 5 + 1) % VOCAB
    loss, grad = bt.Oracle(built_in)(tokens, classes)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    mine = bt.Oracle(lambda x, y: bt.mean(bt.softmax_cross_entropy(model(x), y)), params=params)
    assert mine(tokens, classes)[0] == pytest.approx(loss, rel=tolerance)
    assert list(params.grads) == pytest.approx(list(grad), abs=tolerance)
    logits = bt.function(model, dtype=dtype)(tokens)
    assert logits == pytest.approx(built_in(tokens), abs=tolerance * 10)
    with bt.Graph(dtype=dtype):
        assert model(bt.array(tokens[0])).data == pytest.approx(logits[0], abs=tolerance * 10)


def test_norms_take_numbers_vectors_and_arrays():
    params = bt.Parameters(dtype="float64")
    x = np.array([[3.0, -1.0, 0.5], [1.0, 1.0, 1.0]])
    norm = bt.nn.LayerNorm(params, 3)
    norm.weight.values[:], norm.bias.values[:] = [1.0, 2.0, -1.0], [0.0, 0.5, 1.0]
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * [1, 2, -1] + [0, 0.5, 1]
    assert norm(x) == pytest.approx(expected, rel=1e-12)
    assert norm(bt.array(x)).data == pytest.approx(expected, rel=1e-12)
    assert norm(x[0].tolist()) == pytest.approx(expected[0].tolist(), rel=1e-12)
    assert list(norm(bt.Vector(x[0])).data) == pytest.approx(expected[0], rel=1e-12)
    norm.bias = bt.nn.LayerNorm(params, 3).bias
    assert norm(x) == pytest.approx(expected - [0, 0.5, 1], rel=1e-12)
    for layer in (norm, bt.nn.RMSNorm(params, 3)):
        for wrong in (np.ones(2), np.ones((3, 2)), [1.0], bt.Vector([1.0, 2.0]), bt.array(np.ones(4))):
            with pytest.raises(ValueError):
                layer(wrong)


def test_embeddings_and_character_models_take_arrays_of_tokens():
    params = bt.Parameters(dtype="float64", seed=1)
    table = bt.nn.Embedding(params, 5, 3, positions=4)
    model = bt.nn.CharMLP(params, vocab=5, context=3, embedding=4, hidden=6)
    tokens = np.array([[0, 4, 2], [1, 1, 3]])
    found = bt.function(lambda x: (table(x), model(x), model(x[1])))(tokens)
    assert found[0][1] == pytest.approx(np.array(table(tokens[1].tolist()).rows()))
    assert found[1] == pytest.approx(model(tokens))
    assert found[2] == pytest.approx(model(tokens)[1])
    for wrong, error in (([5], IndexError), ([0.5], IndexError), ([0] * 5, ValueError)):
        with pytest.raises(error):
            table(bt.array(wrong))


def test_tokens_are_refused_where_their_numbers_would_be_lost():
    params = bt.Parameters(dtype="float64")
    x = bt.nn.Embedding(params, 5, 3)([1, 2])
    for call in (bt.sum, bt.prod, bt.max, bt.mean, bt.tanh, np.sum, np.max, np.exp, np.concatenate):
        with pytest.raises(TypeError):
            call(x)
    for call in (lambda: x + 1.0, lambda: 1.0 + x, lambda: np.ones(3) + x, lambda: x + np.ones(3)):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("kind", [bt.optim.Adam, bt.optim.AdamW, lambda p: bt.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_optimisers_are_copied_after_their_parameters_have_grown(kind):
    def steps(optimiser, params, n):
        for _ in range(n):
            params.grads[:] = [1.0 + k for k in range(len(params))]
            optimiser.step()
        return list(params.values)

    params = bt.Parameters(dtype="float64")
    params.tensor(3, init=1.0)
    optimiser = kind(params)
    steps(optimiser, params, 2)
    params.tensor(2, init=1.0)
    before = list(params.values)
    state = optimiser.save_state()
    again = copy.deepcopy(optimiser)
    expected = steps(optimiser, params, 3)
    assert steps(again, again.params, 3) == expected
    params.values[:] = before
    optimiser.load_state(state)
    assert steps(optimiser, params, 3) == expected
    for other in (pickle.loads(pickle.dumps(optimiser)), copy.copy(optimiser)):
        assert other.save_state() == optimiser.save_state()
    fewer = bt.Parameters(dtype="float64")
    fewer.tensor(4)
    with pytest.raises(bt.FormatError):
        kind(fewer).load_state(state)


class Net(bt.nn.Module):
    def __init__(self, params, outputs=2):
        self.inner = bt.nn.Linear(params, 3, 4, activation="tanh")
        self.outer = bt.nn.Linear(params, 4, outputs)

    def __call__(self, x):
        return self.outer(self.inner(x))


class Deciding(Net):
    """Not traceable with Arrays: it decides by a number."""

    def __call__(self, x):
        return super().__call__(x) if x[0] > -100.0 else x


X, CLASSES = np.random.default_rng(0).normal(size=(70, 3)), np.arange(70) % 2
SHARES = np.abs(X[:, :2]) / np.abs(X[:, :2]).sum(1, keepdims=True)
LOSSES = {"classes": ("cross_entropy", CLASSES), "shares": ("cross_entropy", SHARES), "numbers": ("mse", X[:, 1:])}


@pytest.mark.parametrize("kind", [Net, Deciding])
@pytest.mark.parametrize("name", LOSSES)
def test_a_module_with_a_loss_is_the_mlp_of_its_layers(kind, name):
    loss, y = LOSSES[name]
    net = kind(bt.Parameters(dtype="float64", seed=1))
    mlp = bt.nn.MLP(bt.Parameters(dtype="float64"), [3, 4, 2])
    mlp.params.values[:] = net.params.values
    found, expected = bt.Oracle(net, loss=loss), bt.Oracle(mlp, loss=loss)
    close = {"rtol": 1e-10, "atol": 1e-13}
    (value, gradient), (of_mlp, wanted) = found(X, y), expected(X, y)
    assert value == pytest.approx(of_mlp, rel=1e-12)
    np.testing.assert_allclose(gradient, wanted, **close)
    np.testing.assert_allclose(found.losses(X, y), expected.losses(X, y), **close)
    np.testing.assert_allclose(found.per_sample_grads(X[:5], y[:5]), expected.per_sample_grads(X[:5], y[:5]), **close)
    assert "Net" in repr(found) or "Deciding" in repr(found)


def test_a_module_with_one_output_and_wrong_targets():
    net = Net(bt.Parameters(dtype="float64", seed=1), outputs=1)
    oracle = bt.Oracle(net, loss="mse")
    assert oracle.loss(X, X[:, :1]) == pytest.approx(oracle.loss(X, X[:, 0]))
    for wrong in (X[:, :2], X):
        with pytest.raises(ValueError, match="as many numbers as the outputs of a sample"):
            oracle.loss(X, wrong)
    with pytest.raises(ValueError, match="as many numbers as the outputs of a sample, 2, found 1"):
        bt.Oracle(Net(bt.Parameters(dtype="float64")), loss="mse").loss(X, X[:, 0])
    with pytest.raises(ValueError, match="loss must be"):
        bt.Oracle(net, loss="hinge")
    with pytest.raises(ValueError, match="threads must be 1 for a callable"):
        bt.Oracle(net, loss="mse", threads=2)


def test_any_callable_takes_a_loss_of_its_outputs():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 3), init=0.5)
    oracle = bt.Oracle(lambda x: w @ x, loss="cross_entropy", params=params)
    assert oracle.loss(X, CLASSES) == pytest.approx(math.log(2.0))


def test_a_module_with_forward_says_that_calls_run_call():
    class Forward(bt.nn.Module):
        def __init__(self, params):
            self.layer = bt.nn.Linear(params, 2, 1)

        def forward(self, x):
            return self.layer(x)

    class Template(bt.nn.Module):
        def __call__(self, x):
            return self.forward(x)

    class FromTemplate(Template, Forward):
        pass

    class FromForward(Forward, Template):
        pass

    class Renamed(Forward):
        __call__ = Forward.forward

    params = bt.Parameters(dtype="float64")
    model, x, y = Forward(params), np.ones((3, 2)), np.ones((3, 1))
    expected = "Forward defines forward and no __call__: rename forward to __call__"
    for use in (
        lambda: model(x[0]),
        lambda: bt.Oracle(model, loss="mse"),
        lambda: bt.Oracle(model, loss="cross_entropy", params=params),
        lambda: bt.Oracle(model, params=params)(x, y),
        lambda: bt.Oracle(model, params=params, lanes=1)(x, y),
    ):
        with pytest.raises(TypeError, match=expected):
            use()
    for kind in (FromTemplate, FromForward, Renamed):
        own = kind(params)
        assert np.array_equal(own(x[0]), own.layer(x[0]))
        assert bt.Oracle(own, loss="mse", params=params).loss(x, y) >= 0.0
    with pytest.raises(TypeError, match="not callable"):
        bt.nn.Module()(x)
