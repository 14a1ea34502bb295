"""Values: construction, operators, attributes, comparison, conversion, text, and op methods against the op table."""

from __future__ import annotations

import functools
import math
import operator
import re

import pytest

import burtorch as bt
from burtorch import Value


def op_names(root, section, until):
    """The names in one section of the op table."""
    table = (root / "crates/burtorch-core/src/ops/table.rs").read_text(encoding="utf-8")
    part = table[re.search(rf"^ +{section} {{", table, re.M).end() : re.search(rf"^ +{until} {{", table, re.M).start()]
    return re.findall(r'^ +[A-Z]\w* (\w+) "', part, re.M)


@pytest.fixture(scope="session")
def unary(root):
    return op_names(root, "unary", "binary")


@pytest.fixture(scope="session")
def binary(root):
    return op_names(root, "binary", "with_constant")


@pytest.fixture(scope="session")
def with_constant(root):
    return op_names(root, "with_constant", "reduction")


@pytest.fixture(scope="session")
def n_ary(root):
    names = op_names(root, "reduction", "inner_product") + op_names(root, "inner_product", "block")
    # A user-defined function has its own name.
    return [*(name for name in names if name != "linearised"), "reduce_mean_and_mean_squares", "concat"]


def test_the_first_example_of_the_paper():
    a, b = Value(-41.0), Value(2.0)
    g = ((a + b) - (a * b + b**3)) ** 2 / 2
    g.backward()
    assert (g.data, a.grad, b.grad) == (612.5, -35.0, 1050.0)


def test_the_small_graph_of_the_paper():
    a, b = Value(-4.0), Value(2.0)
    c = a + b
    d = a * b + b**3
    c = c + c + 1
    c = c + 1 + c + (-a)
    d = d + d * 2 + (b + a).relu()
    d = d + 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g = g + 10.0 / f
    g.backward()
    assert g.data == pytest.approx(24.70408163265306, rel=1e-15)
    assert (a.grad, b.grad) == (pytest.approx(138.83381924198252), pytest.approx(645.5772594752186))


def test_every_row_of_the_op_table_is_a_function_a_method_and_a_stub(root, unary, binary, with_constant, n_ary):
    functions = unary + binary + with_constant + n_ary
    stub = (root / "python/burtorch/_core.pyi").read_text(encoding="utf-8")
    for name in functions:
        assert name in bt.__all__
        assert callable(getattr(bt, name))
        assert re.search(rf"^def {name}\(", stub, re.M), name
    for name in unary + binary + with_constant:
        assert callable(getattr(Value, name))
        assert re.search(rf"^    def {name}\(", stub, re.M), name


def test_the_exported_names_are_sorted_and_exist():
    types = [name for name in bt.__all__ if name[0].isupper()]
    rest = [name for name in bt.__all__ if not name[0].isupper()]
    by_number = lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]  # noqa: E731
    assert bt.__all__ == sorted(types) + sorted(rest, key=by_number)
    assert len(set(bt.__all__)) == len(bt.__all__)
    for name in bt.__all__:
        assert hasattr(bt, name)


def test_a_method_and_its_function_agree_with_differences(unary):
    domains = {op["name"]: op["domain"] for op in bt.system.ops()}
    for name in unary:
        low, high = domains[name]
        x, step = (0.4 if low < 0.4 < high else 2.0), 1e-6
        v = Value(x)
        y = getattr(v, name)()
        y.backward()
        low, high = (getattr(bt, name)(Value(x + d)).data for d in (-step, step))
        assert v.grad == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-8), name
        assert y.op == name
        assert [w.data for w in y.operands] == [x]


def test_binary_ops_agree_with_differences_and_take_numbers_on_either_side(binary):
    step = 1e-6
    for name in binary:
        op = getattr(bt, name)
        x, y = Value(1.3), Value(0.7)
        z = op(x, y)
        z.backward()
        dx = (op(Value(1.3 + step), y).data - op(Value(1.3 - step), y).data) / (2 * step)
        dy = (op(x, Value(0.7 + step)).data - op(x, Value(0.7 - step)).data) / (2 * step)
        assert (x.grad, y.grad) == (pytest.approx(dx, rel=1e-6), pytest.approx(dy, rel=1e-6)), name
        left, right = op(x, 0.7), op(1.3, y)
        assert left.data == right.data == z.data == getattr(x, name)(y).data == getattr(x, name)(0.7).data
        x.grad = y.grad = 0
        left.backward()
        assert (x.grad, y.grad) == (pytest.approx(dx, rel=1e-6), 0.0), name
        right.backward()
        assert y.grad == pytest.approx(dy, rel=1e-6), name


