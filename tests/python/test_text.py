"""Word contexts and samples in addition to the training loop: refusals, token ids as arrays, real names."""

from __future__ import annotations

import copy
import pickle
from array import array

import pytest

import burtorch as bt


def contexts(**arguments):
    return bt.text.WordContexts(["anna", "bob", "", "eve"], **{"context": 3, "holdout": 0.2, **arguments})


def test_symbols_are_arrays():
    x, y = contexts().batch(4)
    assert (x.shape, y.shape, len(x), len(y)) == ((4, 3), (4,), 4, 4)
    assert [x[k] for k in range(4)] == x.tolist()
    assert [y[k] for k in range(-4, 0)] == y.tolist()
    view = memoryview(x)
    assert (view.format, view.shape, view.readonly) == ("I", (4, 3), True)
    with pytest.raises(IndexError):
        y[4]
    with pytest.raises(IndexError):
        x[-5]
    np = pytest.importorskip("numpy")
    assert np.asarray(x).tolist() == x.tolist()


def test_names_give_the_pairs_of_the_paper(shared_data):
    data = bt.text.WordContexts(shared_data.read_text().split())
    assert len(data.vocabulary) == 27
    assert (data.n_train + data.n_heldout, data.n_heldout, data.context) == (228_146, 22_815, 16)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"words": []}, ValueError),
        ({"words": [""]}, ValueError),
        ({"words": "anna"}, TypeError),
        ({"words": ["a", 3]}, TypeError),
        ({"words": ["a\nb"]}, ValueError),
        ({"words": None}, TypeError),
        ({"words": ["a"], "context": 0}, ValueError),
        ({"words": ["a"], "context": -1}, ValueError),
        ({"words": ["a"], "holdout": 1.0}, ValueError),
        ({"words": ["a"], "holdout": -0.1}, ValueError),
        ({"words": ["a"], "seed": -1}, ValueError),
    ],
)
def test_bad_words_are_refused(arguments, error):
    with pytest.raises(error):
        bt.text.WordContexts(**arguments)


def test_places_outside_are_refused():
    data = contexts()
    for start, stop in [(0, data.n_train + 1), (2, 1), (3, 3), (data.n_train, data.n_train + 1)]:
        with pytest.raises(ValueError, match="start < stop"):
            data.train(start, stop)
    with pytest.raises(ValueError, match="start < stop"):
        data.heldout(0, data.n_heldout + 1)
    with pytest.raises(ValueError, match="at least one"):
        data.batch(0)
    with pytest.raises(ValueError, match="size must be at least 0, found -1"):
        data.batch(-1)
    with pytest.raises((MemoryError, OverflowError)):
        data.batch(2**60)


def test_any_script_has_symbols():
    data = bt.text.WordContexts(["žena", "жена", "名前", "🙂"], context=2)
    assert data.vocabulary[0] == "\n"
    assert sorted(data.vocabulary) == list(data.vocabulary)
    model = bt.nn.CharMLP(bt.Parameters(), vocab=len(data.vocabulary), context=2, embedding=2, hidden=2)
    assert all(word.startswith("名") for word in bt.text.sample(model, data.vocabulary, 3, prompt="名"))


def test_sampling_is_greedy_at_temperature_zero_and_refuses_nonsense():
    data = contexts()
    model = bt.nn.CharMLP(bt.Parameters(), vocab=len(data.vocabulary), context=3, embedding=2, hidden=4)

    def sample(vocabulary=data.vocabulary, n=3, **arguments):
        return bt.text.sample(model, vocabulary, n, **arguments)

    assert len(set(sample(temperature=0.0))) == 1
    assert sample(n=0) == []
    assert all(len(word) <= 100 for word in sample(n=20))
    for arguments in (
        {"vocabulary": data.vocabulary[1:]},
        {"vocabulary": data.vocabulary + "z"},
        {"vocabulary": "\nba" + data.vocabulary[3:]},
        {"vocabulary": ""},
        {"prompt": "x"},
        {"temperature": -1.0},
        {"temperature": float("nan")},
    ):
        with pytest.raises(ValueError, match=r"vocabulary|temperature"):
            sample(**arguments)
    with pytest.raises(ValueError, match="n must be at least 0, found -1"):
        sample(n=-1)
    with pytest.raises(TypeError):
        bt.text.sample(None, data.vocabulary, 1)


