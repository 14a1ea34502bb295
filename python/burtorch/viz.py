"""Pictures: graphs in the browser, and numbers as Matplotlib scripts or drawn directly.

Scripts are text that contains its data; they run anywhere, in another interpreter by :func:`run`. Drawing directly
needs Matplotlib (``pip install burtorch[viz]``), which is imported when the first picture is drawn.
"""

from __future__ import annotations

import os

from burtorch._core import Value, _heat_map_script, _plot_points_script, _points

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

__all__ = ["Live", "heat_map", "heat_map_script", "live", "plot", "plot_loss", "plot_script", "run", "show"]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def show(root: Value | Iterable[Value], path: str | os.PathLike[str] | None = None, *, browser: bool = True) -> str:
    """Writes a page with the graph of ``root`` and opens it in the browser; a click on a node shows its content.

    The content is value, gradient, the op's formula, and the measured time of one evaluation. The page is one file
    without links.

    Args:
        root: a Value, or several of one graph.
        path: the file to write; a temporary file by default.
        browser: whether to open it.

    Returns:
        The path of the page.

    Raises:
        OSError: the page cannot be written.

    Example:
        >>> import burtorch as bt, os
        >>> a = bt.Value(2.0, label="a")
        >>> page = bt.viz.show(a * a, browser=False)
        >>> with open(page, encoding="utf-8") as file:
        ...     print(file.readline(), end="")
        <!doctype html>
        >>> os.remove(page)
    """
    is_one = isinstance(root, (Value, str)) or not hasattr(root, "__iter__")
    values: list[Any] = [root] if is_one else list(root)  # type: ignore[arg-type]
    for value in values:
        if not isinstance(value, Value):
            raise TypeError(f"show() takes a Value, or several of one graph, found {type(value).__name__}")
    if not values:
        raise ValueError("show() needs at least one Value")
    text = values[0].graph.to_html(values, title=values[0].label or "burtorch graph")
    if path is None:
        path = _temporary(".html")
    # open() would take an integer for an open file, and close it.
    with open(os.fspath(path), "w", encoding="utf-8") as file:
        file.write(text)
    if browser:
        import pathlib
        import webbrowser

        webbrowser.open(pathlib.Path(path).resolve().as_uri())
    return os.fspath(path)


def heat_map_script(
    matrix: Any,
    labels: Sequence[str] = (),
    item_getter: Callable[[Any, int, int], Any] | None = None,
    counter_getter: Callable[[Any], tuple[int, int]] | None = None,
) -> str:
    """A Matplotlib script that draws a matrix as coloured squares with a number in each.

    Args:
        matrix: a sequence of rows, a 2-D array, or any object that the getters accept.
        labels: names of the columns, and of the rows if their number is equal.
        item_getter: ``item_getter(matrix, i, j)`` is the number in row i and column j; ``matrix[i][j]`` by default.
        counter_getter: ``counter_getter(matrix)`` is (rows, columns); the lengths by default.

    Raises:
        ValueError: no numbers, or rows of unequal length.

    Source: F.6 of the paper.

    Example:
        >>> from burtorch import viz
        >>> script = viz.heat_map_script([[1, 2], [3, 4]], ["a", "b"])
        >>> "[1.0, 2.0]," in script
        True
    """
    return _heat_map_script(_rows(matrix, item_getter, counter_getter), list(map(str, labels)))


def plot_script(fn: Callable[[float], Any], x_start: float, x_end: float, n: int = 200) -> str:
    """A Matplotlib script that draws ``fn`` at ``n`` points from ``x_start`` to ``x_end``.

    ``fn`` takes a float and returns a number or a Value.

    Raises ValueError if there are no points.

    Source: F.6 of the paper.

    Example:
        >>> from burtorch import viz
        >>> "ys = [1.0, 0.0, 1.0]" in viz.plot_script(lambda x: x * x, -1.0, 1.0, 3)
        True
    """
    xs = _points(x_start, x_end, n)
    return _plot_points_script(xs, [float(fn(x)) for x in xs])


def run(script: str, path: str | os.PathLike[str] | None = None, timeout: float = 120.0) -> str:
    """Runs a plotting script in another interpreter and returns the path of the PNG it wrote.

    Args:
        script: text from :func:`heat_map_script` or :func:`plot_script`, or any script that saves a picture
            to the file named by its first argument.
        path: the picture file; a temporary file by default.
        timeout: seconds.

    Raises:
        RuntimeError: the script failed; the message is the last line of its error output.
        subprocess.TimeoutExpired: it took too long.
    """
    import subprocess
    import sys

    target = os.path.abspath(path if path is not None else _temporary(".png"))
    command = [sys.executable, "-c", script, target]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"the script ended with code {done.returncode}"]
        raise RuntimeError(f"the plotting script failed: {lines[-1]}")
    return target


