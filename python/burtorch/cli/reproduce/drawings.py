"""Figures 1 and 2, the graphs drawn, and figure 4, the same program for several frameworks."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib.util import find_spec

import burtorch
from burtorch.cli.reproduce.programs.graphs import ANSWERS, EXPRESSIONS, POINTS
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Column, Row, Table

GRAPHS = {"figure1": "tiny", "figure2": "small"}
BODY = """a, b = {value}(-41.0{more}), {value}(2.0{more})
c = a + b
d = a * b + b**3
e = c - d
g = e**2 / 2
g.backward()
print({read})
"""
LISTINGS = {
    "burtorch": "from burtorch import Value\n\n" + BODY.format(value="Value", more="", read="g.data, a.grad, b.grad"),
    "micrograd": "from micrograd.engine import Value\n\n"
    + BODY.format(value="Value", more="", read="g.data, a.grad, b.grad"),
    "torch": "import torch\n\n"
    + BODY.format(value="torch.tensor", more=", requires_grad=True", read="g.item(), a.grad.item(), b.grad.item()"),
}


def graph(settings: Settings, name: str) -> Table:
    """The nodes with their numbers and gradients; a picture with --out."""
    which = GRAPHS[name]
    found = Table(name, f"the {which} graph", [Column("data"), Column("gradient")])
    with burtorch.Graph() as nodes:
        a, b = (burtorch.Value(x, label=label) for x, label in zip(POINTS[which], "ab"))
        root = EXPRESSIONS[which](a, b)
    root.backward()
    found.rows = [Row("a", [a.data, a.grad]), Row("b", [b.data, b.grad]), Row("result", [root.data, 1.0])]
    if settings.out is None:
        found.notes.append("With --out, the picture is saved there.")
    else:
        found.files = {f"{name}.svg": nodes.to_svg([root]), f"{name}.dot": nodes.to_dot([root])}
    return found


def listings(settings: Settings, name: str) -> Table:
    """Each program runs if its framework is installed, and its answer is checked."""
    found = Table(name, "Figure 1 as a program", [])
    heads = "".join(f"<th>{package}</th>" for package in LISTINGS)
    cells = "\n".join(f"<td>\n\n```python\n{text}```\n\n</td>" for text in LISTINGS.values())
    found.text = f"<table><tr>{heads}</tr><tr>\n{cells}\n</tr></table>"
    for package, text in LISTINGS.items():
        asked = package == "burtorch" or package in settings.peers
        if not asked or find_spec(package) is None:
            found.notes.append(f"{package}: not run, because it is not {'installed' if asked else 'among --peers'}.")
        else:
            found.notes.append(f"{package}: {checked(text)}.")
    return found


def checked(text: str) -> str:
    """Runs a listing, which prints the value and both derivatives."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, encoding="utf-8", errors="replace")
    numbers = [float(word) for word in done.stdout.split()]
    if len(numbers) == 3 and all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(numbers, ANSWERS["tiny"])):
        return "run, and its value and gradient are right"
    raise RuntimeError(f"a listing printed {done.stdout!r}: {done.stderr[-200:]}")
