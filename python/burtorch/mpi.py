"""Clients divided among MPI processes with mpi4py (``pip install "burtorch[mpi]"``), which is imported when used.

Every process takes the same steps; its clients' messages are summed by the fixed tree over all clients, and only the
sums of complete subtrees are exchanged. The iterates therefore have the same bits for any number of processes, and
without MPI. Messages are NumPy buffers with a length and a checksum; nothing is pickled. `predict` models the gain of
more processes.

    mpiexec -n 4 python -m mpi4py script.py
    mpiexec -n 4 burtorch optimise --engine mpi --data a9a --method ef21 --compressor topk:0.05

docs/many-machines.md explains how to choose an engine.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import math
import os
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ._core import Oracle

    Numbers = NDArray[np.float64]
    Bytes = NDArray[np.uint8]

__all__ = ["Engine", "Predicted", "predict"]

SPINS = 200
"""Polls of an exchange before the CPU is yielded to other processes."""


class Engine:
    """The processes of a communicator.

    Args:
        comm: a communicator of mpi4py; by default all processes started by mpiexec.
        timeout: the most seconds for an exchange, including waiting for other processes.
        deterministic: False adds with MPI_SUM instead of the fixed tree: fewer bytes with many ranks, but iterates
            depend on their number within rounding, which a method may enlarge.

    Sums that are mostly 0, such as those of compressed messages, are sent as positions and numbers. `sent_bytes` counts
    the bytes that this process contributed to exchanges.

    Pass it as `engine=` to a method with clients, or pass "mpi". Clients are divided in order, as evenly as possible.
    Processes must receive the same problem and arguments. An exchange raises TimeoutError if others are late,
    RuntimeError if one has failed, and ValueError for a message of the wrong length, place or checksum; start
    scripts with ``python -m mpi4py``, which then ends all processes.

    Raises ImportError without mpi4py.
    """

    def __init__(self, comm: Any = None, *, timeout: float = 60.0, deterministic: bool = True) -> None:
        if not timeout > 0.0:
            raise ValueError(f"timeout must be above 0, found {timeout}")
        try:
            self._mpi: Any = importlib.import_module("mpi4py.MPI")
        except ImportError as error:
            raise ImportError(f'the engine "mpi" needs mpi4py (pip install "burtorch[mpi]"): {error}') from error
        self.comm: Any = self._mpi.COMM_WORLD if comm is None else comm
        self.timeout, self.deterministic = timeout, deterministic
        self.sent_bytes = 0
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self._exchanges = 0

    def here(self, n_clients: int) -> tuple[int, int]:
        """The first client of this process, and the one after its last."""
        return self.rank * n_clients // self.size, (self.rank + 1) * n_clients // self.size

    def gather(self, own: Numbers) -> Numbers:
        """The concatenated contributions of all processes, in the order of their clients. An empty contribution means
        that the process has failed, which is an error in all of them."""
        return self._gather(own, failure=0) if self.deterministic else self._sum(own)

    def rows(self, own: Numbers) -> Numbers:
        """The same, but contributions may be empty."""
        return self._gather(own, failure=-1)

    def same(self, text: str) -> None:
        """Raises ValueError if processes pass different texts."""
        import numpy as np

        own = hashlib.sha256(text.encode()).digest()
        for rank, other in enumerate(self._parts(np.frombuffer(own, np.uint8))):
            if other.tobytes() != own:
                raise ValueError(f"ranks {rank} and {self.rank} have different methods, problems or arguments")

    def gradient(self, oracle: Oracle, x: Any, y: Any = None, *, overlap: bool = False) -> float:
        """The loss and the gradient of a batch divided among the processes: the means over the processes.

        ``oracle.params.grads`` holds the gradient afterwards, with the same bits in all processes, so an optimiser
        can step. Each process takes the mean over its own samples, so parts should have equal sizes. Sums use a fixed
        tree over the processes, or MPI_SUM without `deterministic`.

        With ``overlap=True`` the gradient of a layer is sent while those of the layers below are computed, with the
        same bits. This takes a second thread; without a free core for it, a step takes longer.

        Raises ValueError if the models of the processes differ in size or type.

            engine = bt.mpi.Engine()
            for step in range(1000):
                loss = engine.gradient(oracle, *batch(step, engine.rank))
                sgd.step()
        """
        import numpy as np

        grads = np.asarray(oracle.params.grads)
        head = f"{grads.dtype.str}[{grads.size}]".encode().ljust(32)
        heads = self._parts(np.frombuffer(head, np.uint8))
        for rank, other in enumerate(heads):
            if other.tobytes() != head:
                found = other.tobytes().decode().strip()
                raise ValueError(f"rank {rank} has gradients {found}, rank {self.rank} {head.decode().strip()}")
        mean = np.empty_like(grads)
        if overlap:

            def send(part: range, gradient: Any) -> None:
                mean[part.start : part.stop] = self._mean(np.array(gradient))

            loss = oracle.stream(x, y, send, on_thread=True)
        else:
            loss, _ = oracle(x, y)
            mean[:] = self._mean(grads)
        grads[:] = mean
        return float(self._mean(np.array([loss]))[0])

    def _mean(self, own: NDArray[Any]) -> NDArray[Any]:
        """The mean over the processes of equally many numbers."""
        import numpy as np

        if self.deterministic:
            rows = [row.copy().view(own.dtype) for row in self._parts(own.view(np.uint8))]
            while len(rows) > 1:
                pairs = [a + b for a, b in zip(rows[::2], rows[1::2], strict=False)]
                rows = pairs + rows[2 * len(pairs) :]
            total: NDArray[Any] = rows[0]
        else:
            total = np.empty_like(own)
            self._wait(self.comm.Iallreduce(own, total, op=self._mpi.SUM))
            self.sent_bytes += own.nbytes
        mean: NDArray[Any] = total / own.dtype.type(self.size)
        return mean

    def _parts(self, own: Bytes) -> NDArray[np.uint8]:
        """The bytes of all processes, which contribute equally many, as rows."""
        import numpy as np

        self._exchanges += 1
        tail = np.array([self._exchanges, zlib.crc32(own.data)], np.int64).view(np.uint8)
        sent = np.concatenate([own, tail])
        received = np.empty((self.size, len(sent)), np.uint8)
        self._wait(self.comm.Iallgather(sent, received))
        self.sent_bytes += len(sent)
        for rank, row in enumerate(received):
            place, checksum = row[-16:].copy().view(np.int64).tolist()
            if place != self._exchanges:
                raise ValueError(f"rank {rank} is at exchange {place}, rank {self.rank} at {self._exchanges}")
            if zlib.crc32(row[:-16].data) != checksum:
                raise ValueError(f"the checksum of a message of rank {rank} is wrong")
        return received[:, :-16]

    def _gather(self, own: Numbers, failure: int) -> Numbers:
        import numpy as np

        own = np.ascontiguousarray(own, np.float64)
        sent = _encoded(own)
        self._exchanges += 1
        head = np.array([self._exchanges, len(own), len(sent), zlib.crc32(sent.data)], np.int64)
        heads = np.empty((self.size, 4), np.int64)
        self._wait(self.comm.Iallgather(head, heads))
        for rank, (place, length, _, _) in enumerate(heads.tolist()):
            if place != self._exchanges:
                raise ValueError(f"rank {rank} is at exchange {place}, rank {self.rank} at {self._exchanges}")
            if length == failure:
                raise RuntimeError(f"rank {rank} failed; its own message says why")
        sizes = heads[:, 2]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        received = np.empty(int(starts[-1]), np.uint8)
        self._wait(self.comm.Iallgatherv(sent, [received, sizes, starts[:-1], self._mpi.BYTE]))
        self.sent_bytes += head.nbytes + len(sent)
        found = np.zeros(int(heads[:, 1].sum()))
        at = 0
        for rank, length in enumerate(heads[:, 1].tolist()):
            message = received[starts[rank] : starts[rank + 1]]
            if zlib.crc32(message.data) != heads[rank, 3]:
                raise ValueError(f"the checksum of a message of rank {rank} is wrong")
            _decode(message, found[at : at + length])
            at += length
        return found

    def _sum(self, own: Numbers) -> Numbers:
        """The sum of all contributions, in an order chosen by MPI. A payload is the number of sums, a time, and
        for each sum a client and the numbers."""
        import numpy as np

        self._exchanges += 1
        n = int(own[0]) if len(own) else 0
        rows = own[2:].reshape(n, -1)[:, 1:] if n else np.empty((0, 0))
        width = rows.shape[1]
        failed = 0.0 if len(own) else self.rank + 1.0
        longest = float(own[1]) if len(own) else 0.0
        facts = np.array([failed, self._exchanges, -self._exchanges, width, -width if n else -math.inf, longest])
        largest = np.empty_like(facts)
        self._wait(self.comm.Iallreduce(facts, largest, op=self._mpi.MAX))
        failed, last, first, widest, narrowest, longest = largest.tolist()
        if failed:
            raise RuntimeError(f"rank {int(failed) - 1} failed; its own message says why")
        if last != -first:
            raise ValueError(f"ranks are at the exchanges {int(-first)} to {int(last)}, expected the same")
        if widest == 0:
            return np.array([0.0, longest])
        if widest != -narrowest:
            raise ValueError(f"ranks sum {int(-narrowest)} to {int(widest)} numbers, expected the same")
        total = rows.sum(axis=0) if n else np.zeros(int(widest))
        found = np.empty(3 + len(total))
        found[:3] = 1.0, longest, 0.0
        self._wait(self.comm.Iallreduce(total, found[3:], op=self._mpi.SUM))
        self.sent_bytes += facts.nbytes + total.nbytes
        return found

    def tell(self, text: bytes | None) -> bytes | None:
        """The text of rank 0, in all processes."""
        import numpy as np

        length = np.array([-1 if text is None else len(text)], np.int64)
        self._wait(self.comm.Ibcast(length, 0))
        if length[0] < 0:
            return None
        content = np.empty(int(length[0]), np.uint8)
        if self.rank == 0 and text is not None:
            content[:] = np.frombuffer(text, np.uint8)
        self._wait(self.comm.Ibcast(content, 0))
        return content.tobytes()

    def abort(self) -> None:
        """Ends all processes."""
        self.comm.Abort(1)

    def _wait(self, request: Any) -> None:
        """Waits until an exchange is done."""
        end, spins = time.monotonic() + self.timeout, 0
        while not request.Test():
            spins += 1
            if spins > SPINS:
                if time.monotonic() > end:
                    late = f"other ranks have not answered rank {self.rank} for {self.timeout} s"
                    raise TimeoutError(f"{late}: they ended, or take longer than timeout= allows")
                if hasattr(os, "sched_yield"):
                    os.sched_yield()

    def __repr__(self) -> str:
        return f"<burtorch.mpi.Engine rank {self.rank} of {self.size}>"


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


PLACE = 4
"""Bytes of the position of a number that is sent alone."""


def _encoded(own: Numbers) -> Bytes:
    """The bytes of all numbers, or of the numbers other than +0 with their positions if these are fewer bytes."""
    import numpy as np

    places = np.flatnonzero(own.view(np.int64))
    if len(own) >= 2**32 or (8 + PLACE) * len(places) >= 8 * len(own):
        return own.view(np.uint8)
    return np.concatenate([own[places].view(np.uint8), places.astype(np.uint32).view(np.uint8)])


def _decode(message: Bytes, to: Numbers) -> None:
    """Writes the numbers of a message over zeros."""
    import numpy as np

    if len(message) == to.nbytes:
        to.view(np.uint8)[:] = message
        return
    n, rest = divmod(len(message), 8 + PLACE)
    places = np.frombuffer(message[8 * n :].tobytes(), np.uint32) if rest == 0 else np.array([len(to)])
    if len(message) > to.nbytes or (places >= len(to)).any():
        raise ValueError(f"a message of {len(message)} bytes cannot contain {len(to)} numbers")
    to[places] = np.frombuffer(message[: 8 * n].tobytes(), np.float64)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predicted round of synchronous clients for one number of ranks."""

    ranks: int
    """Processes."""
    compute: float
    """Seconds of the rank with the most clients."""
    exchange: float
    """Seconds of the exchange that follows."""
    speedup: float
    """The seconds of a round with one rank, divided by those of this round."""
    efficiency: float
    """The speedup divided by the number of ranks."""


