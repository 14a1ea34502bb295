"""The boundary to C, checked in the sources: no panic and no deferred reference crosses it."""

from __future__ import annotations

import re

import pytest

WRAPPERS = ("slot", "caught", "entered", "visited")
"""Functions of ``convert/entry.rs`` and ``node/critical_section.rs``: each turns a panic into a Python error."""

TOKENS = {
    "convert/entry.rs": "the wrappers themselves",
    "convert/gc.rs": "a look at a pointer while the garbage collector runs",
    "graph/critical_section.rs": "on free-threaded interpreters, before anything is dropped",
    "node/critical_section.rs": "likewise",
    "convert/buffer/token_ids_quick.rs": "on free-threaded interpreters: a row is held by a bound reference",
    "node/vector/mod.rs": "a Vector leaves its graph: drops nothing",
    "trace/states.rs": "on free-threaded interpreters: what it drops is bound",
    "graph/mod.rs": "borrows a graph for a moment, on every operator",
    "node/value/append.rs": "operators of branches: holds bound references only",
    "node/value/attributes.rs": "backward(): what it drops it drops inside `attached`",
    "node/value/construct.rs": "Value(float): a null pointer says that there is an error",
    "trace/object.rs": "calls with floats: looks at dictionaries",
    "trace/bound_call.rs": "bound calls: looks at dictionaries",
}
"""Files that assume the interpreter lock, and the reason why they drop nothing whose release PyO3 would defer."""

PANICS = re.compile(
    r"\.unwrap\(\)|\.expect\(|panic!|unreachable!|todo!|\bassert(_eq|_ne)?!|\.borrow_mut\(\)|\.borrow\(\)|with_borrow|\w\[[^\]]*\]"
)


def sources(root):
    return sorted((root / "crates").glob("*/src/**/*.rs"))


def without_comments(text):
    """The code with empty strings and with `extern "C"` without quotes."""
    text = re.sub(r'extern\s+"C"\s+fn', "extern C fn", text)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def body(text, start):
    """From the brace at or after `start` to its matching brace."""
    first = text.index("{", start)
    depth = 0
    for k in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[k], 0)
        if depth == 0:
            return text[first + 1 : k]
    raise AssertionError("no end")


def c_functions(root):
    for path in sources(root):
        text = without_comments(path.read_text())
        for found in re.finditer(r"extern C fn\s+(\w+)", text):
            yield path, found.group(1), body(text, found.end())


# In place of functions of a C library: shifts, products and sums of integers, which do not panic.
ARITHMETIC = ["fma", "fmaf"]


def test_every_function_that_c_calls_runs_in_a_wrapper(root):
    n = 0
    for path, name, code in c_functions(root):
        if name in ARITHMETIC:
            continue
        code = re.sub(r"\s+", " ", code).strip()
        code = re.sub(r"^debug_assert!\([^;]*;\s*", "", code)
        # The closure may have a name.
        if named := re.match(r"let \w+ = (move )?\|[^|]*\|", code):
            rest = code[named.end() :]
            closure = body(rest, 0) if "{" in rest else ""
            code = rest[rest.index(closure) + len(closure) + 1 :].lstrip(" };") if closure else rest
        if message := re.match(r'let \w+ = "";\s*', code):
            code = code[message.end() :]
        code = re.sub(r"^unsafe \{ ", "", code)
        assert code.startswith(tuple(f"{wrapper}(" for wrapper in WRAPPERS)), f"{path.name}: {name}: {code[:80]}"
        n += 1
    assert n > 50


def test_the_core_is_not_called_by_c(root):
    assert [name for path, name, _ in c_functions(root) if "burtorch-core" in str(path)] == ARITHMETIC


def test_the_token_of_the_lock_is_assumed_where_nothing_is_dropped(root):
    binding = root / "crates" / "burtorch-py" / "src"
    found = {
        str(path.relative_to(binding))
        for path in sources(root)
        if "assume_attached" in without_comments(path.read_text())
    }
    assert found == set(TOKENS)


def test_destructors_do_not_panic(root):
    n = 0
    for path in sources(root):
        text = without_comments(path.read_text())
        for found in re.finditer(r"impl(<[^{]*>)?\s+Drop\s+for\s+(\w+)", text):
            if "cfg(test)" in text[: found.start()]:
                continue
            code = body(text, found.end())
            code = re.sub(r"debug_assert\w*!\([^;]*;", "", code)
            bad = PANICS.search(re.sub(r"#\[[^\]]*\]", "", code))
            assert not bad, f"{path.name}: {found.group(2)}: {bad.group()}"
            n += 1
    assert n > 15


@pytest.mark.parametrize("name", ["unwrap()", "expect("])
def test_the_binding_takes_nothing_for_granted(root, name):
    for path in sources(root):
        if "burtorch-py" in str(path):
            assert f".{name}" not in without_comments(path.read_text()), path


DISCARDS = re.compile(
    r"\.(getattr|hasattr|repr|str|call0|call1|call_method\w*|import|is_instance|converted)\([^;|?]*\)\s*"
    r"\.(ok\(\)|unwrap_or\w*\(|is_ok(_and)?\(|is_err\(|map_or(_else)?\()"
)


def test_no_call_into_python_loses_an_interrupt(root):
    """A discarded exception might be that of a signal handler: `quietly` and `if_any` keep it."""
    names_of_a_call = ("node/value/unevaluated.rs", "node/value/methods.rs", "node/value/attributes.rs")
    found = []
    for path in sources(root):
        if "burtorch-core" in str(path) or str(path).endswith(names_of_a_call):
            continue
        text = without_comments(path.read_text())
        for call in DISCARDS.finditer(text):
            before = text[max(0, call.start() - 300) : call.start()]
            kept = max(before.rfind("quietly("), before.rfind("if_any("))
            if kept < max(before.rfind(";"), before.rfind("{")):
                found.append(f"{path.name}: {call.group(0)[:90]}")
    assert not found, found
