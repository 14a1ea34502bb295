"""Problems, methods and compressors of ``burtorch optimise`` by their command-line names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, TypeVar

import burtorch
from burtorch.cli.errors import InputError, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from burtorch import mpi, opt
    from burtorch._core import Compressor, FiniteSum

Constant = TypeVar("Constant", int, float)
PROBLEMS = ("logistic", "least-squares", "robust", "softmax")
OF_SAMPLES = {
    "gd": "GD",
    "agd": "AGD",
    "sgd": "SGD",
    "l-svrg": "LSVRG",
    "l-katyusha": "LKatyusha",
    "saga": "SAGA",
    "page": "PAGE",
}
COMPRESSED = {
    "dcgd": "DCGD",
    "diana": "DIANA",
    "marina": "MARINA",
    "vr-marina": "VRMARINA",
    "pp-marina": "PPMARINA",
    "dasha": "DASHA",
    "ef14": "EF14",
    "ef21": "EF21",
    "ef21-bc": "EF21BC",
    "ef21-pp": "EF21PP",
    "ef21-sgdm": "EF21SGDM",
}
LOCAL = {"scaffnew": "Scaffnew", "fedavg": "FedAvg", "scaffold": "Scaffold"}
METHODS = {**OF_SAMPLES, **COMPRESSED, **LOCAL}
COMPRESSORS = {
    "identity": "Identity",
    "randk": "RandK",
    "randseqk": "RandSeqK",
    "permk": "PermK",
    "topk": "TopK",
    "natural": "Natural",
    "bernoulli": "Bernoulli",
    "toplek": "TopLEK",
    "scaledsign": "ScaledSign",
    "terngrad": "TernGrad",
    "qsgd": "QSGD",
    "naturaldithering": "NaturalDithering",
}
PLAIN = ("identity", "permk", "natural", "scaledsign", "terngrad")
LEVELLED = ("qsgd", "naturaldithering")
EXAMPLES = dict.fromkeys(LEVELLED, "4")
MOST_CALLS = 2.0**62
"""The most oracle calls of a run."""


def started(args: argparse.Namespace) -> mpi.Engine:
    """Starts the engine of --engine mpi."""
    from burtorch import mpi

    try:
        return mpi.Engine(timeout=args.timeout)
    except ImportError as error:
        raise InputError(str(error)) from None


def usual(entry: str) -> str:
    """A method in the usual spelling: `L-SVRG`, `lsvrg` and `EF21:TopK:0.05` are l-svrg and ef21:topk:0.05."""
    name, colon, compressor = entry.strip().lower().partition(":")
    plain = name.replace("-", "").replace("_", "")
    return next((known for known in METHODS if known.replace("-", "") == plain), name) + colon + compressor


def check(entry: str, engine: str) -> None:
    """Refuses an unknown method, a compressor for a method without one, and processes for a method without clients."""
    name, colon, _ = entry.partition(":")
    if name not in METHODS:
        raise InputError(f"--method {entry}: expected one of {', '.join(METHODS)}")
    if colon and name not in COMPRESSED:
        raise InputError(f"--method {entry}: {name} has no compressor")
    if engine != "local" and name in OF_SAMPLES:
        raise InputError(f"--engine {engine}: {name} has no clients")


class Choices:
    """The problem of a command, and its methods."""

    def __init__(self, args: argparse.Namespace, engine: mpi.Engine | None) -> None:
        self.args = args
        self.engine = engine
        _compressor(args.compressor)
        if args.downlink is not None:
            _compressor(args.downlink)
        try:
            self.problem = _problem(args)
        except OSError as error:
            if engine is not None:  # it may occur in one process only, and the others must not wait
                raise
            raise InputError(f"{args.data}: {reason(error)}") from None
        self.n_clients: int = args.clients or min(20, self.problem.n)
        if args.cohort is not None and args.cohort > self.n_clients:
            raise InputError(f"--cohort {args.cohort}: expected at most the {self.n_clients} clients")
        if not args.epochs * self.problem.n <= MOST_CALLS:
            raise InputError(f"--epochs {args.epochs:g}: expected at most {MOST_CALLS / self.problem.n:g}")
        self._constants: dict[bool, opt.Smoothness] = {}

    def method(self, entry: str, seed: int) -> opt.Method:
        """A method at its initial point. Constants are computed once for all seeds."""
        try:
            return self._method(entry, seed)
        except ValueError as error:
            raise InputError(f"{entry}: {error}") from None

    def _method(self, entry: str, seed: int) -> opt.Method:
        from burtorch import opt

        args, options = self.args, dict[str, Any]()
        name, _, compressor = entry.partition(":")
        if name not in OF_SAMPLES:
            options["clients"] = self.n_clients
            options["engine"] = "local" if self.engine is None else self.engine
        elif name not in ("gd", "agd"):
            options["sampling"] = opt.Nice(args.batch)
        if name in ("fedavg", "scaffold"):
            options["local_steps"] = args.local_steps
        if name in ("ef21-pp", "pp-marina", "fedavg", "scaffold"):
            options["cohort"] = opt.Full() if args.cohort is None else opt.Nice(args.cohort)
        if name in ("ef21-sgdm", "vr-marina"):
            options["sampling"] = opt.Nice(args.batch)
        if name == "ef21-sgdm":
            options["momentum"] = args.momentum
        if name == "ef21-bc":
            options["downlink"] = _compressor(args.downlink or compressor or args.compressor)
        if name in COMPRESSED:
            options["compressor"] = _compressor(compressor or args.compressor)
        options["constants"] = self._constants.get("clients" in options)
        made: opt.Method = getattr(opt, METHODS[name])(
            self.problem, step=_step(args.step), seed=seed, threads=args.threads, **options
        )
        if made._constants is not None:
            self._constants["clients" in options] = made._constants
        return made


def _step(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _problem(args: argparse.Namespace) -> FiniteSum:
    from burtorch import opt

    try:
        features, labels = opt.load_libsvm(args.data)
    except ValueError as error:
        raise InputError(f"{args.data}: {error}") from None
    if not features.shape[1]:
        raise InputError(f"{args.data}: no sample has a feature")
    regularisers = {"l2": args.l2, "nonconvex": args.nonconvex}
    found = sorted(set(labels.tolist()))
    if args.labels is not None and args.problem != "logistic":
        raise InputError(f"--labels is for logistic regression, found --problem {args.problem}")
    if args.problem == "logistic":
        names = found if args.labels is None else _pair(args.labels)
        shown = ", ".join(f"{label:g}" for label in found[:5])
        if len(found) != 2:
            raise InputError(f"{args.data}: logistic regression takes two labels, found {shown}")
        if set(names) != set(found):
            raise InputError(f"--labels {args.labels}: the labels of {args.data} are {shown}")
        return opt.logistic_regression(features, labels, label_names=names, **regularisers)
    if args.problem == "softmax":
        return opt.softmax_regression(features, [found.index(label) for label in labels], **regularisers)
    make = opt.least_squares if args.problem == "least-squares" else opt.robust_regression
    return make(features, labels, **regularisers)


def _pair(text: str) -> list[float]:
    try:
        negative, positive = map(float, text.split(","))
    except ValueError:
        raise InputError(f"--labels {text}: expected two numbers, such as 0,1") from None
    return [negative, positive]


def _constant(text: str, kind: Callable[[str], Constant], expected: str) -> Constant:
    """The number of a compressor after the colon."""
    name, _, constant = text.partition(":")
    try:
        return kind(constant)
    except ValueError:
        raise InputError(f"compressor {text}: {name} takes {expected}, found {constant!r}") from None


def _compressor(text: str) -> Compressor:
    name, colon, constant = text.partition(":")
    if name not in COMPRESSORS:
        raise InputError(f"compressor {text}: expected one of {', '.join(COMPRESSORS)}")
    if name in PLAIN and colon:
        raise InputError(f"compressor {text}: {name} takes no number")
    if name not in PLAIN and not constant:
        raise InputError(f"compressor {text}: {name} takes a number, as in {name}:{EXAMPLES.get(name, '0.1')}")
    make = getattr(burtorch.compress, COMPRESSORS[name])
    try:
        if name in PLAIN:
            made: Compressor = make()
        elif name == "bernoulli":
            made = make(_constant(text, float, "a number"))
        elif name in LEVELLED:
            made = make(_constant(text, int, "an integer"))
        elif constant.isdecimal():
            made = make(int(constant))
        else:
            made = make(fraction=_constant(text, float, "a number or a share"))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"compressor {text}: {error}") from None
    return made
