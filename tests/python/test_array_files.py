"""Functions of arrays in files and pickles: round trips, refusals, damaged files."""

from __future__ import annotations

import copy
import pickle
import random
from collections import namedtuple

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

A = np.array([[0.3, -1.2, 2.0], [1.5, 0.7, -0.4]])
V = np.array([0.5, -2.0, 1.25])


def loss(w, x):
    return (np.tanh(x @ w["a"]) ** 2).sum() + w["b"][0] * 2.0


def looped(x):
    def step(carry, row):
        return carry * 0.5 + np.sin(row).sum(), carry

    last, all_of_them = bt.scan(step, x[0, 0], x)
    return last + (all_of_them * bt.fori_loop(0, 3, lambda _, c: c * 1.5, x[0, 1])).sum()


def halved(x):
    return bt.while_loop(lambda c: c.sum() > 1.0, lambda c: c * 0.5, x).sum()


W = {"a": V, "b": [0.25]}
CASES = {
    "value": (bt.function(loss), (W, A)),
    "gradient": (bt.grad(loss), (W, A)),
    "value and gradients": (bt.value_and_grad(loss, argnums=(0, 1)), (W, A)),
    "Hessian": (bt.hessian(loss), (W, A)),
    "product": (bt.hvp(lambda x: loss(W, x)), (A, A)),
    "rows": (bt.vmap(bt.grad(lambda x: (x**3).sum())), (A,)),
    "totals": (bt.vmap(lambda x: (x**3).sum(), reduce="mean"), (A,)),
    "loops": (bt.function(looped), (A,)),
    "gradient of loops": (bt.grad(looped), (A,)),
    "Hessian of loops": (bt.hessian(looped), (A,)),
    "while": (bt.value_and_grad(halved), (abs(A),)),
    "choice": (bt.grad(lambda x: bt.cond(x[0, 0] > 0, lambda x: (x * x).sum(), lambda x: x.sum(), x)), (A,)),
    "linear algebra": (bt.grad(lambda x: np.linalg.solve(x @ x.T, V[:2]).sum() + np.linalg.det(x @ x.T)), (A,)),
    "integers": (bt.function(lambda x, i: (x[i], i + 1, x > 0.5)), (A, np.array([1, 0]))),
    "float32": (bt.grad(lambda x: (x * x).sum()), (A.astype(np.float32),)),
    "sort": (bt.grad(lambda x: (np.sort(x, 1) * A).sum() + np.median(x)), (A,)),
    "constants": (bt.function(lambda x: {"y": [x * A, None], "n": x.sum()}), (A,)),
}


def leaves(x):
    if isinstance(x, dict):
        x = [*x.keys(), *x.values()]
    return [leaf for item in x for leaf in leaves(item)] if isinstance(x, (list, tuple)) else [x]


def same(a, b):
    pairs = list(zip(leaves(a), leaves(b)))
    equal = all(
        type(x) is type(y) and (x.dtype == y.dtype and np.array_equal(x, y) if hasattr(x, "dtype") else x == y)
        for x, y in pairs
    )
    return equal and len(leaves(a)) == len(leaves(b))


@pytest.mark.parametrize("name", CASES)
def test_functions_of_arrays_come_back_with_the_same_bits(name, tmp_path):
    f, arguments = CASES[name]
    expected = f(*arguments)
    f.save(tmp_path / "f.bt")
    made = [bt.load_function(tmp_path / "f.bt"), pickle.loads(pickle.dumps(f)), copy.deepcopy(f)]
    made += [pickle.loads(pickle.dumps(made[0]))]
    for again in made:
        assert same(again(*arguments), expected)
        assert str(again.program) == str(f.program)
        assert pickle.dumps(again) == pickle.dumps(f)


def test_a_function_from_a_file_has_derivatives_and_is_part_of_others(tmp_path):
    f = bt.function(lambda x: (np.sin(x) * A).sum())
    f(A)
    again = pickle.loads(pickle.dumps(f))
    assert same(bt.grad(again)(A), bt.grad(f)(A))
    assert same(again.grad(A), f.grad(A))
    assert same(bt.hessian(again)(A), bt.hessian(f)(A))
    assert same(bt.vmap(again)(np.stack([A, A + 1])), bt.vmap(f)(np.stack([A, A + 1])))
    assert same(bt.grad(lambda x: again(x * 2.0) ** 2)(A), bt.grad(lambda x: f(x * 2.0) ** 2)(A))
    graph = bt.Graph()
    x = graph.array(A)
    again(x).backward()
    assert same(x.grad, bt.grad(f)(A))
    with pytest.raises(bt.TraceError, match="no trace for this"):
        again(A[:, :2])
    with pytest.raises(bt.TraceError, match="no trace for this"):
        again(A, flag=True)
    with pytest.raises(TypeError, match="saved for float64"):
        bt.function(lambda x: again(x), dtype="float32")(A)


def test_all_paths_of_a_function_are_saved():
    f = bt.function(lambda x: (x * x).sum() if x.sum() > 0 else -x.sum())
    assert (f(A), f(-A)) == ((A * A).sum(), pytest.approx(A.sum()))
    again = pickle.loads(pickle.dumps(f))
    assert (again(A), again(-A)) == (f(A), f(-A))
    assert same(bt.grad(again)(-A), -np.ones_like(A))
    assert same(bt.grad(again)(A), 2 * A)
    one = bt.function(lambda x: x.sum() if x.sum() > 0 else -x.sum())
    one(A)
    with pytest.raises(bt.TraceError, match="comparisons that answer otherwise"):
        pickle.loads(pickle.dumps(one))(-A)


