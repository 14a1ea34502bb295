"""Methods of clients on Flower (``pip install "burtorch[flower]"``), whose flwr is imported when used.

A ServerApp takes the steps; each ClientApp has one client, whose state stays with it in Flower's context. Replies are
sorted by the clients' numbers and summed by the fixed tree, so the iterates are those of the same method in one
process, bit for bit.

    def make(engine):  # called in every process, with the same problem
        return bt.opt.EF21(problem(), clients=10, compressor=bt.compress.TopK(2), step=0.1, engine=engine)

    server = bt.flower.server_app(make, n_clients=10, rounds=50, done=print)
    run_simulation(server, bt.flower.client_app(make), num_supernodes=10)
"""

from __future__ import annotations

import importlib
import time
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from burtorch.opt import Method, Record

    Numbers = NDArray[np.float64]

__all__ = ["client_app", "server_app"]


class _PauseError(Exception):
    """A client has computed what it sends, and knows no more until the next round."""


class _ClientEngine:
    """One client, whose exchanges are rounds of Flower."""

    def __init__(self, number: int, totals: list[Numbers]) -> None:
        self.number, self.totals, self.own = number, totals, None

    own: Numbers | None

    def here(self, n_clients: int) -> tuple[int, int]:
        return self.number, self.number + 1

    def gather(self, own: Numbers) -> Numbers:
        if self.totals:
            return self.totals.pop(0)
        self.own = own
        raise _PauseError

    def rows(self, own: Numbers) -> Numbers:
        return own


class _ServerEngine:
    """The server, which has no client: an exchange asks all of them."""

    def __init__(self, grid: Any, n_clients: int, timeout: float) -> None:
        self.grid, self.n_clients, self.timeout = grid, n_clients, timeout
        self.exchanges = 0
        self.total: Numbers | None = None
        self.nodes = self._nodes()

    def here(self, n_clients: int) -> tuple[int, int]:
        if n_clients != self.n_clients:
            raise ValueError(f"a method of {n_clients} clients, expected {self.n_clients}")
        return 0, 0

    def rows(self, own: Numbers) -> Numbers:
        raise ValueError("on Flower the state of clients stays with them")

    def gather(self, own: Numbers) -> Numbers:
        import numpy as np

        flwr, k = _flwr(), self.exchanges
        messages = [
            flwr.Message(content=_packed(self.total, exchange=k), dst_node_id=node, message_type="train")
            for node in self.nodes
        ]
        found: dict[int, Numbers] = {}
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            if reply.has_error():
                raise RuntimeError(f"exchange {k}: a client failed: {reply.error.reason}")
            numbers, facts = _unpacked(reply.content)
            if facts["exchange"] != k or numbers is None:
                raise ValueError(f"a reply of exchange {facts['exchange']}, expected {k}")
            found[int(facts["client"])] = numbers
        missing = sorted(set(range(self.n_clients)) - found.keys())
        if missing:
            raise RuntimeError(f"exchange {k}: the clients {missing} have not answered")
        self.total = _joined([found[number] for number in sorted(found)])
        self.exchanges += 1
        return np.asarray(self.total)

    def _nodes(self) -> list[int]:
        end = time.monotonic() + self.timeout
        while True:
            nodes = sorted(self.grid.get_node_ids())
            if len(nodes) == self.n_clients:
                return nodes
            if time.monotonic() > end:
                raise TimeoutError(f"{len(nodes)} nodes of Flower after {self.timeout} s, expected {self.n_clients}")
            time.sleep(0.05)


def _flwr() -> Any:
    try:
        return importlib.import_module("flwr.app")
    except ImportError as error:
        raise ImportError(f'burtorch.flower needs flwr (pip install "burtorch[flower]"): {error}') from error


def _packed(numbers: Numbers | None, **facts: int) -> Any:
    """A record of Flower: the numbers, their checksum, and facts."""
    flwr = _flwr()
    given = [] if numbers is None else [numbers]
    checksum = 0 if numbers is None else zlib.crc32(numbers.data)
    content = {"facts": flwr.ConfigRecord({**facts, "checksum": checksum}), "numbers": flwr.ArrayRecord(given)}
    return flwr.RecordDict(content)


def _unpacked(content: Any) -> tuple[Numbers | None, Any]:
    import numpy as np

    facts, given = content["facts"], content["numbers"].to_numpy_ndarrays()
    if not given:
        return None, facts
    numbers = np.ascontiguousarray(given[0])
    if numbers.dtype != np.float64 or numbers.ndim != 1 or zlib.crc32(numbers.data) != facts["checksum"]:
        raise ValueError("a message has another type or checksum than it was sent with")
    return numbers, facts


