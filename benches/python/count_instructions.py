"""What one operation on Values costs in instructions, against Python's own ``a + b`` on floats.

    .venv/bin/python benches/python/count_instructions.py

Each operation stands in a loop that runs under valgrind's callgrind. The difference between a long and a short run
takes away the interpreter's start; the difference to the loop without the operation takes away the loop. What an
operation leaves behind is dropped in the same turn, so its share of reclaim is counted. Counts do not depend on how
busy the machine is; they do depend on the interpreter's build. Needs valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable

SHORT, LONG = 20_000, 120_000
"""Iterations of the two runs: the short one is long enough for the interpreter to specialise the loop."""

BASE = "float a + b"
BARS = {"a + b": 2.0, "a * 2.0": 2.2, "2.0 * a": 2.2, "Value(1.0)": 2.8, "a.tanh()": 3.0}


def nothing(n: int) -> None:
    for _ in range(n):
        pass


def float_add(n: int) -> None:
    a, b = 1.5, 2.5
    for _ in range(n):
        a + b


def value_add(n: int) -> None:
    from burtorch import Value

    a, b = Value(1.5), Value(2.5)
    for _ in range(n):
        a + b


def value_times_number(n: int) -> None:
    from burtorch import Value

    a = Value(1.5)
    for _ in range(n):
        a * 2.0


def number_times_value(n: int) -> None:
    from burtorch import Value

    a = Value(1.5)
    for _ in range(n):
        2.0 * a


def new_value(n: int) -> None:
    from burtorch import Value

    for _ in range(n):
        Value(1.0)


def value_tanh(n: int) -> None:
    from burtorch import Value

    a = Value(0.5)
    for _ in range(n):
        a.tanh()


LOOPS: dict[str, Callable[[int], None]] = {
    "nothing": nothing,
    BASE: float_add,
    "a + b": value_add,
    "a * 2.0": value_times_number,
    "2.0 * a": number_times_value,
    "Value(1.0)": new_value,
    "a.tanh()": value_tanh,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", choices=LOOPS, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        LOOPS[args.loop](args.turns)
        return 0
    per_turn = {name: instructions_per_turn(name) for name in LOOPS}
    costs = {name: per_turn[name] - per_turn["nothing"] for name in LOOPS if name != "nothing"}
    print(f"| Python {sys.version.split()[0]} | instructions | of a float's a + b | bar |")
    print("|---|---|---|---|")
    for name, cost in costs.items():
        bar = f"{BARS[name]:.1f}" if name in BARS else ""
        print(f"| `{name}` | {cost:.1f} | {cost / costs[BASE]:.2f} | {bar} |")
    return 0 if all(costs[name] <= bar * costs[BASE] for name, bar in BARS.items()) else 1


def instructions_per_turn(name: str) -> float:
    return (instructions(name, LONG) - instructions(name, SHORT)) / (LONG - SHORT)


def instructions(name: str, turns: int) -> int:
    """Instructions of a whole run of this file with only this loop."""
    # The interpreter itself, not a wrapper script; its prefix gives this environment's site packages.
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    command += [__file__, "--loop", name, "--turns", str(turns)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        sys.exit("valgrind is not installed; install it (apt-get install valgrind) and run this again")
    found = re.search(r"Collected : (\d+)", done.stderr)
    if not found:
        sys.exit(f"callgrind did not count:\n{done.stderr}")
    return int(found[1])


if __name__ == "__main__":
    sys.exit(main())