def test_numbers_and_arrays_of_one_function_are_both_saved():
    f = bt.function(lambda x: (x * x).sum() if hasattr(x, "sum") else x * x)
    expected = (f(A), f(3.0))
    again = pickle.loads(pickle.dumps(f))
    assert (again(A), again(3.0)) == expected
    assert again.grad(3.0) == 6.0


def test_parameters_that_a_function_reads_are_saved_with_it():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((3,), name="w", init=0.5)
    scale = bt.parameter(2.0)
    f = bt.function(lambda x: (x @ w).sum() * scale)
    first = f(A)
    again = pickle.loads(pickle.dumps(f))
    params.values[:] = 7.0
    scale.value = 5.0
    assert again(A) == first != f(A)
    assert same(bt.grad(again)(A), np.full((2, 3), 1.0))
    inner = lambda x: bt.grad(again)(x).sum()  # noqa: E731
    assert bt.function(inner)(A) == 6.0
    # In a loop, and with an Array of a graph.
    once = bt.function(lambda x: bt.scan(lambda c, k: (c + again(x * k), k), 0.0, np.arange(3.0))[0])
    assert once(A) == pytest.approx(3 * first)
    assert again(bt.Graph().array(A)).item() == first


def test_a_function_with_changed_constants_is_traced_again_before_saving():
    scale = [2.0]
    f = bt.function(lambda x: (x * scale[0]).sum())
    f(A)
    scale[0] = 3.0
    again = pickle.loads(pickle.dumps(f))
    assert again(A) == f(A) == pytest.approx(3 * A.sum())


def test_a_refused_save_gives_the_reason(tmp_path):
    with pytest.raises(bt.TraceError, match="nothing has been traced yet"):
        bt.grad(loss).save(tmp_path / "f.bt")
    Pair = namedtuple("Pair", "x y")
    f = bt.grad(lambda p: (p.x * p.y).sum())
    f(Pair(A, A))
    with pytest.raises(TypeError, match="named tuple"):
        pickle.dumps(f)
    g = bt.function(lambda d: d["a\nb"].sum())
    g({"a\nb": A})
    with pytest.raises(TypeError, match="line breaks"):
        pickle.dumps(g)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gradient", "Hessian of loops", "while", "integers"])
def test_a_damaged_file_is_a_format_error(name, tmp_path):
    f, arguments = CASES[name]
    f(*arguments)
    f.save(tmp_path / "f.bt")
    whole = (tmp_path / "f.bt").read_bytes()
    draw = random.Random(7)
    load = bt._core.function_from_bytes
    for n in [*range(80), *(draw.randrange(len(whole)) for _ in range(200))]:
        with pytest.raises(bt.FormatError):
            load(whole[:n])
    for _ in range(2_500):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        with pytest.raises(bt.FormatError):
            load(bytes(damaged))
    assert same(load(whole)(*arguments), f(*arguments))


def test_programs_are_listed_one_instruction_a_line():
    f = bt.function(lambda x, i: (np.tanh(x) @ V)[i].sum())
    f(A, np.array([1, 0]))
    assert str(f.program).splitlines() == [
        "program(x0: float64(2, 3), x1: int64(2,))",
        "  %0: float64(2, 3) = tanh x0",
        "  %1: float64(3,) = constant",
        "  %2: float64(3, 1) = reshape %1",
        "  %3: float64(2, 1) = matmul %0 %2",
        "  %4: float64(2,) = reshape %3",
        "  %5: float64(2,) = take %4 x1 axis=0",
        "  %6: float64() = sum %5 axis=0",
        "  return %6",
    ]
    f = bt.function(lambda x: bt.scan(lambda c, row: (c + row.sum(), c), 0.0, x)[0] if x.sum() > 0 else 0.0)
    f(A)
    text = str(f.program)
    assert "loop" in text
    assert "steps=2" in text
    assert "\n    step(" in text
    assert "\n  guard %" in text
    assert all(word not in text for word in ("Axes(", "Shared", "ValueId", "Slice {"))


@pytest.mark.parametrize("name", CASES)
def test_every_program_is_listed_without_debug_text(name):
    f, arguments = CASES[name]
    f(*arguments)
    text = str(f.program)
    assert text.startswith("program(x0: ")
    assert "  return " in text.splitlines()[-1]
    assert not any(sign in text for sign in "{}<>" if "steps<=" not in text), text


def test_a_saved_program_over_numbers_says_that_it_takes_no_arrays(tmp_path):
    f = bt.function(lambda x: sum(v * v for v in x))  # more operations than are traced with Arrays to be saved
    f(np.ones(300))
    f.save(tmp_path / "f.bt")
    f = bt.load_function(tmp_path / "f.bt")
    for call in (
        lambda: bt.grad(f)(np.ones(300)),
        lambda: bt.vmap(f)(np.ones((2, 300))),
        lambda: bt.hessian(f)(np.ones(300)),
    ):
        with pytest.raises(bt.TraceError, match="a program over single numbers"):
            call()
    with pytest.raises(bt.TraceError, match="arguments of another shape"):
        f(np.ones(4))
    assert f.grad(np.ones(300)).tolist() == [2.0] * 300