def predict(
    ranks: Sequence[int],
    *,
    clients: int,
    seconds: float,
    numbers: int,
    alpha: float,
    beta: float,
    sent: int | None = None,
    deterministic: bool = True,
) -> list[Predicted]:
    """Predict a round for each number of ranks, each on its own core. This is a model, not a measurement.

    Args:
        ranks: numbers of processes.
        clients: the number of clients, divided among the processes.
        seconds: the work of one client in a round.
        numbers: d.
        alpha: seconds of an empty message in your network.
        beta: seconds per byte.
        sent: numbers in a client's compressed message; by default d.
        deterministic: as for `Engine`.

    A round is the work of the rank with the most clients followed by its exchange. With the fixed tree the exchange is
    an all-gather of 32 bytes, ceil(log2 P) alpha, and a ring all-gather, (P - 1) alpha + beta times the bytes of the
    others: the sums of each rank's largest complete subtrees, at 8 bytes per number, or 12 per non-zero number if that
    is less (in a sum of m clients at most m times `sent`). Otherwise it is two all-reduces: 4 ceil(log2 P) alpha +
    2 (P - 1)/P 8 d beta. Work and exchange do not overlap.

    Raises ValueError for numbers below 1 and times that are negative or not finite.

    Example:
        >>> import burtorch as bt
        >>> for p in bt.mpi.predict([1, 4, 16], clients=64, seconds=1e-3, numbers=10_000, alpha=2e-6, beta=1e-9):
        ...     print(p.ranks, round(1e3 * p.compute, 2), round(1e3 * p.exchange, 2), round(p.efficiency, 2))
        1 64.0 0.0 1.0
        4 16.0 0.25 0.98
        16 4.0 1.24 0.76
    """
    sent = numbers if sent is None else sent
    counts = {"ranks": min(ranks, default=0), "clients": clients, "numbers": numbers, "sent": sent}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, found {count}")
    for name, time_of in (("seconds", seconds), ("alpha", alpha), ("beta", beta)):
        if not 0.0 <= time_of < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, found {time_of}")
    whole = clients * seconds
    found = []
    for n in ranks:
        compute = -(-clients // n) * seconds
        exchange = _exchange_seconds(n, clients, numbers, alpha, beta, sent, deterministic)
        speedup = whole / (compute + exchange) if compute + exchange else 1.0
        found.append(Predicted(n, compute, exchange, speedup, speedup / n))
    return found


def _exchange_seconds(
    ranks: int, clients: int, numbers: int, alpha: float, beta: float, sent: int, deterministic: bool
) -> float:
    if ranks == 1:
        return 0.0
    rounds = (ranks - 1).bit_length()
    if not deterministic:
        return 4 * rounds * alpha + 2 * (ranks - 1) / ranks * 8 * numbers * beta
    cuts = [rank * clients // ranks for rank in range(ranks + 1)]
    sizes = [
        sum(min(8 * numbers, (8 + PLACE) * size * sent) for size in _subtrees(start, end, clients))
        for start, end in itertools.pairwise(cuts)
    ]
    return rounds * alpha + (ranks - 1) * alpha + beta * (sum(sizes) - min(sizes))


def _subtrees(start: int, end: int, n: int) -> list[int]:
    """The sizes of the largest complete subtrees of a range, with n clients in all."""
    found = []
    while start < end:
        size = 1 << (start & -start).bit_length() - 1 if start else 1 << n.bit_length()
        while start + size > end and end != n:
            size //= 2
        found.append(min(size, end - start))
        start += size
    return found
