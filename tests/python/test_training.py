"""The basis of a training loop in Python: flat parameters, an oracle that overwrites gradients, word contexts,
samples."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

import burtorch as bt

WORDS = ["anna", "hanna", "ana", "nana"] * 5
CONTEXT = 3
N_CONTEXTS = sum(len(word) + 1 for word in WORDS)


@pytest.fixture
def params():
    return bt.Parameters(dtype="float32", seed=0)


@pytest.fixture
def model(params):
    return bt.nn.CharMLP(params, vocab=4, context=CONTEXT, embedding=3, hidden=4)


@pytest.fixture
def data():
    return bt.text.WordContexts(WORDS, context=CONTEXT, holdout=0.1, seed=0)


def rows(contexts, targets):
    """Contexts and targets as a list of (tuple, int)."""
    return list(zip(map(tuple, memoryview(contexts).tolist()), memoryview(targets).tolist()))


def test_parameters_are_flat_shared_memory(params, model):
    values = memoryview(params.values)
    assert (values.format, values.itemsize, values.readonly) == ("f", 4, False)
    assert len(values) == len(params.values) == len(params.grads) == len(params) == params.n
    values[0] = 0.25
    assert params.values[0] == memoryview(params.values)[0] == 0.25


def test_the_oracle_starts_afresh_at_every_call(params, model):
    oracle = bt.Oracle(model)
    loss, grad = oracle([[0, 1, 2]], [3])
    first = list(grad)
    again, grad = oracle([[0, 1, 2]], [3])
    assert (again, list(grad)) == (loss, first)
    assert list(params.grads) == first
    assert any(first)


def test_the_loss_alone_is_the_same_and_leaves_the_gradient(params, model):
    oracle = bt.Oracle(model)
    loss, grad = oracle([[0, 1, 2], [1, 1, 1]], [3, 0])
    before = list(grad)
    assert oracle.loss([[0, 1, 2], [1, 1, 1]], [3, 0]) == pytest.approx(loss, rel=1e-6)
    oracle.loss([[3, 3, 3]], [1])
    assert list(params.grads) == before


@pytest.mark.parametrize("code", "BHIiq")
def test_integer_buffers_of_every_width_are_taken(model, code):
    oracle = bt.Oracle(model)
    flat = memoryview(array(code, [0, 1, 2, 3, 2, 1])).cast("B").cast(code, [2, CONTEXT])
    assert oracle(flat, array(code, [3, 0]))[0] == oracle([[0, 1, 2], [3, 2, 1]], [3, 0])[0]


def test_a_step_moves_the_values_against_the_gradient(params, model):
    _, grad = bt.Oracle(model)([[0, 1, 2]], [3])
    expected = [value - 0.5 * slope for value, slope in zip(params.values, grad)]
    bt.optim.SGD(params, lr=0.5).step()
    assert list(params.values) == pytest.approx(expected, rel=1e-6)


def test_the_rate_can_be_changed(params):
    sgd = bt.optim.SGD(params, lr=0.1)
    sgd.lr *= 0.5
    assert sgd.lr == pytest.approx(0.05)


def test_contexts_are_split_and_none_is_lost(data):
    assert data.vocabulary == "\nahn"
    assert data.n_train + data.n_heldout == N_CONTEXTS
    assert data.n_heldout == pytest.approx(N_CONTEXTS / 10, abs=1)
    found = Counter(rows(*data.train(0, data.n_train))) + Counter(rows(*data.heldout(0, data.n_heldout)))
    expected: Counter[tuple[tuple[int, ...], int]] = Counter()
    for word in WORDS:
        context = [0] * CONTEXT
        for symbol in [*map(data.vocabulary.index, word), 0]:
            expected[tuple(context), symbol] += 1
            context = [*context[1:], symbol]
    assert found == expected


def test_batches_come_from_the_training_part_and_from_the_seed(data):
    contexts, targets = data.batch(7)
    assert memoryview(contexts).shape == (7, CONTEXT)
    assert memoryview(targets).shape == (7,)
    assert set(rows(contexts, targets)) <= set(rows(*data.train(0, data.n_train)))
    same, other = (bt.text.WordContexts(WORDS, context=CONTEXT, holdout=0.1, seed=seed) for seed in (0, 1))
    assert rows(*same.batch(7)) == rows(contexts, targets)
    assert [rows(*other.batch(7)) for _ in range(4)] != [rows(*same.batch(7)) for _ in range(4)]


def test_a_batch_stays_as_it_was_when_the_next_is_drawn(data):
    contexts, targets = data.batch(5)
    before = rows(contexts, targets)
    data.batch(5)
    assert rows(contexts, targets) == before


def test_samples_begin_with_the_prompt_and_repeat_for_a_seed(model, data):
    words = bt.text.sample(model, data.vocabulary, 5, 1, 1.0, prompt="an")
    assert len(words) == 5
    assert all(word.startswith("an") and "\n" not in word for word in words)
    assert bt.text.sample(model, data.vocabulary, 5, 1, 1.0, prompt="an") == words
    assert bt.text.sample(model, data.vocabulary, 5, 2, 1.0, prompt="an") != words