def test_a_trained_model_repeats_its_training_words():
    data = bt.text.WordContexts(["ab"], context=2, holdout=0.0)
    params = bt.Parameters(seed=0)
    model = bt.nn.CharMLP(params, vocab=3, context=2, embedding=4, hidden=8)
    oracle, sgd = bt.Oracle(model), bt.optim.SGD(params, lr=0.5)
    for _ in range(300):
        oracle(*data.batch(8))
        sgd.step()
    assert bt.text.sample(model, data.vocabulary, 5, temperature=0.3) == ["ab"] * 5
    assert array("I", data.train(0, 3)[1]).tolist() == [1, 2, 0]


def test_samplings_draw_batches():
    """`Reshuffle` visits every position once per epoch; the positions that a sampling selects, for words and
    windows."""
    data = contexts()
    n = data.n_train
    got = [data.batch(bt.opt.Reshuffle(4), round=k, seed=3) for k in range(-(-n // 4))]
    rows = sorted((*x, y) for xs, ys in got for x, y in zip(xs.tolist(), ys.tolist()))
    xs, ys = data.train(0, n)
    assert rows == sorted((*x, y) for x, y in zip(xs.tolist(), ys.tolist()))
    windows = bt.text.TextWindows("the quick brown fox jumps over the lazy dog " * 4, context=6, holdout=0.1)
    for source in (data, windows):
        sampling = bt.opt.Nice(3)
        chosen = sampling.batch(source.n_train, seed=9, round=2)[0].tolist()
        x, y = source.batch(sampling, seed=9, round=2)
        assert [a.tolist() for a in source.batch(sampling, seed=9, round=2)] == [x.tolist(), y.tolist()]
        for k, place in enumerate(chosen):
            expected = source.train(place, place + 1)
            assert [x.tolist()[k], y.tolist()[k]] == [expected[0].tolist()[0], expected[1].tolist()[0]]
        before = source.save_state()
        with pytest.raises(ValueError):
            source.batch(bt.opt.Nice(source.n_train + 1))
        with pytest.raises((TypeError, ValueError)):
            source.batch("all")
        assert source.save_state() == before


def test_no_words_are_named_as_such():
    with pytest.raises(ValueError, match="words must contain one that is not empty, found none"):
        bt.text.WordContexts([])
    with pytest.raises(ValueError, match="words must contain one that is not empty, found only empty ones"):
        bt.text.WordContexts(["", ""])


DATA = {
    "words": lambda: bt.text.WordContexts(["anna", "b\u00f6b", "", "eve"], context=3, holdout=0.3, seed=5),
    "text": lambda: bt.text.TextWindows("to be or n\u00f6t\nto be" * 4, context=4, holdout=0.3, seed=5),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_copies_continue_with_the_same_batches(name, again):
    def lists(pair):
        return [part.tolist() for part in pair]

    data = DATA[name]()
    data.batch(3)
    other = again(data)
    assert type(other) is type(data)
    assert (other.vocabulary, other.context, repr(other)) == (data.vocabulary, data.context, repr(data))
    assert other.save_state() == data.save_state()
    assert lists(other.train(0, data.n_train)) == lists(data.train(0, data.n_train))
    assert lists(other.heldout(0, data.n_heldout)) == lists(data.heldout(0, data.n_heldout))
    expected = [lists(data.batch(5)) for _ in range(4)]
    assert [lists(other.batch(5)) for _ in range(4)] == expected


def test_reshuffled_batches_of_data_are_those_of_new_rules():
    data = bt.text.WordContexts(["anna", "bob", "eve"], context=2, holdout=0.0)
    kept = bt.opt.Reshuffle(4)
    rounds = [*range(8), 1, 0, 7, 2]
    for seed in (0, 1, 0):
        for k in rounds:
            found, expected = data.batch(kept, seed=seed, round=k), data.batch(bt.opt.Reshuffle(4), seed=seed, round=k)
            assert [part.tolist() for part in found] == [part.tolist() for part in expected]
