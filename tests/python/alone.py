"""Tests that run alone: those that read a clock or send a signal, directly or through names in their file.

Another process could slow down such a test until it fails, so `make test` runs these tests after the others, in one
process. Tests of memory and limits of their own process are not affected by other processes.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

# Matched as words of the source, so that scripts in strings count too.
MEASURES = re.compile(
    r"\b(perf_counter(_ns)?|monotonic(_ns)?|process_time|thread_time|getrusage|timeit|setitimer|alarm|interrupt_main"
    r"|raise_signal|send_signal|pthread_kill|os\.kill|SIGINT|SIGKILL|SIGTERM)\b"
)

# Files whose clock only limits the number of calls: a slow run tests less with the same result.
BESIDE = {"test_leaks.py"}


def names(node: ast.AST) -> set[str]:
    """All names in a statement, including its arguments, which may be fixtures."""
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return read | {a.arg for n in ast.walk(node) if isinstance(n, ast.arguments) for a in n.args}


def measuring(source: str) -> set[str]:
    """The top-level names of a file whose statements measure, or use a name that does."""
    statements: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            statements.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)):
            for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
                statements.setdefault(name, []).append(node)
    found = {name for name, nodes in statements.items() if MEASURES.search("\n".join(map(ast.unparse, nodes)))}
    while more := {name for name, nodes in statements.items() if any(names(n) & found for n in nodes)} - found:
        found |= more
    return found


@cache
def measuring_in(path: Path) -> set[str]:
    return measuring(path.read_text(encoding="utf-8"))


def runs_alone(path: Path, name: str) -> bool:
    """Whether the test with this name, a class or a function, must run alone."""
    return path.suffix == ".py" and path.name not in BESIDE and name in measuring_in(path)
