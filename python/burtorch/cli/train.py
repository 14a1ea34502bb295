"""``burtorch train``: a character model from a list of words, or a GPT from a text, in one command.

All input errors are found before training starts. Training imports neither NumPy nor
Matplotlib: a separate process draws the loss curve, after all figures have been measured.
"""

from __future__ import annotations

import argparse
import math
import os
from time import monotonic
from typing import TYPE_CHECKING, Any

import burtorch
from burtorch.cli import checkpoint, results
from burtorch.cli.arguments import count, lanes, positive, seed
from burtorch.cli.checkpoint import Checkpoint
from burtorch.cli.errors import InputError, reason, say
from burtorch.cli.kinds import KINDS
from burtorch.cli.progress import Progress
from burtorch.cli.trainer import Course, mean_loss, train

if TYPE_CHECKING:
    from burtorch._core import Tensor
    from burtorch.cli.kinds import AnyModel

# Defaults of the options of all models; on the command line None means that an option was not given.
DEFAULTS: dict[str, Any] = {
    "model": "char-mlp",
    "checkpoint_every": 60.0,
    "final_lr_fraction": 0.1,
    "lanes": "auto",
    "seed": 0,
    "freeze_embedding": False,
}
OPTIONS = ("optimizer", "batch", "steps", "lr", "final_lr_fraction", "seed", "lanes")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "train",
        help="train a character model on words, or a GPT on a text",
        description="Train a character model on words, or a GPT on a text, print a summary, and sample from it.",
        epilog="examples: burtorch train --data names.txt --hidden 64 --batch 32 --steps 10000 --out runs/names; "
        "burtorch train --model gpt --data shakespeare.txt --out runs/gpt",
    )
    parser.set_defaults(run=run)
    parser.add_argument("--model", choices=list(KINDS), help=f"the model ({_defaults('model')})")
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="UTF-8 text: one word per line, or any text for gpt (default: words of the package)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="directory for summary, model and loss curve (default: nothing is saved)"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="SECONDS",
        help=f"time between two checkpoints in --out, from which --resume continues ({_defaults('checkpoint_every')})",
    )
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="continue the training with this --out, bit for bit, or up to another number of --steps; its other "
        "options are used, and different ones reported and ignored",
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        metavar="S",
        help="end after the step in which this time has passed; --resume continues from there",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    model = parser.add_argument_group("model")
    for name, what in (
        ("context", "symbols seen"),
        ("embedding", "char-mlp: numbers a symbol"),
        ("hidden", "char-mlp: hidden units"),
        ("layers", "gpt: layers"),
        ("heads", "gpt: heads of attention in each, a divisor of the width"),
        ("width", "gpt: features of a symbol"),
    ):
        model.add_argument(f"--{name}", type=count, metavar="N", help=f"{what} ({_defaults(name)})")
    model.add_argument("--freeze-embedding", action="store_true", default=None, help="keep the initial embeddings")
    steps = parser.add_argument_group("training")
    steps.add_argument("--batch", type=count, metavar="N", help=f"samples per step ({_defaults('batch')})")
    steps.add_argument("--steps", type=count, metavar="N", help=f"steps ({_defaults('steps')})")
    steps.add_argument("--optimizer", choices=["sgd", "adamw"], help=f"({_defaults('optimizer')})")
    steps.add_argument("--lr", type=positive, metavar="X", help=f"learning rate ({_defaults('lr')})")
    steps.add_argument(
        "--final-lr-fraction",
        type=positive,
        metavar="X",
        help=f"factor of the learning rate in the last 30 %% of the steps ({_defaults('final_lr_fraction')})",
    )
    steps.add_argument(
        "--lanes",
        type=lanes,
        metavar="N",
        help=f"samples computed at once: auto, 1, 4, 8 or 16; results agree within rounding ({_defaults('lanes')})",
    )
    steps.add_argument("--seed", type=seed, help=f"seed of weights, hold-out, batches, samples ({_defaults('seed')})")


def _defaults(option: str) -> str:
    """The default of an option."""
    if option in DEFAULTS:
        return f"default {DEFAULTS[option]}"
    found = {name: kind.options[option] for name, kind in KINDS.items() if option in kind.options}
    values = list(found.values())
    if len(values) == 1 or values[0] == values[1]:
        return f"default {values[0]}"
    return "default " + ", ".join(f"{value} for {name}" for name, value in found.items())


def _complete(args: argparse.Namespace) -> None:
    """Sets the defaults of missing options, and refuses options of the other kind of model."""
    for name, value in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    options = KINDS[args.model].options
    for name in {name for kind in KINDS.values() for name in kind.options}:
        if name not in options:
            if getattr(args, name) is not None:
                raise InputError(f"--{name} is not an option of --model {args.model}")
        elif getattr(args, name) is None:
            setattr(args, name, options[name])