def _joined(payloads: list[Numbers]) -> Numbers:
    """What the clients sent as if one process had sent it: the sum by the fixed tree, a client in it, the longest time.

    A payload is the number of sums, a time, and for each sum a client and the numbers.
    """
    import numpy as np

    longest = max(float(payload[1]) for payload in payloads)
    stack: list[tuple[int, int, Numbers]] = []  # a client, the level at which it meets the one before, its sum

    def join(level: int) -> None:
        while len(stack) >= 2 and stack[-1][1] < level:
            _, _, right = stack.pop()
            client, below, left = stack.pop()
            stack.append((client, below, left + right))

    for payload in payloads:
        if payload[0]:
            client = int(payload[2])
            level = (stack[-1][0] ^ client).bit_length() if stack else 0
            join(level)
            stack.append((client, level, payload[3:]))
    join(2**31)
    if not stack:
        return np.array([0.0, longest])
    return np.concatenate([[1.0, longest, stack[0][0]], stack[0][2]])


def client_app(make: Callable[[Any], Method]) -> Any:
    """A ClientApp of Flower.

    Args:
        make: is given an engine, which it passes to a method of clients: the same as for `server_app`. It is called in
            each round, so it should keep what takes long, such as the problem, and give the step as a number.

    A client computes each gradient twice: before it knows what the others sent, and again when it does. Its number is
    Flower's partition-id.
    """
    flwr: Any = importlib.import_module("flwr.clientapp") if _flwr() else None
    app = flwr.ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        records = _flwr()
        total, facts = _unpacked(message.content)
        number = int(context.node_config["partition-id"])
        engine, method = _ClientEngine(number, []), None
        if total is not None:
            method = _went_on(make, engine, total, context)
        try:
            method = make(engine) if method is None else method
            _save(method, context)
            method._runner.step(method.gamma)
        except _PauseError:
            pass
        content = _packed(engine.own, exchange=int(facts["exchange"]), client=number)
        return records.Message(content=content, reply_to=message)

    return app


def _went_on(make: Callable[[Any], Method], engine: _ClientEngine, total: Numbers, context: Any) -> Method:
    """The method after the exchange whose total is given."""
    import numpy as np

    if "state" not in context.state:
        # The exchange was that of the start.
        engine.totals = [total]
        return make(engine)
    engine.totals = [np.zeros(2)]
    method = make(engine)
    facts, names = context.state["facts"], context.state["facts"]["names"]
    arrays = dict(zip(names, context.state["state"].to_numpy_ndarrays()))
    counts = (facts["calls"], facts["up"], facts["down"], facts["bytes"], facts["rounds"], facts["time"])
    method._runner.load(arrays, facts["round"], counts)
    engine.totals = [total]
    method._runner.step(method.gamma)
    return method


def _save(method: Method, context: Any) -> None:
    """Keeps the state of a client in Flower's context."""
    flwr, arrays = _flwr(), method._runner.state()
    names = ("calls", "up", "down", "bytes", "rounds", "time")
    facts = {"names": list(arrays), "round": method._runner.round, **dict(zip(names, method._runner.cost))}
    context.state["state"] = flwr.ArrayRecord(list(arrays.values()))
    context.state["facts"] = flwr.ConfigRecord(facts)


def server_app(
    make: Callable[[Any], Method],
    n_clients: int,
    rounds: int,
    *,
    done: Callable[[Method, list[Record]], object],
    record_every: int | None = None,
    timeout: float = 600.0,
) -> Any:
    """A ServerApp of Flower that takes so many steps.

    Args:
        make: is given an engine, which it passes to a method of clients: the same as for `client_app`.
        n_clients: as many nodes as there must be, each of which has one client.
        rounds: steps.
        done: is called with the method and its records at the end.
        record_every: steps between records; only the first and last unless told otherwise.
        timeout: seconds that an exchange may take.

    A round in which a client fails or does not answer raises RuntimeError; clients that a method's cohort leaves out
    answer without numbers.
    """
    flwr: Any = importlib.import_module("flwr.serverapp") if _flwr() else None
    app = flwr.ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        method = make(_ServerEngine(grid, n_clients, timeout))
        records = method.run(rounds, record_every=record_every)
        done(method, records)

    return app


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
