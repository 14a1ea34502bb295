"""Tables 8 to 10: the ops, after ``burtorch selftest`` has checked them on this machine."""

from __future__ import annotations

import subprocess
import sys

import burtorch
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Column, Row, Table

COLUMNS = [
    Column("name in the paper"),
    Column("formula"),
    Column("bound of the value", "ULP"),
    Column("bound of the partials", "ULP"),
]
GROUPS = {
    "table8": ("leaves and ops of one operand", ("nullary", "unary", "withconstant")),
    "table9": ("ops of two operands", ("binary",)),
    "table10": ("ops of many operands", ("reduction", "innerproduct", "block")),
}


def table(settings: Settings, name: str) -> Table:
    """The rows of the op table with this number of operands."""
    title, arities = GROUPS[name]
    found = Table(name, title, COLUMNS)
    for op in burtorch.system.ops():
        if op["arity"] in arities:
            values = [op["paper_name"] or None, op["formula"], op["value_ulp"], op["partial_ulp"]]
            found.rows.append(Row(op["name"], values))
    found.notes.append(f"burtorch selftest on this machine: {settings.once('selftest', selftest)}.")
    found.notes.append("The three tables differ in the number of operands; ops that are not in the paper are included.")
    return found


def selftest() -> str:
    """The last line of the self-check."""
    command = [sys.executable, "-m", "burtorch", "selftest"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    return (done.stdout.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
