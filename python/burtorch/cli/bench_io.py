"""``burtorch bench io``: saving and loading 7 of 32 values, with NumPy, PyTorch and safetensors if installed.

The workload is Table 4 of the paper: of the 32 nodes of the small graph (its Figure 2) the first seven are saved to a
file and loaded back as float64, 5,000 times.
Every contender's answer is checked before anything is timed; contenders alternate in short slices.
"""

from __future__ import annotations

import importlib
import os
from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import burtorch
from burtorch.cli.errors import UNUSABLE, InputError, reason
from burtorch.cli.reproduce.programs.graphs import POINTS, small


def _activations() -> list[float]:
    """The numbers of the nodes of the small graph, except its result."""
    graph = burtorch.Graph()
    a, b = map(graph.value, POINTS["small"])
    small(a, b)
    return [float(number) for number in graph.values][:-1]


VALUES = _activations()
KEPT = 7
SLICES = 20
RIVALS = ("numpy", "torch", "safetensors")
DURABLE_SHARE = 50  # a save that waits for the disk is called this many times less often


class Contender(NamedTuple):
    save: Callable[[str], object]
    load: Callable[[str], object]
    answer: Callable[[object], list[float]]  # the loaded numbers, from the result of ``load``
    n_numbers: int = KEPT
    durable: bool = False


