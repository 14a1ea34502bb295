"""Compressed gradients: the message that compressing the whole gradient gives, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize(
    "compressor",
    [
        compress.Identity(),
        compress.RandK(3),
        compress.RandK(fraction=0.3),
        compress.RandSeqK(40),
        compress.PermK(),
        compress.TopK(7),
        compress.TopLEK(7),
        compress.Natural(),
        compress.QSGD(4),
        compress.Bernoulli(0.5),
        compress.Compose(compress.RandK(9), compress.Natural()),
        compress.Compose(compress.RandSeqK(50), compress.QSGD(3)),
    ],
    ids=repr,
)
def test_messages_are_those_of_the_whole_gradient(compressor, dtype, n):
    params = bt.Parameters(dtype=dtype, seed=1)
    model = bt.nn.CharMLP(params, vocab=5, context=3, embedding=4, hidden=6)
    oracle = bt.Oracle(model)
    x, y = [[k % 5, k % 3, 1] for k in range(n)], [k % 5 for k in range(n)]
    loss, grad = oracle(x, y)
    full = np.array(grad)
    params.grads[:] = 1.0
    clients = {"client": 2, "n_clients": 4} if isinstance(compressor, compress.PermK) else {}
    for round_ in range(8):
        draw = compress.Draw(seed=3, round=round_, client=2)
        found, message = oracle(x, y, compress=compressor, draw=draw, **clients)
        assert found == loss
        assert message == compressor.compress(full, draw, **clients)
        assert message.to_bytes() == compressor.compress(full, draw, **clients).to_bytes()
    assert set(params.grads) == {1.0}


def test_draws_and_clients_are_asked_for():
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.Linear(params, 2, 1))
    x, y = [[1.0, 2.0]], [[1.0]]
    with pytest.raises(ValueError, match="random: give draw="):
        oracle(x, y, compress=compress.RandK(1))
    with pytest.raises(ValueError, match="n_clients"):
        oracle(x, y, compress=compress.PermK(), draw=compress.Draw(1))
    with pytest.raises(ValueError, match="1 to 3"):
        oracle(x, y, compress=compress.RandK(4), draw=compress.Draw(1))
    with pytest.raises(ValueError, match="contexts must have shape"):
        oracle([[1.0]], y, compress=compress.RandK(1), draw=compress.Draw(1))
