"""Methods with clients on Flower (``pip install "burtorch[flower]"``); flwr is imported when used.

A ServerApp takes the steps; each ClientApp has one client, whose state stays in Flower's context. Replies are
sorted by client number and summed by the fixed tree, so the iterates are those of the same method in one
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
    Told = tuple[Numbers, list[int]]
    """The sum of the clients' messages in an exchange, and the missing clients."""

__all__ = ["client_app", "server_app"]

UNREACHED = (3, 4, 5)
"""Codes of Flower's errors for a missing message, reply or node."""


class _PauseError(Exception):
    """A client has computed its message and must wait for the next round."""


class _MissingError(Exception):
    """Clients of a cohort have not answered, but the step can be taken without them."""

    def __init__(self, missing: list[int]) -> None:
        self.missing = missing


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
    """The server, which has no client: an exchange asks all of them.

    If clients may be missing, the next message to a client contains all exchanges since its last answer.
    """

    def __init__(self, grid: Any, n_clients: int, timeout: float) -> None:
        self.grid, self.n_clients, self.timeout = grid, n_clients, timeout
        self.may_miss = False
        self.exchanges = 0
        # The sums and missing clients of exchanges that some node may not know; all nodes know those before `first`.
        self.told: list[Told] = []
        self.first = 0
        self.missing: list[int] = []
        self.found: dict[int, Numbers] = {}
        self.nodes = self._nodes()
        self.known = dict.fromkeys(self.nodes, 0)

    def here(self, n_clients: int) -> tuple[int, int]:
        if n_clients != self.n_clients:
            raise ValueError(f"the method has {n_clients} clients, expected {self.n_clients}")
        return 0, 0

    def rows(self, own: Numbers) -> Numbers:
        raise ValueError("on Flower the state of clients stays with them")

    def gather(self, own: Numbers) -> Numbers:
        import numpy as np

        if not self.found:
            self._ask()
        found, missing = self.found, sorted(set(range(self.n_clients)) - self.found.keys())
        if missing != self.missing:
            if not self.may_miss:
                raise RuntimeError(f"exchange {self.exchanges}: the clients {missing} have not answered")
            self.missing = missing
            raise _MissingError(missing)
        total = _joined([found[number] for number in sorted(found)])
        self.told.append((total, missing))
        self.exchanges += 1
        self.missing, self.found = [], {}
        known = min(self.known.values())
        del self.told[: known - self.first]
        self.first = known
        return np.asarray(total)

    def _ask(self) -> None:
        """Asks the clients for the next exchange and returns their answers."""
        flwr, k = _flwr(), self.exchanges
        messages = [
            flwr.Message(
                content=_packed(self.told[self.known[node] - self.first :], exchange=k),
                dst_node_id=node,
                message_type="train",
            )
            for node in self.nodes
        ]
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            if reply.has_error():
                if self.may_miss and reply.error.code in UNREACHED:
                    continue
                raise RuntimeError(f"exchange {k}: a client failed: {reply.error.reason}")
            told, facts = _unpacked(reply.content)
            if facts["exchange"] != k or len(told) != 1:
                raise ValueError(f"a reply of exchange {facts['exchange']}, expected {k}")
            self.found[int(facts["client"])] = told[0][0]
            self.known[reply.metadata.src_node_id] = k
        if not self.found:
            raise RuntimeError(f"exchange {k}: no client has answered")

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


def _packed(told: list[Told], **facts: int) -> Any:
    """A Flower record: the numbers of exchanges, their checksum, the missing clients of each, and facts."""
    flwr, numbers = _flwr(), [numbers for numbers, _ in told]
    missing = ";".join(",".join(map(str, gone)) for _, gone in told)
    facts_of = flwr.ConfigRecord({**facts, "missing": missing, "checksum": _checksum(numbers, missing)})
    return flwr.RecordDict({"facts": facts_of, "numbers": flwr.ArrayRecord(numbers)})


def _unpacked(content: Any) -> tuple[list[Told], Any]:
    import numpy as np

    facts, given = content["facts"], content["numbers"].to_numpy_ndarrays()
    numbers, missing = [np.ascontiguousarray(part) for part in given], facts["missing"].split(";")
    if any(part.dtype != np.float64 or part.ndim != 1 for part in numbers) or len(missing) != max(1, len(numbers)):
        raise ValueError("the arrays of a message do not match its header")
    if _checksum(numbers, facts["missing"]) != facts["checksum"]:
        raise ValueError("the checksum of a message does not match its header")
    return [(part, [int(k) for k in gone.split(",") if k]) for part, gone in zip(numbers, missing)], facts


def _checksum(numbers: list[Numbers], missing: str) -> int:
    value = zlib.crc32(missing.encode())
    for part in numbers:
        value = zlib.crc32(part.data, value)
    return value