def test_ops_with_a_constant(with_constant):
    expected = {"mul_by_constant": (6.0, 3.0), "div_by_constant": (2 / 3, 1 / 3), "add_constant": (5.0, 1.0)}
    expected |= {"pow_constant": (8.0, 12.0), "leaky_relu": (2.0, 1.0), "elu": (2.0, 1.0)}
    for name in with_constant:
        x = Value(2.0)
        y = getattr(x, name)(3)
        y.backward()
        assert (y.data, x.grad) == pytest.approx(expected[name])
        assert getattr(bt, name)(x, 3.0).data == y.data
        with pytest.raises(TypeError, match="expects a Value or a real number"):
            getattr(x, name)("3")
        with pytest.raises(TypeError):
            getattr(bt, name)(3.0, x)


def test_the_constant_of_a_row_has_a_keyword_and_a_default():
    for x in (Value(-2.0), bt.current_graph().vector([-2.0])):
        for call, slope in (
            (lambda x=x: bt.leaky_relu(x), 0.01),
            (lambda x=x: bt.leaky_relu(x, 0.2), 0.2),
            (lambda x=x: bt.leaky_relu(x, negative_slope=0.2), 0.2),
        ):
            y = call()
            assert (y if isinstance(y, Value) else y[0]).data == -2.0 * slope
    v = Value(-2.0)
    assert (v.leaky_relu().data, v.leaky_relu(0.5).data, v.elu(alpha=0.0).data) == (-0.02, -1.0, 0.0)
    for call in (
        lambda: bt.leaky_relu(),
        lambda: bt.leaky_relu(v, 0.1, 0.2),
        lambda: bt.leaky_relu(v, slope=0.1),
        lambda: bt.leaky_relu(v, 0.1, negative_slope=0.1),
        lambda: v.leaky_relu(0.1, 0.2),
        lambda: v.mul_by_constant(),
    ):
        with pytest.raises(TypeError):
            call()


def test_division_with_remainder_and_rounding_are_ops():
    for a in (7.0, -7.0, 6.0, 0.3):
        for b in (2.0, -2.0, 0.1):
            x, y = Value(a), Value(b)
            found = (x // y, x % y, *divmod(x, y), x // b, a % y, *divmod(x, b), *divmod(a, y))
            quotient, rest = divmod(a, b)
            assert [v.data for v in found] == [quotient, rest, quotient, rest, quotient, rest] + 2 * [quotient, rest]
            found[1].backward()
            assert (x.grad, y.grad) == (1.0, -quotient)
    x = Value(2.5)
    rounded = (round(x), math.floor(x), math.ceil(x))
    assert [(v.op, v.data) for v in rounded] == [("round", 2.0), ("floor", 2.0), ("ceil", 3.0)]
    with pytest.raises(TypeError):
        divmod(x, "2")


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("other", [2, 2.5, True, -3, 0.5])
def test_operators_take_numbers_on_either_side(op, other):
    x = Value(1.5)
    assert op(x, other).data == pytest.approx(op(1.5, other), rel=1e-15)
    assert op(other, x).data == pytest.approx(op(float(other), 1.5), rel=1e-15, nan_ok=True) or isinstance(
        op(float(other), 1.5), complex
    )


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("other", ["1", None, 1j, [1.0], (), {}, b"1", pytest.param(object(), id="object()")], ids=repr)
def test_operators_refuse_non_real_operands(op, other):
    x = Value(1.5)
    n = len(x.graph)
    with pytest.raises(TypeError):
        op(x, other)
    with pytest.raises(TypeError):
        op(other, x)
    assert len(x.graph) == n


def test_an_int_too_large_for_a_float_is_an_overflow():
    x = Value(1.0)
    for call in (lambda: x + 10**400, lambda: 10**400 * x, lambda: Value(10**400), lambda: x.max(10**400)):
        with pytest.raises(OverflowError):
            call()
    with pytest.raises(OverflowError):
        x.data = -(10**400)


def test_in_place_operators_make_new_nodes():
    x = y = Value(2.0)
    y += 1
    y *= x
    y **= 2
    y -= 1
    y /= 5
    y.backward()
    assert (x.data, y.data) == (2.0, 7.0)
    assert x.grad == pytest.approx(2 * (2 * 2 + 2) * (2 * 2 + 1) / 5)


def test_unary_operators():
    x = Value(-2.0)
    assert ((-x).data, abs(x).data, (+x) is x) == (2.0, 2.0, True)


def test_powers_of_small_integers_are_their_own_ops():
    x = Value(3.0)
    assert [(x**2).op, (x**3).op, (x**2.0).op, (x**4).op] == ["sqr", "pow3", "sqr", "pow_constant"]
    assert pow(x, 2, None).data == 9.0
    with pytest.raises(TypeError, match="no modulus"):
        pow(x, 2, 5)


def test_construction():
    graph = bt.Graph()
    x = Value(3, "width", graph=graph)
    assert (x.data, x.label, x.graph is graph, x.op, x.operands, x.index) == (3.0, "width", True, "leaf", (), 0)
    assert Value(data=2, label=None, graph=None).label == ""
    assert Value(True).data == 1.0
    assert graph.value(4).data == 4.0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Value(), TypeError),
        (lambda: Value("1"), TypeError),
        (lambda: Value(None), TypeError),
        (lambda: Value(1j), TypeError),
        (lambda: Value(1, 2), TypeError),
        (lambda: Value(1, "a", 3), TypeError),
        (lambda: Value(1, "a", label="b"), TypeError),
        (lambda: Value(1, data=2), TypeError),
        (lambda: Value(1, colour="red"), TypeError),
        (lambda: Value(1, graph=1), TypeError),
        (lambda: Value([1.0]), TypeError),
        (lambda: Value(1, label="\ud800"), TypeError),
    ],
)
def test_wrong_construction_leaves_no_node(call, error):
    with bt.Graph() as graph, pytest.raises(error):
        call()
    assert len(graph) == 0


