"""A tool of the GradBench suite: answers its messages, one JSON object a line, from standard input on standard output.

gradbench run --eval "gradbench repo eval lse" --tool "python benches/gradbench/tool.py"
"""

import importlib
import json
import sys
import time
import traceback
from functools import cache

import numpy as np

import evals


@cache
def module(name):
    if name not in evals.NAMES:
        raise LookupError(f"no eval is called {name!r}")
    return importlib.import_module(f"evals.{name}")


def plain(result):
    """A result as numbers and lists."""
    if isinstance(result, dict):
        return {name: plain(part) for name, part in result.items()}
    if isinstance(result, (list, tuple)):
        return [plain(part) for part in result]
    return np.asarray(result).tolist()


def evaluate(name, function, given):
    """The result, and the nanoseconds of each run."""
    program = module(name)
    arguments = program.prepare(given)
    limits = given if isinstance(given, dict) else {}
    call, runs = program.FUNCTIONS[function], []
    while len(runs) < max(1, limits.get("min_runs", 1)) or sum(runs) < 1e9 * limits.get("min_seconds", 0):
        start = time.perf_counter_ns()
        result = call(*arguments)
        runs.append(time.perf_counter_ns() - start)
    return getattr(program, "answer", plain)(result), runs


def respond(message):
    try:
        if message["kind"] == "start":
            return {"tool": "burtorch"}
        if message["kind"] == "define":
            start = time.perf_counter_ns()
            module(message["module"])
            return {"success": True, "timings": [timing("define", time.perf_counter_ns() - start)]}
        if message["kind"] == "evaluate":
            output, runs = evaluate(message["module"], message["function"], message["input"])
            return {"success": True, "output": output, "timings": [timing("evaluate", run) for run in runs]}
    except Exception as error:
        return {"success": False, "error": "".join(traceback.format_exception(type(error), error, error.__traceback__))}
    return {}


def timing(name, nanoseconds):
    return {"name": name, "nanoseconds": nanoseconds}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        print(json.dumps({"id": message["id"], **respond(message)}), flush=True)


if __name__ == "__main__":
    main()
