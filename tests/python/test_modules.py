"""Layers composed in Python: their values and gradients are those of the built-in GPT."""

import pytest

import burtorch as bt

VOCAB, CONTEXT, LAYERS, HEADS, WIDTH = 11, 9, 2, 2, 8


class GPT(bt.nn.Module):
    """The built-in GPT, rebuilt from layers; its tensors lie in the same order."""

    def __init__(self, params):
        self.embedding = bt.nn.Embedding(params, VOCAB, WIDTH, positions=CONTEXT)
        self.blocks = [bt.nn.Block(params, WIDTH, HEADS) for _ in range(LAYERS)]
        self.head = bt.nn.Dense(params, WIDTH, VOCAB)

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
    hidden, output = bt.nn.Dense(params, 24, 5), bt.nn.Dense(params, 5, 27)
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
    first = bt.nn.Dense(params, 3, 3)
    tied = GPT(params)
    tied.again = first
    tied.first = first
    assert tied.n_parameters == len(params)


def test_layers_refuse_what_does_not_fit():
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
            (lambda: bt.nn.Dense(params, 5, 2)(x), ValueError),
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