def test_data_and_grad_are_read_and_written():
    x = Value(2.0)
    y = x * x
    assert (x.grad, y.grad) == (0.0, 0.0)
    y.backward()
    y.backward(seed=0.5)
    assert (x.grad, y.grad) == (6.0, 0.5)
    x.grad = 0
    assert x.grad == 0.0
    x.data -= 0.5
    assert (x.data, y.data) == (1.5, 4.0)
    y.backward()
    assert x.grad == 3.0
    y.data, y.grad = 7, True
    assert (y.data, y.grad) == (7.0, 1.0)
    for name in ("data", "grad"):
        for wrong in ("1", None, 1j, [1.0], x):
            with pytest.raises(TypeError, match="must be a real number"):
                setattr(x, name, wrong)
        with pytest.raises(TypeError, match="cannot delete"):
            delattr(x, name)
    for name in ("index", "op", "operands", "graph"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)


def test_labels():
    x = Value(1.0)
    assert x.label == ""
    x.label = "größe"
    y = (x * 1.0).operands[0]
    assert y.label == "größe"
    for wrong in (1, None, b"a"):
        with pytest.raises(TypeError, match="must be a str"):
            x.label = wrong
    del x.label
    assert y.label == ""


def test_operands():
    a, b = Value(1.0), Value(2.0)
    c = a * b
    x, y = c.operands
    assert x.same_node(a)
    assert y.same_node(b)
    assert x is a
    assert not x.same_node(y)
    assert [v.data for v in bt.reduce_sum([a, b, c]).operands] == [1.0, 2.0, 2.0]
    assert [v.op for v in (a * 2).operands] == ["leaf", "constant"]
    with pytest.raises(TypeError):
        a.same_node(1.0)
    assert not a.same_node(Value(1.0, graph=bt.Graph()))


def test_backward_takes_a_seed():
    x = Value(3.0)
    y = x * x
    y.backward(2)
    y.backward(seed=-1.0)
    assert x.grad == 6.0
    for wrong in [("1",), (None,), (1j,), (1, 2)]:
        with pytest.raises(TypeError):
            y.backward(*wrong)
    with pytest.raises(TypeError):
        y.backward(sead=1)
    with pytest.raises(TypeError):
        y.backward(1, seed=1)
    assert x.grad == 6.0


def test_comparison_is_by_data():
    a, b = Value(1.0), Value(1.0)
    assert a == b
    assert a == 1
    assert a == 1.0
    assert a != 2
    assert a < 2
    assert a < 2
    assert a <= b
    assert a >= True
    assert not a > b
    for other in ("1", None, [1.0], object(), 1j):
        assert (a == other) is False
        assert (a != other) is True
    for wrong in ("1", None, object()):
        with pytest.raises(TypeError):
            a < wrong  # noqa: B015
    nan = Value(math.nan)
    assert nan != nan
    assert not nan < nan
    # Integers are compared exactly, as with a float.
    assert Value(2.0**53) != 2**53 + 1
    assert a < 10**400
    assert [v.data for v in sorted(map(Value, [3.0, 1.0, 2.0]))] == [1.0, 2.0, 3.0]
    assert max(Value(1.0), Value(5.0), Value(2.0)).data == 5.0