def _joined(payloads: list[Numbers]) -> Numbers:
    """The clients' messages combined as in one process: the sum by the fixed tree, a client in it, the longest time.

    A payload is the number of sums, a time, and for each sum a client and the numbers.
    """
    import numpy as np

    longest = max(float(payload[1]) for payload in payloads)
    stack: list[tuple[int, int, Numbers]] = []  # a client, the level at which it joins the previous one, its sum

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
        make: receives an engine and passes it to a method with clients: the same function as for `server_app`. It is
            called in each round, so it should cache slow parts, such as the problem, and give the step as a number.

    A client computes each gradient twice: before and after it receives the messages of the others. Its number is
    Flower's partition-id.
    """
    flwr: Any = importlib.import_module("flwr.clientapp") if _flwr() else None
    app = flwr.ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        records = _flwr()
        told, facts = _unpacked(message.content)
        exchange, number = int(facts["exchange"]), int(context.node_config["partition-id"])
        engine = _ClientEngine(number, [])
        try:
            method = _went_on(make, engine, told, exchange, context)
            _save(method, exchange, context)
            method._runner.step(method.gamma)
        except _PauseError:
            pass
        own: list[Told] = [] if engine.own is None else [(engine.own, [])]
        return records.Message(content=_packed(own, exchange=exchange, client=number), reply_to=message)

    return app


def _went_on(
    make: Callable[[Any], Method],
    engine: _ClientEngine,
    told: list[Told],
    exchange: int,
    context: Any,
) -> Method:
    """The method after the given exchanges; `exchange` is the next one."""
    import numpy as np

    if "state" in context.state:
        # The first exchange, if any, is over; some of the given exchanges may be known already.
        engine.totals = [np.zeros(2)]
        method = make(engine)
        facts, arrays = context.state["facts"], context.state["state"].to_numpy_ndarrays()
        counts = (facts["calls"], facts["up"], facts["down"], facts["bytes"], facts["rounds"], facts["time"])
        method._runner.load(dict(zip(facts["names"], arrays)), facts["round"], counts)
        told = told[len(told) - (exchange - facts["exchange"]) :]
        engine.totals = [total for total, _ in told]
    else:
        if len(told) != exchange:
            raise ValueError(f"client {engine.number} has lost its state in Flower's context")
        engine.totals = [total for total, _ in told]
        method = make(engine)
    while engine.totals:
        gone = told[len(told) - len(engine.totals)][1]
        method._runner.step(method.gamma, missing=gone)
    return method


def _save(method: Method, exchange: int, context: Any) -> None:
    """Stores the state of a client in Flower's context, with the number of its next exchange."""
    flwr, arrays = _flwr(), method._runner.state()
    names = ("calls", "up", "down", "bytes", "rounds", "time")
    facts = {
        "names": list(arrays),
        "round": method._runner.round,
        "exchange": exchange,
        **dict(zip(names, method._runner.cost)),
    }
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
    """A ServerApp of Flower that takes `rounds` steps.

    Args:
        make: receives an engine and passes it to a method with clients: the same function as for `client_app`.
        n_clients: the number of nodes, each of which has one client.
        rounds: the number of steps.
        done: called with the method and its records at the end.
        record_every: steps between records; by default only the first and last.
        timeout: seconds that an exchange may take.

    A round in which a client fails or does not answer raises RuntimeError; clients outside a method's cohort
    answer without numbers. A method whose cohort is not all clients continues without those that do not answer
    within `timeout` seconds, or whose nodes are gone, as if they had not been drawn; when they return they receive
    the updates that they have missed.
    """
    if n_clients < 1 or rounds < 0 or not timeout > 0.0:
        found = f"{n_clients} clients, {rounds} rounds, {timeout} s"
        raise ValueError(f"n_clients must be at least 1, rounds at least 0 and timeout above 0, found {found}")
    flwr: Any = importlib.import_module("flwr.serverapp") if _flwr() else None
    from burtorch.opt import Full

    app = flwr.ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        engine = _ServerEngine(grid, n_clients, timeout)
        method = make(engine)
        engine.may_miss = not isinstance(method.sampling, Full)
        done(method, _run(method, rounds, record_every))

    return app


def _run(method: Method, rounds: int, record_every: int | None) -> list[Record]:
    """Takes `rounds` steps, each without the missing clients of its cohort if the method supports that."""
    records = [method.record()]
    for k in range(1, rounds + 1):
        start = time.perf_counter()
        try:
            method._runner.step(method.gamma)
        except _MissingError as error:
            method._runner.step(method.gamma, missing=error.missing)
        method.seconds += time.perf_counter() - start
        if k == rounds or (record_every and k % record_every == 0):
            records.append(method.record())
    return records


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
