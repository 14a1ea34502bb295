"""The training loop and its measurements: the loss and the time of every step.

A step is the gradient and the update; drawing the batch is not timed. The loop ends early, without an exception, if
the user interrupts it or a token is set: the gradient in progress is then dropped, and its batch is the next one again.
It also ends if the loss is not finite. It knows nothing of files or of the terminal.
"""

from __future__ import annotations

import math
import signal
from array import array
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from burtorch import Stop, StoppedError

if TYPE_CHECKING:
    from types import FrameType

    import burtorch
    from burtorch._core import TokenIdArray
    from burtorch.cli.kinds import AnyData
    from burtorch.optim import SGD, AdamW

    Contexts = Callable[[int, int], tuple[TokenIdArray, TokenIdArray]]

EVALUATED_AT_ONCE = 4096  # contexts; bounds the memory of an evaluation


class Course:
    """The history of a training: ``losses`` and ``seconds`` of every finished step, and why it ended."""

    def __init__(self) -> None:
        self.losses = array("d")
        self.seconds = array("d")
        self.interrupted = False
        self.between_steps = True  # a checkpoint may be taken: no batch is drawn whose step is missing

    @property
    def n_steps(self) -> int:
        return len(self.seconds)

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not finite."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    def median_ms_per_step(self) -> float | None:
        ordered = sorted(self.seconds)
        return 1e3 * ordered[len(ordered) // 2] if ordered else None

    def history(self, n_points: int = 200) -> dict[str, list[float]]:
        """About ``n_points`` points of the loss curve: each the mean over the steps since the previous point."""
        width = max(1, self.n_steps // n_points)
        ends = range(width, self.n_steps + 1, width)
        return {
            "step": list(ends),
            "loss": [sum(self.losses[end - width : end]) / width for end in ends],
        }


class CtrlC:
    """Inside the block, the first Ctrl-C sets the token; the second raises as usual. A handler other than Python's own
    stays."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def __enter__(self) -> CtrlC:
        self._in_place = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):  # not the main thread, which alone receives signals
                signal.signal(signal.SIGINT, self._note)
                self._in_place = True
        return self

    def __exit__(self, *error: object) -> None:
        if self._in_place:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()


def train(
    oracle: burtorch.Oracle,
    optimizer: SGD | AdamW,
    data: AnyData,
    *,
    batch: int,
    steps: int,
    lr: float,
    final_lr_fraction: float,
    seconds: float | None = None,
    watch: Callable[[Course], None],
    course: Course | None = None,
    stop: Stop | None = None,
) -> Course:
    """Continues ``course`` up to ``steps`` steps, the last 30 % at ``lr * final_lr_fraction``; calls ``watch`` after
    each. The step in which ``seconds`` have passed is the last one; one in which the token is set is not taken."""
    course = course or Course()
    stop = Stop() if stop is None else stop
    losses, times = course.losses.append, course.seconds.append
    end = None if seconds is None else perf_counter() + seconds
    final_from = steps - steps * 3 // 10
    try:
        with CtrlC(stop):
            for step in range(course.n_steps, steps):
                if stop.is_set():
                    raise StoppedError
                course.between_steps = False
                before = data.save_state()
                contexts, targets = data.batch(batch)
                start = perf_counter()
                try:
                    loss, _ = oracle(contexts, targets, stop=stop)
                except StoppedError:
                    data.load_state(before)
                    course.between_steps = True
                    raise
                losses(loss)
                if course.diverged:
                    break
                optimizer.lr = lr * final_lr_fraction if step >= final_from else lr
                optimizer.step()
                times(perf_counter() - start)
                course.between_steps = True
                watch(course)
                if end is not None and perf_counter() >= end:
                    break
    except (KeyboardInterrupt, StoppedError):
        course.interrupted = True
    return course


def mean_loss(oracle: burtorch.Oracle, contexts: Contexts, n: int) -> float | None:
    """The mean loss over all ``n`` contexts of ``data.train`` or ``data.heldout``, ``None`` if there are none."""
    total = 0.0
    for start in range(0, n, EVALUATED_AT_ONCE):
        stop = min(start + EVALUATED_AT_ONCE, n)
        total += oracle.loss(*contexts(start, stop)) * (stop - start)
    return total / n if n else None