def test_truth_and_conversion():
    assert not Value(0.0)
    assert not Value(-0.0)
    assert Value(math.nan)
    assert Value(0.1)
    x = Value(-2.75)
    assert (float(x), int(x), round(x), round(x, 1), math.floor(x), complex(x)) == (-2.75, -2, -3, -2.8, -3, -2.75)
    assert math.exp(Value(0.0)) == 1.0
    assert math.fsum([Value(0.1)] * 10) == 1.0
    with pytest.raises(OverflowError):
        int(Value(math.inf))
    with pytest.raises(ValueError, match="NaN"):
        int(Value(math.nan))
    with pytest.raises(TypeError):
        [1, 2, 3][Value(1.0)]


def test_text():
    x = Value(0.1)
    assert repr(x) == str(x) == f"{x}" == "Value(data=0.1, grad=0.0)"
    assert f"{x:.3f} {x:e} {x:>6.1f}" == "0.100 1.000000e-01    0.1"
    with pytest.raises(ValueError, match="format"):
        f"{x:nonsense}"
    with pytest.raises(TypeError):
        x.__format__(1)


def test_hash_is_by_node():
    a, b = Value(1.0), Value(1.0)
    also_a = (a + b).operands[0]
    assert hash(a) == hash(also_a)
    assert hash(a) != hash(b)
    assert len({a, b, also_a}) == 2
    assert also_a in {a: 1}
    assert b not in {a}


def test_sum_and_reduce():
    values = [Value(float(k)) for k in range(5)]
    assert sum(values).data == 10.0
    product = functools.reduce(operator.mul, values[1:])
    product.backward()
    assert [v.grad for v in values] == [0.0, 24.0, 12.0, 8.0, 6.0]


def test_detach_and_constants():
    x = Value(3.0)
    y = x.detach() * x
    y.backward()
    assert (x.detach().op, x.grad) == ("constant", 3.0)
    c = x.graph.constant(2)
    (c * x).backward()
    assert (c.grad, c.op) == (0.0, "constant") or c.grad == 3.0
    with pytest.raises(TypeError):
        x.graph.constant("2")
    assert (x + 0).op != "constant"


def test_where():
    x, y = Value(2.0), Value(5.0)
    assert bt.where(x > 1, x, y) is x
    z = bt.where(False, x, 4)
    assert (z.data, z.op) == (4.0, "constant")
    v = x.graph.vector([-1.0, 0.0, 3.0])
    w = bt.where([e > 0 for e in v], v, 0.0)
    w.sum().backward()
    assert (list(w.data), list(v.grad)) == ([0.0, 0.0, 3.0], [0.0, 0.0, 1.0])
    assert list(bt.where([True, False, True], v, [y, y, y]).data) == [-1.0, 5.0, 3.0]
    assert len(bt.where([], v[:0], y)) == 0
    with pytest.raises(ValueError, match="equal length"):
        bt.where([True], v, 2.0)


def test_an_operator_appends_to_the_graph_of_its_operands():
    graph = bt.Graph(dtype="float32")
    x = Value(0.1, graph=graph)
    y = x * 3
    assert y.graph is graph
    assert y.graph is not bt.current_graph()
    assert x.data == 0.10000000149011612
    with pytest.raises(bt.GraphMismatchError, match="another graph"):
        x + Value(1.0)
    with pytest.raises(bt.GraphMismatchError):
        bt.max(Value(1.0), x)


def test_float32_overflows_to_infinity():
    assert Value(1e39, graph=bt.Graph("float32")).data == math.inf


def test_no_grad_holds_for_every_graph_of_the_thread():
    graph = bt.Graph()
    x, y = Value(2.0), Value(3.0, graph=graph)
    v = graph.vector([1.0, 2.0])
    with bt.no_grad():
        assert (x * x).op == (y * 2).op == y.exp().op == bt.add(y, y).op == "constant"
        assert Value(1.0).op == Value(1.0, graph=graph).op == "constant"
        assert (v * v)[1].op == v.sum().op == graph.vector([1.0])[0].op == "constant"
        with bt.no_grad():
            pass
        assert (y + y).op == "constant"
        y.backward()
    assert (y + y).op == "add"
    assert y.grad == 1.0
    with bt.no_grad(graph):
        assert ((x * x).op, (y * y).op) == ("mul", "constant")
    assert (y * y).op == "mul"


def test_a_million_nodes_deep_needs_no_recursion():
    x = y = Value(1.0)
    n = 300_000
    for _ in range(n):
        y = y + x
    y.backward()
    assert (y.data, x.grad) == (n + 1.0, n + 1.0)
