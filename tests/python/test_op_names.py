"""No file outside the op table names an op: other lists of ops would have to be kept in step with it.

Exempt are the files that define an operator or a method of the language as an op, and models, which consist of ops.
Opcodes of structure (leaf, constant, part, blocks ...) are ignored.
"""

import re

import pytest

DEFINITIONS = {
    "burtorch-core/src/eager.rs": "operators of Rust",
    "burtorch-core/src/graph/build.rs": "operators with constants, by the cheapest op",
    "burtorch-core/src/graph/quick.rs": "the same without questions",
    "burtorch-core/src/nn/mod.rs": "a loss is made of ops",
    "burtorch-core/src/nn/linear.rs": "a layer is made of ops",
    "burtorch-core/src/nn/neuron.rs": "a layer is made of ops",
    "burtorch-core/src/array/columns/mod.rs": "products and extremes of columns",
    "burtorch-core/src/array/control/batch.rs": "counts of rounds are sums",
    "burtorch-core/src/array/control/counters.rs": "an integer that counts is a sum",
    "burtorch-core/src/array/contract.rs": "products of arrays are products",
    "burtorch-core/src/array/index.rs": "several indices are one by arithmetic",
    "burtorch-core/src/array/linalg.rs": "determinants are made of ops",
    "burtorch-core/src/array/statistics.rs": "statistics and losses are made of ops",
    "burtorch-core/src/array/expand.rs": "arithmetic that records is ops",
    "burtorch-core/src/array/linear.rs": "derivatives of products are products",
    "burtorch-core/src/array/lower.rs": "reductions are made of ops",
    "burtorch-core/src/array/rows/derivatives.rs": "the derivative of a mean",
    "burtorch-core/src/array/rows/total.rs": "the total of what all rows share",
    "burtorch-core/src/array/order.rs": "the program of its unit test",
    "burtorch-core/src/array/plan/recomputed.rs": "ops that cost less than reading their result",
    "burtorch-core/src/array/plan/integers.rs": "which ops integers have",
    "burtorch-core/src/program/entries/record.rs": "reductions and their derivatives are made of ops",
    "burtorch-core/src/array/plan/gradients_in_parts.rs": "sums to which zeros are added",
    "burtorch-core/src/array/plan/reducer.rs": "the largest and the smallest by pairs",
    "burtorch-core/src/array/simplify.rs": "products and quotients that are one product",
    "burtorch-py/src/array/functions.rs": "reductions of arrays by the ops of sequences",
    "burtorch-py/src/array/methods.rs": "clip and round",
    "burtorch-py/src/array/operators.rs": "operators of Python",
    "burtorch-py/src/node/value/operands.rs": "the symbols of micrograd",
    "burtorch-py/src/node/value/number.rs": "operators of Python",
    "burtorch-py/src/node/value/methods.rs": "math.floor and math.ceil",
    "burtorch-py/src/node/value/convert.rs": "round",
}


def rows(table):
    """The type names of the rows whose formulas the table holds, and of reductions."""
    sections = re.split(r"^ {12}(\w+) \{$", table, flags=re.M)
    names = set()
    for kind, text in zip(sections[1::2], sections[2::2]):
        if kind in ("unary", "binary", "with_constant", "reduction"):
            names |= set(re.findall(r'^ {16}([A-Z]\w+) \w+ "', text, flags=re.M))
    return names


def named(source, names):
    """The ops that a source names, comments removed."""
    source = re.sub(r"//[^\n]*", "", source)
    found = set(re.findall(r"(?<!std::)\b(?:Op|ops)::(\w+)", source))
    for group in re.findall(r"(?<!std::)\bops::\{([^}]*)\}", source):
        found |= set(re.findall(r"\w+", group))
    return found & names


@pytest.fixture(scope="module")
def sources(root):
    if not (root / "crates").is_dir():
        pytest.skip("needs a checkout")
    return {path.relative_to(root / "crates").as_posix(): path.read_text(encoding="utf-8")
            for path in sorted((root / "crates").glob("*/src/**/*.rs"))}  # fmt: skip


def test_only_definitions_of_operators_and_models_name_ops(sources):
    names = rows(sources["burtorch-core/src/ops/table.rs"])
    assert {"Tanh", "Add", "LeakyRelu", "ReduceSum"} <= names
    outside = {path: text for path, text in sources.items() if not path.startswith("burtorch-core/src/ops/")}
    found = {path: sorted(named(text, names)) for path, text in outside.items() if path not in DEFINITIONS}
    assert {path: ops for path, ops in found.items() if ops} == {}
    for path in DEFINITIONS:
        assert named(outside[path], names), f"{path} names no op any more: strike it from the list"


def test_the_search_finds_a_name():
    assert named("match op { Op::Tanh => 1 }", {"Tanh"}) == {"Tanh"}
    assert named("use crate::ops::{BinaryOp, Max};", {"Max"}) == {"Max"}
    assert named("// Op::Tanh", {"Tanh"}) == set()
    assert named("use std::ops::{Add, Mul};", {"Add"}) == set()