def run(args: argparse.Namespace) -> int:
    kept = Checkpoint(args.resume) if args.resume is not None else None
    if kept is not None:
        ignored = kept.restore_options(args)
        if args.out is not None and os.path.abspath(args.out) != os.path.abspath(args.resume):
            ignored.append(f"--out {args.out} (it is {args.resume})")
        args.out = args.resume
        if ignored:
            say(f"burtorch train: note: --resume keeps the options of the training; ignored: {', '.join(ignored)}")
    _complete(args)
    training = Training(args)
    course = Course()
    if kept is not None:
        kept.restore(training, course)
        if course.n_steps > args.steps:
            raise InputError(
                f"{args.resume}: {course.n_steps} steps are taken, which is more than --steps {args.steps}"
            )
    results.require_writable(args.out)
    if not args.json:
        print(training.headline(), flush=True)
        if course.n_steps:
            print(f"continuing after step {course.n_steps} of {args.steps}", flush=True)
    progress = Progress(args.steps, shown=not args.quiet)

    last_kept = monotonic()

    def watch(course: Course) -> None:
        progress(course)
        nonlocal last_kept
        if args.out is not None and monotonic() - last_kept >= args.checkpoint_every:
            checkpoint.save(args.out, training, course, training.kept_options())
            last_kept = monotonic()

    course = train(
        training.oracle,
        training.optimizer,
        training.data,
        batch=args.batch,
        steps=args.steps,
        lr=args.lr,
        final_lr_fraction=args.final_lr_fraction,
        seconds=args.seconds,
        watch=watch,
        course=course,
    )
    progress.close(course)
    if course.interrupted:
        say(f"interrupted after step {course.n_steps}: evaluating, Ctrl-C again to skip that")
    summary = training.summary(course)
    results.show(summary, as_json=args.json)
    if args.out is not None:
        if course.between_steps:
            checkpoint.save(args.out, training, course, training.kept_options())
        results.keep(args.out, summary, training.model, training.data.vocabulary)
    if summary["diverged"]:
        last = course.losses[-1]
        say(f"burtorch train: error: training diverged (last loss {last}): try a smaller --lr")
        return 1
    return 130 if summary["interrupted"] else 0


def _embeddings(model: AnyModel) -> list[Tensor]:
    if isinstance(model, burtorch.nn.GPT):
        return [model.tokens, model.positions]
    return [model.embedding]


class Training:
    """The data, the model and the optimiser of the options, and the summary of the results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.kind = KINDS[args.model]
        self.source = args.data or "the words of the package"
        try:
            self.data, self.amount = self.kind.read(args)
        except OSError as error:
            raise InputError(f"{self.source}: {reason(error)}") from None
        except ValueError as error:
            # Errors of readers begin with the file.
            raise InputError(f"{self.source}: {str(error).removeprefix(f'{self.source}: ')}") from None
        try:
            self.parameters = burtorch.Parameters(dtype="float32", seed=args.seed)
            sizes = {name: getattr(args, name) for name in self.kind.sizes}
            self.model = self.kind.build(self.parameters, len(self.data.vocabulary), sizes)
            if args.freeze_embedding:
                for tensor in _embeddings(self.model):
                    tensor.freeze()
            self.oracle = burtorch.Oracle(self.model, lanes=args.lanes)
            make = {"sgd": burtorch.optim.SGD, "adamw": burtorch.optim.AdamW}[args.optimizer]
            self.optimizer = make(self.parameters, lr=args.lr)
        except ValueError as error:
            raise InputError(str(error)) from None

    def kept_options(self) -> dict[str, Any]:
        """The options that a resumed training restores."""
        source = None if self.args.data is None else os.path.abspath(self.args.data)
        names = ("model", *self.kind.sizes, *OPTIONS, "freeze_embedding", "checkpoint_every")
        return {"data": source, **{name: getattr(self.args, name) for name in names}}

    def headline(self) -> str:
        data, ((what, n),) = self.data, self.amount.items()
        return (
            f"{self.args.model} on {self.source}: {n:,} {what}, {len(data.vocabulary)} symbols, "
            f"{data.n_train:,} training and {data.n_heldout:,} held-out {self.kind.places}"
        )

    def summary(self, course: Course) -> dict[str, Any]:
        """Every figure of the run as JSON data; ``None`` for a figure that was not measured or is not finite."""
        findings = self._findings(course)
        data = self.data
        return {
            "burtorch": burtorch.__version__,
            "cpu_level": burtorch.system.cpu_level(),
            "model": self.args.model,
            "data": {
                "source": self.source,
                **self.amount,
                "symbols": len(data.vocabulary),
                f"train_{self.kind.places}": data.n_train,
                f"heldout_{self.kind.places}": data.n_heldout,
            },
            "options": {name: getattr(self.args, name) for name in (*self.kind.sizes, *OPTIONS)},
            "parameters": len(self.parameters),
            "steps_taken": course.n_steps,
            **findings,
            "median_ms_per_step": course.median_ms_per_step(),
            "peak_resident_mb": results.peak_resident_mb(),
            "history": course.history(),
        }

    def _findings(self, course: Course) -> dict[str, Any]:
        found: dict[str, Any] = {
            "interrupted": course.interrupted,
            "diverged": course.diverged,
            "train_loss": None,
            "heldout_loss": None,
            "samples": [],
        }
        if course.diverged:
            return found
        data = self.data
        try:
            for name, contexts, n in (
                ("heldout_loss", data.heldout, data.n_heldout),
                ("train_loss", data.train, data.n_train),
            ):
                loss = mean_loss(self.oracle, contexts, n)
                if loss is not None and not math.isfinite(loss):
                    found["diverged"] = True
                    return found
                found[name] = loss
            found["samples"] = self.kind.samples(self.model, data.vocabulary, self.args.seed)
        except KeyboardInterrupt:
            found["interrupted"] = True
        return found
