"""Methods on Flower: the bits of one process. Needs flwr with its simulation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from burtorch import flower, opt


def test_sums_of_clients_are_those_of_the_tree():
    """Against a method that sums in Rust: FedAvg of clients whose gradients differ in size by many orders."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 8, 13):
        targets = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, size=n)
        f = opt.least_squares(rng.normal(size=(n, 2)), targets)
        sent = []
        cohort = opt.Nice(max(1, n - 1))

        class Alone:
            def here(self, n):
                return self.number, self.number + 1

            def gather(self, own, sent=sent):
                sent.append(own)
                return own

        for number in range(n):
            engine = Alone()
            engine.number = number
            opt.FedAvg(f, clients=n, cohort=cohort, step=0.1, engine=engine).run(1)
        method = opt.FedAvg(f, clients=n, cohort=cohort, step=0.1)
        method.run(1)
        total = flower._joined(sent)
        assert (total[0], len(total)) == (1.0, 3 + 2 + 4)
        assert ((1.0 / max(1, n - 1)) * total[3:5]).tobytes() == method.x.tobytes()


def test_without_flwr_the_error_says_what_to_install():
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("flwr is installed")
    with pytest.raises(ImportError, match=r"burtorch\[flower\]"):
        flower.client_app(lambda engine: None)


@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs flwr (pip install 'burtorch[flower]')")
def test_the_simulation_gives_the_bits_of_one_process():
    script = Path(__file__).with_name("flower_hash.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=400)
    lines = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    assert [line[0] for line in lines] == ["EF21", "FedAvg", "MARINA"], done.stderr[-2000:]
    assert all(on_flower == local for _, on_flower, local in lines)


def test_the_script_imports_without_flwr_only_what_it_says():
    """`import burtorch.flower` needs neither flwr nor NumPy."""
    code = "import sys, burtorch.flower; print(sorted({'flwr', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
