"""Compressors: by enumeration of all outcomes, and as Python objects."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress
from burtorch.compress import (
    QSGD,
    Bernoulli,
    Compose,
    Draw,
    Identity,
    Message,
    Natural,
    NaturalDithering,
    PermK,
    RandK,
    RandSeqK,
    ScaledSign,
    TernGrad,
    TopK,
    TopLEK,
)

D = 6
X = np.array([2.0, -2.0, 2.0, 2.0, -3.0, 0.0])
THIRDS = np.array([4, -8, 1, -4, 2, 4]) / 3

ALL = [
    *(Identity(), RandK(2), RandSeqK(2), PermK(), TopK(2), TopLEK(2), Natural(), QSGD(4), NaturalDithering(3)),
    *(TernGrad(), ScaledSign(), Bernoulli(0.25), RandK(fraction=0.5), Compose(TopK(2), Natural())),
]


def outcomes(c, x, sizes, **client):
    """C(x) for all equally likely outcomes, one row each, given the number of outcomes per draw."""
    grids = [(np.arange(n) + 0.5) / n for n in sizes]
    draws = itertools.product(*grids)
    return np.array([c.compress(x, Draw.of(list(draw)), **client).decompress() for draw in draws])


def check_unbiased(c, x, sizes, tight, n_clients=None, **client):
    options = {} if n_clients is None else {"n_clients": n_clients, **client}
    found = outcomes(c, x, sizes, **options)
    np.testing.assert_allclose(found.mean(0), x, rtol=1e-12, atol=1e-14)
    variance = ((found - x) ** 2).sum(1).mean()
    bound = c.omega(len(x), n_clients) * (x @ x)
    assert variance <= bound * (1 + 1e-12)
    if tight:
        assert variance == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("k", range(1, D + 1))
def test_random_coordinates_have_the_variance_of_theory(k):
    check_unbiased(RandK(k), X, range(D - k + 1, D + 1), tight=True)
    check_unbiased(RandSeqK(k), X, [D], tight=True)
    assert RandK(k).omega(D) == RandSeqK(k).omega(D) == D / k - 1


def test_unbiased_rules_keep_within_their_omega():
    check_unbiased(Natural(), THIRDS, [3] * D, tight=True)
    check_unbiased(QSGD(4), X, [5] * D, tight=False)
    check_unbiased(NaturalDithering(3), X, [5] * D, tight=False)
    check_unbiased(TernGrad(), X, [3] * D, tight=False)
    check_unbiased(Bernoulli(0.25), X, [4], tight=True)
    check_unbiased(PermK(), X, [4, 6, 5, 4, 3, 2], tight=True, n_clients=4, client=2)
    check_unbiased(Compose(RandK(2), Natural()), THIRDS, [5, 6, 3, 3], tight=True)


def test_contractive_rules_reach_their_alpha():
    for k in range(1, D + 1):
        ones = np.ones(D)
        error = ((TopK(k).compress(ones).decompress() - ones) ** 2).sum()
        assert error == pytest.approx((1 - TopK(k).alpha(D)) * D) == D - k
    # k/d of |x|^2 = 20 lies 20/27 of the way to the first square, a quarter of the way from the first to the second.
    x = np.array([3.0, 2, 2, 1, 1, 1])
    for k, n in [(2, 27), (3, 4)]:
        found = outcomes(TopLEK(k), x, [n])
        assert ((found - x) ** 2).sum(1).mean() == pytest.approx((1 - k / D) * 20, rel=1e-12)
        assert np.count_nonzero(found, axis=1).max() <= k


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("c", ALL, ids=repr)
def test_bytes_decode_to_the_same_message(c, dtype):
    rng = np.random.default_rng(0)
    for d in (2, 3, 17, 1000):
        x = rng.normal(size=d).astype(dtype)
        message = c.compress(x, Draw(1, d, 2), client=1, n_clients=3)
        data = message.to_bytes()
        assert len(data) == message.n_bytes
        assert message.bits <= 8 * len(data)
        again = Message.from_bytes(data)
        assert again == message == pickle.loads(pickle.dumps(message))
        assert again.dtype == dtype
        assert len(again) == d
        dense = again.decompress()
        assert dense.dtype == dtype
        np.testing.assert_array_equal(dense, message.decompress())
        np.testing.assert_array_equal(dense[again.indices], again.values)
        assert np.count_nonzero(dense) <= len(again.indices)
        other = "float64" if dtype == "float32" else "float32"
        for wrong in (data[:-1], data + b"\0", b""):
            with pytest.raises(bt.FormatError):
                Message.from_bytes(wrong)
        with pytest.raises(bt.FormatError, match=f"{dtype} instead of {other}"):
            Message.from_bytes(data, other)


def test_draws_decide_random_choices():
    x = np.random.default_rng(0).normal(size=100)
    for c in ALL:
        first = c.compress(x, Draw(3, 4, 1), n_clients=3)
        assert first == c.compress(list(x), Draw(seed=3, round=4, client=1), n_clients=3)
        is_random = c not in (Identity(), TopK(2), ScaledSign())
        # Draws with few outcomes may coincide; each argument matters, except that PermK shares a partition.
        for k in (0, 1) if c == PermK() else (0, 1, 2):
            draws = [Draw(*(j + 3 if i == k else i + 1 for i in range(3))) for j in range(40)]
            others = [c.compress(x, draw, client=1, n_clients=3) for draw in draws]
            assert any(other != others[0] for other in others) == is_random
    # Clients share the partition of PermK.
    parts = [PermK().compress(np.ones(7), Draw(0, 0, i), n_clients=3) for i in range(3)]
    assert sorted(np.concatenate([part.indices for part in parts])) == list(range(7))


def test_natural_draws_are_those_of_numpy_generator():
    counter = np.array([2**64 - 1, 8, 5, 1], dtype="u8")
    u = np.random.Generator(np.random.Philox(key=7, counter=counter)).random(50)
    x = np.random.default_rng(1).uniform(1, 2, size=50)
    up = Natural().compress(x, Draw(7, round=9, client=5)).decompress() == 2
    np.testing.assert_array_equal(up, u >= 2 - x)


def test_memory_is_used_again_and_results_go_where_they_are_wanted():
    message, x = Message.from_bytes(Identity().compress([1.0]).to_bytes()), np.arange(8.0)
    assert TopK(2).compress(x, out=message) is message
    out = np.full(8, 5.0)
    assert message.decompress(out) is out
    assert out.tolist() == [0, 0, 0, 0, 0, 0, 6, 7]
    message.add_to(out, -0.5)
    assert out.tolist() == [0, 0, 0, 0, 0, 0, 3, 3.5]
    strided = np.ones((8, 3), dtype="float32")
    message.add_to(strided[:, 1])
    assert strided[:, 1].tolist() == [1, 1, 1, 1, 1, 1, 7, 8]
    assert strided.sum() == 24 + 13
    assert TopK(1).compress(x.astype("float32")[::-2], out=message).indices.tolist() == [0]
    assert message.dtype == "float32"


@pytest.mark.parametrize("c", ALL, ids=repr)
def test_compressors_are_values(c):
    assert pickle.loads(pickle.dumps(c)) == c == eval(repr(c), vars(compress))
    assert type(pickle.loads(pickle.dumps(c))) is type(c)
    assert isinstance(c, compress.Compressor)
    assert hash(c) == hash(pickle.loads(pickle.dumps(c)))
    assert [other for other in ALL if other == c] == [c]
    assert c != "TopK"


def test_draws_are_values():
    for draw in (Draw(1, 2, 3), Draw(1), Draw.of([0.25, 0.5])):
        assert pickle.loads(pickle.dumps(draw)) == draw == eval(repr(draw), {"Draw": Draw})
        assert hash(pickle.loads(pickle.dumps(draw))) == hash(draw)
    assert Draw(1) != Draw(2)


NAN, INF = float("nan"), float("inf")
WRONG = {
    "k above d": lambda: TopK(3).compress([1.0, 2.0]),
    "RandK above d": lambda: RandK(3).compress([1.0, 2.0], Draw(0)),
    "omega of k above d": lambda: RandK(3).omega(2),
    "k of 0": lambda: RandK(0),
    "negative k": lambda: TopK(-1),
    "fraction": lambda: TopLEK(fraction=1.5),
    "nan fraction": lambda: TopLEK(fraction=NAN),
    "p": lambda: Bernoulli(0.0),
    "levels": lambda: QSGD(0),
    "many levels": lambda: NaturalDithering(101),
    "more levels": lambda: QSGD(2**16),
    **{f"nothing to {c!r}": lambda c=c: c.compress([], Draw(0), n_clients=2) for c in ALL},
    **{
        f"{bad} to {c!r}": lambda c=c, bad=bad: c.compress([1.0, bad, 1.0], Draw(0))
        for c in (TopLEK(1), Natural(), QSGD(4), NaturalDithering(3), TernGrad(), ScaledSign())
        for bad in (NAN, INF)
    },
    "nan to TopK": lambda: TopK(1).compress([1.0, NAN]),
    "above powers": lambda: Natural().compress(np.array([3e38], dtype="float32"), Draw(0)),
    "matrix": lambda: Identity().compress(np.ones((2, 2))),
    "no draw": lambda: RandK(1).compress([1.0]),
    "few draws": lambda: RandK(2).compress([1.0, 2.0, 3.0], Draw.of([0.5])),
    "draw of 1": lambda: Draw.of([1.0]),
    "no clients": lambda: PermK().compress([1.0], Draw(0)),
    "PermK omega": lambda: PermK().omega(3),
    "client": lambda: PermK().compress([1.0], Draw(0), client=2, n_clients=2),
    "omega of TopK": lambda: TopK(1).omega(3),
    "alpha of RandK": lambda: RandK(1).alpha(3),
    "two quantisers": lambda: Compose(Natural(), QSGD(2)),
    "wrong order": lambda: Compose(Natural(), TopK(2)),
    "out of another length": lambda: Identity().compress([1.0]).decompress(np.ones(2)),
    "dtype": lambda: Message.from_bytes(b"", "float16"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_a_value_error(name):
    with pytest.raises(ValueError):
        WRONG[name]()


def test_arguments_of_wrong_types():
    for call in (
        lambda: TopK(),
        lambda: TopK(1, 0.5),
        lambda: TopK("a"),
        lambda: Identity().compress([1.0]).decompress(np.ones(1, dtype=int)),
        lambda: Message.from_bytes("text"),
        lambda: TopK(1).compress("text"),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_after_an_error_a_message_is_empty():
    message = Identity().compress([1.0, 2.0])
    with pytest.raises(ValueError):
        TopK(1).compress([NAN], out=message)
    assert len(message) == 0
    assert message.values.tolist() == []
