"""Writes tests/data/ops_reference.txt, the expected values and partials that the Rust and Python tests read.

    python tests/make_ops_reference.py            # needs mpmath; the table is committed, tests need only the table

One record a line, words separated by spaces:

    type op n  x_1 .. x_n  value rest  partial_1 rest .. partial_n rest

type is f64 or f32. Numbers are the bits of a double in hexadecimal without leading zeros (so 0 is +0,
3ff0000000000000 is 1). Each expected number is two doubles whose sum is exact to 100 bits or more: the first is the
true result rounded once, the second what is left over. An expected word may also be nan, inf, -inf, zero (of either
sign) or any (left open); its rest is 0. Inputs of f32 records are floats stored as doubles. A zero value other than
`zero` has the sign shown. Lines that start with # are comments.

Unary and binary ops are held to the bounds of the op table in ULP. Reductions are held to (n - 1) u times the sum of
the absolute terms, and so are the partials of variances, whose terms are the x_i of the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ops_reference.binary import BINARY
from ops_reference.points import binary_points, lists, unary_points
from ops_reference.quantity import F32, F64, Format, record
from ops_reference.reductions import REDUCTIONS
from ops_reference.unary import UNARY

TABLE = Path(__file__).resolve().parent / "data" / "ops_reference.txt"
HEADER = "# type op n inputs, then value and partials as two doubles each; written by make_ops_reference.py\n"


def records(form: Format) -> Iterator[str]:
    """All records of one type, by op."""
    for unary in UNARY:
        for x in unary_points(unary, form):
            value, partial = unary(x)
            yield record(form, unary.name, [x], value, [partial])
    for binary in BINARY:
        for x, y in binary_points(binary, form):
            value, dx, dy = binary.at(x, y, form)
            yield record(form, binary.name, [x, y], value, [dx, dy])
    for reduction in REDUCTIONS:
        for xs in lists(reduction, form):
            value, partials = reduction(list(xs))
            yield record(form, reduction.name, xs, value, partials)


def main() -> None:
    lines = [line for form in (F64, F32) for line in records(form)]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{TABLE}: {len(lines)} records, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
