"""Clients divided among the processes of MPI, by mpi4py (``pip install "burtorch[mpi]"``), which is imported when used.

Every process takes the same steps; what its clients send is summed by the fixed tree over all clients, and only the
sums of complete subtrees are exchanged. So the iterates have the same bits for any number of processes, and as without
MPI. Messages are NumPy buffers with a length and a checksum; nothing is pickled.

    mpiexec -n 4 python -m mpi4py script.py
    mpiexec -n 4 burtorch optimise --engine mpi --data a9a --method ef21 --compressor topk:0.05

docs/many-machines.md says which engine to use when.
"""

from __future__ import annotations

import importlib
import os
import time
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["Engine"]

SPINS = 200
"""Questions whether an exchange is done before other processes are let run in between."""


class Engine:
    """The processes of a communicator.

    Args:
        comm: of mpi4py; all processes that mpiexec started unless told otherwise.
        timeout: seconds that an exchange may take, or other processes may be late for it.

    Pass it as `engine=` to a method of clients, or pass "mpi". Clients are divided in order, as evenly as possible.
    Processes must be given the same problem and arguments. An exchange raises TimeoutError where others are late,
    RuntimeError where one has failed, and ValueError for a message of the wrong length, place or checksum; start
    scripts with ``python -m mpi4py``, which then ends all processes.

    Raises ImportError without mpi4py.
    """

    def __init__(self, comm: Any = None, *, timeout: float = 60.0) -> None:
        try:
            self._mpi: Any = importlib.import_module("mpi4py.MPI")
        except ImportError as error:
            raise ImportError(f'the engine "mpi" needs mpi4py (pip install "burtorch[mpi]"): {error}') from error
        self.comm: Any = self._mpi.COMM_WORLD if comm is None else comm
        self.timeout = timeout
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self._exchanges = 0

    def here(self, n_clients: int) -> tuple[int, int]:
        """The first client of this process, and the one after its last."""
        return self.rank * n_clients // self.size, (self.rank + 1) * n_clients // self.size

    def gather(self, own: Numbers) -> Numbers:
        """What all processes give, one after the other, in the order of their clients. One that gives nothing has
        failed, which is an error in all of them."""
        return self._gather(own, failure=0)

    def rows(self, own: Numbers) -> Numbers:
        """The same, where a process may have nothing to give."""
        return self._gather(own, failure=-1)

    def _gather(self, own: Numbers, failure: int) -> Numbers:
        import numpy as np

        own = np.ascontiguousarray(own, np.float64)
        self._exchanges += 1
        head = np.array([self._exchanges, len(own), zlib.crc32(own.data)], np.int64)
        heads = np.empty((self.size, 3), np.int64)
        self._wait(self.comm.Iallgather(head, heads))
        for rank, (place, length, _) in enumerate(heads.tolist()):
            if place != self._exchanges:
                raise ValueError(f"rank {rank} is at exchange {place}, rank {self.rank} at {self._exchanges}")
            if length == failure:
                raise RuntimeError(f"rank {rank} failed; its own message says why")
        lengths = heads[:, 1]
        found = np.empty(int(lengths.sum()))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        self._wait(self.comm.Iallgatherv(own, [found, lengths, starts[:-1], self._mpi.DOUBLE]))
        for rank in range(self.size):
            if zlib.crc32(found[starts[rank] : starts[rank + 1]].data) != heads[rank, 2]:
                raise ValueError(f"a message of rank {rank} has another checksum than it was sent with")
        return found

    def tell(self, text: bytes | None) -> bytes | None:
        """What rank 0 gives, in all processes."""
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
        """Until an exchange is done."""
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
