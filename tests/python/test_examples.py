"""The examples run, and give the same losses on burtorch as on a plain-Python Value class."""

from __future__ import annotations

import importlib.util
import random
import re
import tomllib

import pytest

from burtorch import micrograd


@pytest.fixture
def example(root):
    def load(name):
        spec = importlib.util.spec_from_file_location(name, root / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_two_moons(example, capsys):
    assert example("two_moons").main(["--steps", "20", "--points", "20"]) < 1e-9
    assert "times faster" in capsys.readouterr().out


def test_scalar_gpt(example, capsys):
    assert example("scalar_gpt").main(["--steps", "3", "--names", "1"]) < 1e-9
    out = capsys.readouterr().out
    assert "4192 parameters" in out
    assert "made up:" in out


def test_own_models(example, capsys):
    example("own_models").main()
    assert capsys.readouterr().out.count("parameters") == 3


def test_scipy_solvers(example, capsys):
    import numpy as np

    bfgs, steps, newton, newton_steps, root, fitted = example("scipy_solvers").main(["--n", "2", "--every", "5"])
    for found, progress in ((bfgs, steps), (newton, newton_steps)):
        np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-3)
        assert len(progress) == found.nit
        assert progress[-1] < 1e-6 < progress[0]
    np.testing.assert_allclose(root.x, [0.8411639, 0.1588361], atol=1e-6)
    np.testing.assert_allclose(fitted.x, [2.0, -1.3], atol=0.02)
    out = capsys.readouterr().out
    assert "step    5:" in out
    assert "products" in out


def test_variance_reduction(example, capsys):
    """SGD with a fixed step stays in a neighbourhood of the solution; variance reduction converges to it, SAGA and
    PAGE earlier than gradient descent."""
    found = example("variance_reduction").main([])
    assert capsys.readouterr().out.count("epochs") == 5
    gap = {name: max(records[-1].gap, 0.0) for name, records in found.items()}
    assert gap["SGD"] > 10.0 * max(gap[name] for name in found if name != "SGD")
    assert max(gap["SAGA"], gap["PAGE"]) < 0.1 * gap["GD"]


def test_compressed_training(example, capsys):
    """Without shifts the messages at x* are not 0, and DCGD stays in a neighbourhood; the other methods converge."""
    found = example("compressed_training").main([])
    assert capsys.readouterr().out.count("bits") == 7
    target = 1e-6 * found["GD"][0].grad_norm
    reached = {name: records[-1].bits_up for name, records in found.items() if records[-1].grad_norm <= target}
    assert "DCGD RandK" not in reached
    assert reached.keys() >= {"GD", "DIANA RandK", "MARINA PermK", "EF21 TopK", "Scaffnew"}
    assert reached["Scaffnew"] < reached["GD"]


def test_compressed_training_refuses_clients_without_samples(example, capsys):
    with pytest.raises(SystemExit, match="2"):
        example("compressed_training").main(["--n", "5", "--clients", "10"])
    assert "--clients must be from 1 to the 5 samples, found 10" in capsys.readouterr().err


def test_micrograd_trains_as_its_readme_does(example):
    random.seed(1337)
    moons = example("two_moons").moons(20)
    model = micrograd.MLP(2, [8, 8, 1])
    assert repr(model).startswith("MLP of [Layer of [ReLUNeuron(2), ")
    assert len(model.parameters()) == 2 * 8 + 8 + 8 * 8 + 8 + 8 + 1
    losses = []
    for _ in range(20):
        scores = [model(list(map(micrograd.Value, x))) for x, _ in moons]
        data_loss = sum((1 + -side * score).relu() for (_, side), score in zip(moons, scores)) * (1.0 / len(moons))
        total = data_loss + 1e-4 * sum(p * p for p in model.parameters())
        model.zero_grad()
        total.backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad
        losses.append(total.data)
    assert losses[-1] < 0.5 * losses[0]


def test_micrograd_shapes():
    random.seed(0)
    assert isinstance(micrograd.Layer(2, 3)([1.0, 2.0]), list)
    assert isinstance(micrograd.Layer(2, 1)([1.0, 2.0]), micrograd.Value)
    assert isinstance(micrograd.MLP(2, [1, 3, 1])([1.0, 2.0]), micrograd.Value)
    assert micrograd.Module().parameters() == []


def test_logistic(example, capsys):
    assert example("logistic").main(["--rows", "600", "--descents", "40"]) < 1e-9
    assert "sparse, an oracle" in capsys.readouterr().out


def test_kalman(example, capsys):
    assert example("kalman").main(["--observations", "400"]) < 0.5
    assert "noises" in capsys.readouterr().out


def test_ode(example, capsys):
    assert example("ode").main(["--steps", "200", "--descents", "8"]) < 1e-3
    assert "loss" in capsys.readouterr().out


def test_federated(example, capsys):
    pytest.importorskip("numpy")
    arguments = ["--clients", "40", "--d", "10", "--rounds", "30"]
    federated = example("federated")
    assert federated.main(arguments) == federated.main([*arguments, "--threads", "3"])
    assert "virtual" in capsys.readouterr().out


def test_the_comparison_cites_the_newest_records(root):
    """An older one of the same name may be cited beside it, for the rows that the newer one does not repeat."""
    cited = set(re.findall(r"benches/record/([\w.-]+\.md)", (root / "docs/comparison.md").read_text()))
    assert cited
    records = sorted(path.name for path in (root / "benches/record").glob("*.md"))
    assert cited <= set(records)
    for name in cited:
        newest = [record for record in records if record[10:] == name[10:]][-1]
        assert newest in cited, name


def test_every_page_with_examples_is_tested(root):
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    pages = [path for path in [root / "README.md", *(root / "docs").glob("*.md")] if ">>>" in path.read_text()]
    assert {path.relative_to(root).as_posix() for path in pages} == {path for path in listed if path.endswith(".md")}
