"""The progress bar of a training: tqdm's, updated about ten times per second, imported only when it is shown."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from burtorch.cli.trainer import Course


class Progress:
    """A bar on stderr with the mean loss and the mean ms/step since it last moved; call it after every step."""

    def __init__(self, n_steps: int, *, shown: bool) -> None:
        self.shown = shown
        if not shown:
            return
        import threading

        from tqdm import tqdm

        tqdm.set_lock(threading.RLock())  # the default lock would import multiprocessing
        tqdm.monitor_interval = 0  # no second thread
        self.pause = 0.1 if sys.stderr.isatty() else 5.0  # seconds; few lines for a log file
        # Drawn at the first step.
        self.bar = tqdm(total=n_steps, unit="step", mininterval=0, miniters=1, dynamic_ncols=True, delay=1e-9)
        self.reported = 0
        self.due = perf_counter() + self.pause

    def __call__(self, course: Course) -> None:
        if self.shown and perf_counter() >= self.due:
            self._show(course)
            self.due = perf_counter() + self.pause

    def close(self, course: Course) -> None:
        if self.shown:
            self._show(course, last=True)

    def _show(self, course: Course, last: bool = False) -> None:
        """Draws the bar. A write error on stderr, as on a full disk, ends the bar and not the training."""
        try:
            self._report(course)
            if last:
                self.bar.close()
        except OSError:
            self.shown = False
            self.bar.disable = True

    def _report(self, course: Course) -> None:
        losses, seconds = course.losses[self.reported : course.n_steps], course.seconds[self.reported :]
        if seconds:
            mean_loss = sum(losses) / len(losses)
            mean_ms = 1e3 * sum(seconds) / len(seconds)
            self.bar.set_postfix_str(f"loss {mean_loss:.3f}, {mean_ms:.3f} ms/step", refresh=False)
            self.bar.update(len(seconds))
            self.reported = course.n_steps