def run(calls: int, folder: str | None, rivals: Sequence[str] = RIVALS) -> dict[str, Any]:
    """Times all contenders in ``folder``, by default one in memory if the system has one; microseconds per call.

    ``rivals`` names the libraries to compare with, if they are installed.
    """
    import tempfile

    if folder is None and os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK):
        folder = "/dev/shm"
    try:
        temporary = tempfile.TemporaryDirectory(dir=folder)
    except UNUSABLE as error:
        raise InputError(f"--folder {folder}: {reason(error)}") from None
    with temporary as inside:
        contenders = _contenders(rivals)
        paths = {name: os.path.join(inside, f"file-{k}") for k, name in enumerate(contenders)}
        for name, contender in contenders.items():
            contender.save(paths[name])
            found = contender.answer(contender.load(paths[name]))
            if found != VALUES[: contender.n_numbers]:
                raise RuntimeError(f"{name} is wrong: it loads {found}")
        n = max(1, calls // SLICES)
        sizes = {name: os.path.getsize(path) if os.path.exists(path) else 8 * KEPT for name, path in paths.items()}
        times = _interleaved(contenders, paths, n)
        rows = {name: {**times[name], "bytes": sizes[name]} for name in times}
        return {"folder": _where(inside), "calls": n * SLICES, "contenders": rows}


def show(record: dict[str, Any]) -> None:
    """Prints the table."""
    print(
        f"us per call, {KEPT} of {len(VALUES)} float64 values, {record['calls']:,} calls each, on {record['folder']}\n"
    )
    columns = ("median", "minimum", "90 %")
    print(f"{'':<36}{'save':>10}{'load':>30}")
    print(f"{'':<36}" + "".join(f"{column:>10}" for column in 2 * columns))
    for name, row in record["contenders"].items():
        figures = [row[what][column] for what in ("save", "load") for column in columns]
        print(f"{name:<36}" + "".join(f"{figure:>10,.2f}" for figure in figures))


def _interleaved(contenders: dict[str, Contender], paths: dict[str, str], n: int) -> dict[str, dict[str, Any]]:
    slices: dict[str, dict[str, list[float]]] = {name: {"save": [], "load": []} for name in contenders}
    for _ in range(SLICES):
        for name, contender in contenders.items():
            path = paths[name]
            for what, call in (("save", contender.save), ("load", contender.load)):
                repeats = max(1, n // DURABLE_SHARE) if contender.durable else n
                start = perf_counter()
                for _ in range(repeats):
                    call(path)
                slices[name][what].append(1e6 * (perf_counter() - start) / repeats)
    return {name: {what: _spread(sorted(t)) for what, t in both.items()} for name, both in slices.items()}


def _spread(ordered: list[float]) -> dict[str, float]:
    """Statistics of the slices' mean times, given in ascending order."""
    mean = sum(ordered) / SLICES
    return {"mean": mean, "median": ordered[SLICES // 2], "minimum": ordered[0], "90 %": ordered[SLICES * 9 // 10]}


def _where(folder: str) -> str:
    """The file system of a folder."""
    point, kind = "", "an unknown file system"
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, other, found = line.split()[:3]
                if (folder + "/").startswith(other.rstrip("/") + "/") and len(other) > len(point):
                    point, kind = other, found
    except OSError:
        pass
    return f"{kind} at {point}" if point else kind


def _contenders(rivals: Sequence[str]) -> dict[str, Contender]:
    found = _burtorch()
    found["array.array and open()"] = Contender(_save_array, _load_array, _as_list)
    for name, library in (("numpy", _numpy), ("torch", _torch), ("safetensors", _safetensors)):
        try:
            found.update(library() if name in rivals else {})
        except ImportError:
            continue
    return found


def _as_list(loaded: Any) -> list[float]:
    return [float(number) for number in loaded]


def _burtorch() -> dict[str, Contender]:
    graph, last = burtorch.Graph(), KEPT - 1
    values = graph.vector(VALUES)
    memory = bytearray(8 * KEPT)

    def seven(_: object) -> list[float]:
        return [values[k].data for k in range(KEPT)]

    def everything(_: object) -> list[float]:
        return [value.data for value in values]

    n = len(VALUES)
    return {
        "burtorch raw": Contender(
            lambda path: graph.save_raw(path, 0, last), lambda path: graph.load_raw(path, 0, last), seven
        ),
        "burtorch raw, atomic; mapped": Contender(
            lambda path: graph.save_raw(path, 0, last, atomic=True),
            lambda path: graph.load_raw(path, 0, last, mmap=True),
            seven,
        ),
        "burtorch raw, in memory": Contender(
            lambda path: graph.save_raw(memory, 0, last), lambda path: graph.load_raw(memory, 0, last), seven
        ),
        "burtorch checked": Contender(
            lambda path: graph.save(path, 0, last, durable=False), lambda path: graph.load(path), seven
        ),
        "burtorch checked, durable": Contender(
            lambda path: graph.save(path, 0, last), lambda path: graph.load(path), seven, durable=True
        ),
        "burtorch checked, whole graph of 32": Contender(
            lambda path: graph.save(path, durable=False), lambda path: graph.load(path), everything, n_numbers=n
        ),
    }


def _save_array(path: str) -> None:
    with open(path, "wb") as file:
        array("d", VALUES[:KEPT]).tofile(file)


def _load_array(path: str) -> array[float]:
    with open(path, "rb") as file:
        numbers = array("d")
        numbers.fromfile(file, KEPT)
    return numbers


def _numpy() -> dict[str, Contender]:
    np: Any = importlib.import_module("numpy")
    values = np.array(VALUES)

    def save(path: str) -> None:
        with open(path, "wb") as file:
            np.save(file, values[:KEPT])

    return {
        "numpy tofile, fromfile": Contender(
            lambda path: values[:KEPT].tofile(path), lambda path: np.fromfile(path), _as_list
        ),
        "numpy save, load": Contender(save, lambda path: np.load(path), _as_list),
    }


def _torch() -> dict[str, Contender]:
    torch: Any = importlib.import_module("torch")
    values = torch.tensor(VALUES, dtype=torch.float64)
    return {
        "torch save, load": Contender(
            lambda path: torch.save(values[:KEPT].clone(), path), lambda path: torch.load(path), _as_list
        )
    }


def _safetensors() -> dict[str, Contender]:
    np: Any = importlib.import_module("numpy")
    tensors: Any = importlib.import_module("safetensors.numpy")
    values = np.array(VALUES)[:KEPT]
    return {
        "safetensors save_file, load_file": Contender(
            lambda path: tensors.save_file({"x": values}, path), lambda path: tensors.load_file(path)["x"], _as_list
        )
    }
