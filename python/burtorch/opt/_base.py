"""The base of all methods: steps, runs, records, and state."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict

import numpy as np

from burtorch import _core
from burtorch.opt._alone import Alone
from burtorch.opt._arguments import check_shape, finite, not_negative, number, point, whole
from burtorch.opt._clients import divided
from burtorch.opt._keywords import Signature, check_kinds, check_names, check_required
from burtorch.opt._record import Record, bar_of
from burtorch.opt._rules import Full, Prox, Sampling, Zero
from burtorch.opt._smoothness import Smoothness, check_convex, smoothness
from burtorch.opt._state import checked_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from burtorch._core import FiniteSum
    from burtorch.opt._clients import Clients

    Vector = NDArray[np.float64]

    class Plain(TypedDict, total=False):
        """Keywords of every method, for type checkers."""

        step: Step
        prox: Prox | None
        seed: int
        threads: int
        x_star: ArrayLike | None
        f_star: float | None
        lyapunov: bool

    class Options(Plain, total=False):
        """Those of methods that do not name the constants."""

        constants: Smoothness | None

    class Sampled(Options, total=False):
        """Those of methods that do not name the sampling either."""

        sampling: Sampling | None


Step = float | str | Callable[[int], float]

# Methods without messages of clients.
SILENT = frozenset({"agd", "l_katyusha", "sgd", "l_svrg", "saga", "page"})
CHUNK = 256
"""The number of step sizes of a schedule that are computed at a time."""
ENDLESS = 2**62
"""A number of steps or oracle calls beyond any run, which means no limit."""


def squared(x: Vector) -> float:
    """The sum of squares."""
    return float((x * x).sum())


def _factor(step: str) -> float:
    """The factor of a text such as "theory*4"."""
    name, star, factor = step.partition("*")
    try:
        value = float(factor) if star else 1.0
    except ValueError:
        value = 0.0
    if name.strip() != "theory" or not value > 0.0 or value == float("inf"):
        raise ValueError(f'step must be a number, a function of the round, "theory" or "theory*FACTOR", found {step!r}')
    return value


def calls_of(epochs: float, n: int) -> int:
    """The least number of oracle calls that are so many epochs of n samples, as records count them."""
    calls = max(int(epochs * n) - 1, 0)
    while calls / n < epochs:
        calls += 1
    return calls


class Method:
    """An iterate that takes steps: the base of all methods.

    Args of every method:
        problem: a FiniteSum.
        x0: the first point; by default zeros.
        step: a number, a function of the round (0, 1, ...), "theory" (the step of the method's theorem), or
            "theory*FACTOR".
        prox: the proximal term.
        seed: determines all draws, each a function of (seed, round, client, purpose).
        threads: for gradients and clients; changes no bit of a result.
        constants: a result of `smoothness(problem, clients)`, to save its computation; with one L_i per sample, or
            per client if there are clients.
        x_star: the minimiser, for records and theory that needs it.
        f_star: the minimum or a lower bound; by default f(x_star).
        lyapunov: whether records contain the quantity of the theorem, which costs the gradients of all terms.
        sampling: how batches are drawn, of methods that draw some; by default all samples.

    Steps run in Rust without the GIL, and each is taken completely or not at all: after Ctrl-C or an error the state
    is that of the last completed step.

    Raises:
        TypeError: an argument of another class.
        ValueError: a step that is not positive, sizes that do not match, numbers that are not finite, "theory" for a
            setting that the theorem does not cover, such as terms that need not be convex for a theorem of convex
            f_i; raised before anything runs.
        FloatingPointError, raised by steps: the method diverged. `x` is the last finite iterate.
    """

    _name: ClassVar[str]
    _has_clients: ClassVar[bool] = False
    _takes_clients: ClassVar[bool] = False
    __signature__: ClassVar[Signature] = Signature()

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        given = {"problem": arguments[0], **named} if arguments else named
        check_kinds(cls, given, with_clients=cls._has_clients)
        if cls.__module__.startswith("burtorch."):  # a user's class may take more
            check_names(cls, named)
            if given:  # copies are made without arguments
                check_required(cls, len(arguments), named)
        return super().__new__(cls)

    def __init__(
        self,
        problem: FiniteSum,
        x0: ArrayLike | None = None,
        *,
        step: Step = "theory",
        prox: Prox | None = None,
        seed: int = 0,
        threads: int = 1,
        constants: Smoothness | None = None,
        x_star: ArrayLike | None = None,
        f_star: float | None = None,
        lyapunov: bool = False,
        clients: Clients = None,
        sampling: Sampling | None = None,
        **options: Any,
    ) -> None:
        if options.pop("engine", "local") != "local":
            raise ValueError(f'{type(self).__name__} runs in one process: leave out engine, or give "local"')
        self.clients: list[NDArray[np.int64]] | None = None
        if clients is not None:
            if not (self._has_clients or self._takes_clients):
                raise ValueError(f"{type(self).__name__} has no clients: leave out clients=")
            problem, self.clients = divided(problem, clients)
        self.problem = problem
        self._alone = Alone()
        self.sampling = Full() if sampling is None else sampling
        self.prox = Zero() if prox is None else prox
        self.x_star = None if x_star is None else point(x_star, problem.d, "x_star")
        self.f_star = None if f_star is None else finite(f_star, "f_star")
        self.seconds = 0.0
        self.seed = seed
        self._constants = self._checked(constants)
        self._lyapunov = lyapunov
        self._solved: Vector | None = None
        if clients is not None:
            options["clients"] = self.clients
        if self.x_star is not None and f_star is None:
            self.f_star = self._loss(self.x_star)
        self._step = step
        self._gamma: float | None = self._fixed_step(step)
        self._options = {
            "sampling": self.sampling.rule,
            "prox": self.prox.rule,
            "seed": seed,
            "threads": threads,
            **options,
        }
        start = np.zeros(problem.d) if x0 is None else x0
        check_shape(start, problem.d, "x0")
        self._runner = self._runner_at(start)
        self._start = self._runner.x

    def _runner_at(self, start: ArrayLike) -> _core.Runner:
        return _core.Runner(self.problem, self._name, start, **self._options)

    # Constants and theory

    def _checked(self, constants: Smoothness | None) -> Smoothness | None:
        """The constants, after a check that they fit this problem."""
        if constants is None:
            return None
        n, what = (self.problem.n, "samples") if self.clients is None else (len(self.clients), "clients")
        if len(constants.L_i) != n:
            raise ValueError(f"constants have {len(constants.L_i)} L_i, expected {n}, one for each of the {what}")
        return constants

    @property
    def constants(self) -> Smoothness:
        """The constants of the problem, or of its clients."""
        if self._constants is None:
            if self.clients is None and self.problem.kind == "clients":
                raise ValueError("the constants of the samples of different problems are unknown: pass a step size")
            self._constants = smoothness(self.problem, self.clients)
        return self._constants

    def _if_convex(self, of: str = "f_i") -> Smoothness:
        """The constants, for a theorem that needs convex f_i, or f; otherwise a ValueError."""
        check_convex(type(self).__name__, self.problem, lambda: self.constants, of)
        return self.constants

    def _without_prox(self, theorem: str) -> None:
        """Raises ValueError for a proximal term, which a theorem does not cover."""
        if not isinstance(self.prox, Zero):
            found = f"the proximal term {self.prox!r}"
            raise ValueError(f"the theory of {theorem} does not cover {found}; give a number as step")

    def theory_step(self) -> float:
        """The largest step size of the method's theorem."""
        raise NotImplementedError

    def _fixed_step(self, step: Step) -> float | None:
        if isinstance(step, str):
            factor = _factor(step)
            try:
                gamma = factor * self.theory_step()
            except ZeroDivisionError:
                gamma = float("inf")
            if not 0.0 < gamma < float("inf"):
                raise ValueError(
                    f"the theory allows the step {gamma}, because the terms are so flat; give a number as step"
                )
            return gamma
        if callable(step):
            return None
        try:
            is_right = 0.0 < step < float("inf")
        except TypeError:
            found = type(step).__name__
            raise TypeError(f"step must be a number, a function of the round or a string, found {found}") from None
        if not is_right:
            raise ValueError(f"a step must be finite and above 0, found {step}")
        return float(step)

    def _gammas(self, steps: int) -> list[float]:
        if callable(self._step):
            return [number(self._step(self._runner.round + k), "a step") for k in range(steps)]
        assert self._gamma is not None
        return [self._gamma]

    # State and records

    def _state(self) -> dict[str, Any]:
        """The arrays that determine the next steps, of all processes."""
        return self._runner.state()

    def _load(self, arrays: dict[str, Any], round: int, cost: Any) -> None:
        self._runner.load(arrays, round, cost)

    @property
    def x(self) -> Vector:
        """The iterate, copied."""
        x: Vector = self._runner.x
        return x

    @property
    def gamma(self) -> float:
        """The size of the next step."""
        return self._gammas(1)[0]

    def drawn(self) -> tuple[NDArray[np.int64], bool | None]:
        """The batch (or the clients) of the last step, and whether its rare event happened."""
        return self._runner.drawn()

    def _weights(self) -> Vector:
        """The weight of each sample in f."""
        weights = np.full(self.problem.n, 1.0 / self.problem.n)
        for part in self.clients or []:
            weights[part] = 1.0 / (len(self.clients or ()) * len(part))
        return weights

    def _loss(self, x: Vector) -> float:
        every = np.arange(self.problem.n)
        return self.problem.loss(x, every, weights=self._weights()) + self.prox.value(x)

    def _gradients(self, x: Vector) -> Vector:
        """The gradient of every sample or client at x, as rows."""
        if self.clients is None:
            return np.asarray(self.problem.gradients(x))
        return np.array([self.problem.grad(x, part) for part in self.clients])

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """The quantity that the method's theorem bounds, at the iterate with this loss and gradient."""
        return self._distance(self.x)

    def _at_solution(self) -> Vector:
        """`_gradients` at x*."""
        if self._solved is None:
            assert self.x_star is not None
            self._solved = self._gradients(self.x_star)
        return self._solved

    def _distance(self, x: Vector) -> float | None:
        return None if self.x_star is None else squared(x - self.x_star)

    def record(self) -> Record:
        """A record of the current state. Costs the loss and gradient of all samples."""
        with self._alone:
            loss, grad = self._runner.evaluate()
            with np.errstate(over="ignore"):
                return self._record_of(loss, grad)

    def _record_of(self, loss: float, grad: Vector) -> Record:
        calls, bits_up, bits_down, wire_bytes, rounds, virtual = self._runner.cost
        return Record(
            step=self._runner.round,
            loss=loss,
            gap=None if self.f_star is None else loss - self.f_star,
            distance=self._distance(self.x),
            grad_norm=float(np.linalg.norm(grad)),
            lyapunov=self.lyapunov(loss, grad) if self._lyapunov else None,
            oracle_calls=calls,
            epochs=calls / self.problem.n,
            bits_up=bits_up,
            bits_down=bits_down,
            wire_bytes=wire_bytes,
            rounds=rounds,
            time=virtual,
            seconds=self.seconds,
        )

    # Steps

    def step(
        self,
        *,
        batch: ArrayLike | None = None,
        coin: bool | None = None,
        compression: Sequence[Sequence[float]] | None = None,
        stop: _core.Stop | None = None,
        deadline: float | None = None,
    ) -> Record:
        """Take one step and return a record, which costs a pass over the data: for many steps use `run`.

        Args:
            batch: samples (for `FedAvg`, clients) instead of drawn ones.
            coin: whether the rare event happens, instead of a draw.
            compression: for each client, numbers in [0, 1) instead of its compressor's draws.
            stop, deadline: a token and seconds from now that end it with a StoppedError. It is then not taken, and
                the next one is the same. The record is made without them.
        """
        for name, value, of, what in (
            ("coin", coin, "p", "rare event"),
            ("compression", compression, "compressor", "compressor"),
        ):
            if value is not None and not hasattr(self, of):
                raise ValueError(f"{type(self).__name__} has no {what}: leave out {name}=")
        with self._alone:
            gamma, start = self._gammas(1)[0], time.perf_counter()
            try:
                self._runner.step(gamma, batch, coin, compression, stop=stop, deadline=deadline)
            finally:
                self.seconds += time.perf_counter() - start
            return self.record()

    def run(
        self,
        steps: int | None = None,
        *,
        epochs: float | None = None,
        bits: float | None = None,
        seconds: float | None = None,
        stop: _core.Stop | None = None,
        callback: Callable[[Record], object] | None = None,
        record_every: int | None = None,
        progress: bool = False,
    ) -> list[Record]:
        """Take steps until a limit is reached, and return the records, including the first and the last: one if no step
        is taken.

        Args:
            steps: the number of steps.
            epochs: oracle calls of this run divided by samples.
            bits: bits sent by clients.
            seconds: time of steps. Infinite epochs, bits and seconds are no limits.
            stop: a token that any thread may set; a step in progress is then not taken, or, with several processes,
                completed.
            callback: called with each record, the last one too; the run ends if it returns True.
            record_every: steps between records; by default only the first and last.
            progress: whether to show a progress bar.

        Ctrl-C ends it between steps. Raises ValueError without a limit that can be reached.
        """
        for name, limit in (("epochs", epochs), ("bits", bits), ("seconds", seconds)):
            if limit is not None:
                not_negative(limit, name, is_finite=False)
        epochs = None if epochs is None or epochs * self.problem.n >= ENDLESS else epochs
        bits = None if bits == math.inf else bits
        # The largest time limit in Rust.
        seconds = None if seconds is None or seconds >= 2**62 else seconds
        if steps is None and epochs is None and bits is None and seconds is None and stop is None:
            raise ValueError("run needs a limit that can be reached: steps, epochs, bits, seconds or stop")
        if (
            bits is not None
            and self._name in SILENT
            and steps is None
            and epochs is None
            and seconds is None
            and stop is None
        ):
            raise ValueError(f"{type(self).__name__} sends no bits, so a run limited only by bits would not end")
        every = ENDLESS if record_every is None else whole(record_every, "record_every")
        left = ENDLESS if steps is None else min(whole(steps, "steps", 0), ENDLESS)
        with self._alone:
            calls, sent = self._runner.cost[:2]
            most_calls = None if epochs is None else calls + calls_of(epochs, self.problem.n)
            most_bits = None if bits is None else sent + bits
            end = None if seconds is None else self.seconds + seconds
            records: list[Record] = []

            def is_over() -> bool:
                records.append(self.record())
                # A comparison of NumPy's numbers is a bool of NumPy.
                found = callback(records[-1]) if callback is not None else False
                return isinstance(found, (bool, np.bool_)) and bool(found)

            with bar_of(progress, steps) as bar:
                ends = is_over()
                while left > 0 and not ends:
                    want = min(left, every)
                    taken = self._take(want, most_calls, most_bits, end, stop)
                    left -= taken
                    bar.update(taken)
                    ends = (taken > 0 and is_over()) or taken < want
            return records

    def _take(
        self,
        want: int,
        calls: int | None,
        bits: float | None,
        end: float | None,
        stop: _core.Stop | None = None,
    ) -> int:
        """Takes up to `steps` steps until a limit is reached, and returns their number."""
        taken = 0
        while taken < want:
            size = min(want - taken, CHUNK) if callable(self._step) else want - taken
            gammas, start = self._gammas(size), time.perf_counter()
            left = None if end is None else end - self.seconds
            try:
                done = self._runner.steps(gammas, size, calls, bits, left, stop)
            finally:
                self.seconds += time.perf_counter() - start
            taken += done
            if done < size:
                break
        return taken

    # State

    def state_dict(self) -> dict[str, Any]:
        """The state that determines the next steps. A method with the same arguments continues from it bit for bit."""
        with self._alone:
            return {
                "method": type(self).__name__,
                "seed": self.seed,
                "round": self._runner.round,
                "cost": self._runner.cost,
                "seconds": self.seconds,
                "arrays": self._state(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`. Raises ValueError for the state of another method or size, for missing parts,
        for counts below 0, for iterates that are not finite and for clocks that are NaN; then nothing has changed.
        Warns if the state is of a method with another seed, as the next draws are then not those of an uninterrupted
        run.
        """
        arrays, round, cost, seconds = checked_state(state, type(self).__name__, self.problem.d)
        with self._alone:
            self._load(arrays, round, cost)
            self.seconds = seconds
        if state.get("seed", self.seed) != self.seed:
            message = f"the state is of seed {state['seed']}, this method draws with seed {self.seed}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        with self._alone:
            parts = {name: value for name, value in self.__dict__.items() if name not in ("_runner", "_alone")}
            return {**parts, "_state_dict": self.state_dict()}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        state = parts.pop("_state_dict")
        self.__dict__.update(parts)
        self._alone = Alone()
        self._runner = self._runner_at(self._start)
        self.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self._runner.round} steps on {self.problem!r}>"