def heat_map(
    matrix: Any,
    labels: Sequence[str] = (),
    *,
    item_getter: Callable[[Any, int, int], Any] | None = None,
    counter_getter: Callable[[Any], tuple[int, int]] | None = None,
    ax: Any = None,
) -> Any:
    """Draws a matrix as coloured squares; arguments as for :func:`heat_map_script`. Returns the Matplotlib axes.

    Raises ModuleNotFoundError without Matplotlib.
    """
    axes = _axes(ax)
    rows = _rows(matrix, item_getter, counter_getter)
    axes.figure.colorbar(axes.imshow(rows, cmap="Blues", aspect="auto"), ax=axes)
    if labels:
        axes.set_xticks(range(min(len(rows[0]), len(labels))), list(labels)[: len(rows[0])])
        if len(rows) == len(labels):
            axes.set_yticks(range(len(rows)), list(labels))
    return axes


def plot(fn: Callable[[float], Any], x_start: float, x_end: float, n: int = 200, *, ax: Any = None) -> Any:
    """Draws ``fn``; arguments as for :func:`plot_script`. Returns the Matplotlib axes."""
    axes = _axes(ax)
    xs = _points(x_start, x_end, n)
    axes.plot(xs, [float(fn(x)) for x in xs])
    axes.grid(alpha=0.3)
    return axes


def plot_loss(history: Mapping[str, Sequence[float]] | Sequence[float], *, ax: Any = None) -> Any:
    """Draws a loss curve: a sequence of losses, or ``{"step": ..., "loss": ...}`` as in the summary of a training.

    Returns the Matplotlib axes.
    """
    axes = _axes(ax)
    from collections.abc import Mapping

    if isinstance(history, Mapping):
        axes.plot(history["step"], history["loss"])
    else:
        axes.plot(range(1, len(history) + 1), list(history))
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    return axes


def live(path: str | os.PathLike[str] | None = None, *, every: float = 0.5) -> Live:
    """A curve that another process redraws during training: see :class:`Live`."""
    return Live(path, every=every)


class Live:
    """A curve that grows during training. Another process draws, so training does not wait.

    Args:
        path: the PNG to redraw, replaced as a whole; a temporary file by default.
        every: seconds between two drawings.

    If the drawing process fails, for instance without Matplotlib, training continues without a picture: points are
    dropped, ``error`` contains the reason, and a RuntimeWarning reports it.

    Example:
        >>> from burtorch import viz
        >>> with viz.live() as curve:            # doctest: +SKIP
        ...     for step in range(1000):
        ...         curve.add(step, loss=train_one_step())
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, every: float = 0.5) -> None:
        import subprocess
        import sys

        self.path = os.path.abspath(path if path is not None else _temporary(".png"))
        self.error: str | None = None
        command = [sys.executable, "-c", _LIVE, self.path, repr(float(every))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True, errors="replace")

    def add(self, step: float, **numbers: float) -> None:
        """Adds a point to each named curve."""
        import json

        line = json.dumps([float(step), {name: float(number) for name, number in numbers.items()}])
        if self.error is None and self._process.stdin is not None:
            try:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            except OSError:
                self.close()
                self.error = self.error or "the drawing process has ended"

    def close(self) -> str:
        """Draws the remaining points, ends the other process, and returns the path of the picture."""
        import warnings

        if self._process.returncode is None:
            _, said = self._process.communicate()
            if self._process.returncode != 0:
                lines = said.strip().splitlines() or [f"code {self._process.returncode}"]
                self.error = f"the drawing process failed: {lines[-1]}"
                warnings.warn(self.error, RuntimeWarning, stacklevel=2)
        return self.path

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


# Reads a line per point from its input, and draws at most once per interval, and once at the end of input.
_LIVE = """
import json, os, sys, threading

path, every = sys.argv[1], float(sys.argv[2])
curves, lock, ended = {}, threading.Lock(), threading.Event()

def read():
    for line in sys.stdin:
        step, numbers = json.loads(line)
        with lock:
            for name, number in numbers.items():
                curves.setdefault(name, ([], []))
                curves[name][0].append(step)
                curves[name][1].append(number)
    ended.set()

def draw():
    with lock:
        lines = {name: (list(xs), list(ys)) for name, (xs, ys) in curves.items()}
    if not lines:
        return
    figure, axes = plt.subplots()
    for name, (xs, ys) in lines.items():
        axes.plot(xs, ys, label=name)
    axes.legend()
    axes.grid(alpha=0.3)
    axes.set_xlabel("step")
    partial = path + ".partial.png"
    figure.savefig(partial, dpi=110)
    os.replace(partial, path)
    plt.close(figure)

threading.Thread(target=read, daemon=True).start()  # before the slow import, so that no writer waits
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
while not ended.wait(every):
    draw()
draw()
"""


def _rows(
    matrix: Any,
    item_getter: Callable[[Any, int, int], Any] | None,
    counter_getter: Callable[[Any], tuple[int, int]] | None,
) -> list[list[float]]:
    if counter_getter is None and item_getter is None:
        return [[float(number) for number in row] for row in matrix]
    n_rows, n_columns = counter_getter(matrix) if counter_getter else (len(matrix), len(matrix[0]))
    item = item_getter or (lambda matrix, i, j: matrix[i][j])
    return [[float(item(matrix, i, j)) for j in range(n_columns)] for i in range(n_rows)]


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("drawing needs Matplotlib: pip install burtorch[viz]", name=error.name) from None
    return plt.subplots()[1]


def _temporary(suffix: str) -> str:
    import tempfile

    handle, path = tempfile.mkstemp(prefix="burtorch-", suffix=suffix)
    os.close(handle)
    return path
