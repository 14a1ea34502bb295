"""Draws the loss curve of a training: ``python -m burtorch.cli.loss_picture summary.json loss.png``.

Runs as a separate process, so that Matplotlib and NumPy never affect the figures of a training.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    source, target = sys.argv[1:]
    try:
        import matplotlib
    except ImportError:
        print("Matplotlib is not installed (pip install 'burtorch[viz]')", file=sys.stderr)
        return 1
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(source, encoding="utf-8") as file:
        summary = json.load(file)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(summary["history"]["step"], summary["history"]["loss"], linewidth=1, label="batches, averaged")
    if summary["heldout_loss"] is not None:
        axes.axhline(summary["heldout_loss"], color="black", linestyle="--", linewidth=1, label="held out, at the end")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.set_title(f"{summary['model']}, {summary['parameters']:,} parameters, batch {summary['options']['batch']}")
    axes.legend()
    figure.savefig(target, dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
