"""Compressors of vectors, such as the gradients that clients send.

``c.compress(x, draw)`` returns a :class:`Message`; ``message.decompress()`` returns the vector that it encodes. An
unbiased compressor has ``omega(d)``, a contractive one ``alpha(d)``. All randomness is a function of a :class:`Draw`.

    >>> import burtorch as bt
    >>> c = bt.compress.RandSeqK(2)
    >>> message = c.compress([1.0, 2.0, 3.0, 4.0], bt.compress.Draw(seed=0, round=5, client=1))
    >>> message.n_bytes, message.bits, c.omega(4)
    (40, 128.0, 1.0)
"""

from burtorch._core import (
    QSGD,
    Bernoulli,
    Compose,
    Compressor,
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

__all__ = [
    "QSGD",
    "Bernoulli",
    "Compose",
    "Compressor",
    "Draw",
    "Identity",
    "Message",
    "Natural",
    "NaturalDithering",
    "PermK",
    "RandK",
    "RandSeqK",
    "ScaledSign",
    "TernGrad",
    "TopK",
    "TopLEK",
]
