"""``burtorch bench memory`` and ``bench startup``: memory and time of whole processes.

Memory is the kernel's figure (VmHWM and VmPeak of /proc/self/status); time is from the start of the interpreter to its
end. Every row is a separate process, and one row is the bare interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter
from typing import Any

MLP = """
import burtorch
from burtorch.data import default_words
words = default_words()
contexts = burtorch.text.WordContexts(words, context=16)
params = burtorch.Parameters()
model = burtorch.nn.CharMLP(params, vocab=len(contexts.vocabulary), context=16, embedding=64, hidden={hidden})
oracle, sgd = burtorch.Oracle(model), burtorch.optim.SGD(params, lr=0.001)
for _ in range({steps}):
    loss, _ = oracle(*contexts.batch({batch}))
    sgd.step()
assert 0 < loss < 20
"""
GPT = """
import burtorch
text = "\\n".join(burtorch.data.default_words())
windows = burtorch.text.TextWindows(text, context=8)
params = burtorch.Parameters()
model = burtorch.nn.GPT(params, vocab=len(windows.vocabulary))
oracle, adam = burtorch.Oracle(model), burtorch.optim.AdamW(params, lr=0.003)
for _ in range({steps}):
    loss, _ = oracle(*windows.batch({batch}))
    adam.step()
assert 0 < loss < 20
"""
TINY = """
import burtorch
for _ in range(20000):
    a, b = burtorch.Value(-41.0), burtorch.Value(2.0)
    g = ((a + b) - (a * b + b**3)) ** 2 / 2
    g.backward()
assert (a.grad, b.grad) == (-35.0, 1050.0)
"""
# The loop of ``reproduce.programs.graphs``, which this process does not import.
SMALL = """
import burtorch
for _ in range(20000):
    a, b = burtorch.Value(-4.0), burtorch.Value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
assert (round(g.data, 4), round(a.grad, 4), round(b.grad, 4)) == (24.7041, 138.8338, 645.5773)
"""
MEMORY = {
    "bare interpreter": "",
    "import burtorch": "import burtorch",
    "tiny graph, 20,000 times": TINY,
    "small graph, 20,000 times": SMALL,
    **{
        f"MLP e={hidden}, b={batch}, 3 steps": MLP.format(hidden=hidden, batch=batch, steps=3)
        for hidden in (4, 1024)
        for batch in (1, 64, 4096)
    },
    **{f"GPT, b={batch}, 3 steps of AdamW": GPT.format(batch=batch, steps=3) for batch in (1, 64, 4096)},
}
STARTUP = {
    "bare interpreter": "",
    "import burtorch": "import burtorch",
    "one step, MLP e=4, b=1": MLP.format(hidden=4, batch=1, steps=1),
    "one step, MLP e=1024, b=64": MLP.format(hidden=1024, batch=64, steps=1),
}
STATUS = """
for line in open("/proc/self/status"):
    if line.startswith(("VmHWM", "VmPeak")):
        print(line.split()[1])
"""


def memory() -> dict[str, dict[str, float]]:
    """Peak resident and peak virtual memory of each process, in MB; Linux only."""
    rows = {}
    for name, program in MEMORY.items():
        virtual, resident = (int(kilobytes) / 1e3 for kilobytes in _run(program + STATUS).split())
        rows[name] = {"peak_resident": resident, "peak_virtual": virtual}
    return rows


def startup(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each whole process, in alternation."""
    times: dict[str, list[float]] = {name: [] for name in STARTUP}
    for _ in range(rounds):
        for name, program in STARTUP.items():
            start = perf_counter()
            _run(program)
            times[name].append(1e3 * (perf_counter() - start))
    return {name: {"median": sorted(runs)[rounds // 2], "minimum": min(runs)} for name, runs in times.items()}


def _run(program: str) -> str:
    """The output of a fresh interpreter without site start-up files, which are not part of burtorch."""
    command = [sys.executable, "-c", program]
    result: Any = subprocess.run(command, check=True, capture_output=True, text=True)
    return str(result.stdout)
