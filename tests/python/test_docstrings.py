"""Every example in a docstring, in Python and in the extension, is run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import burtorch

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def documented():
    """All public objects that may have a docstring, once each, by qualified name."""
    found = {}

    def visit(name, thing):
        if name in found or not isinstance(getattr(thing, "__doc__", None), str):
            return
        found[name] = inspect.cleandoc(thing.__doc__)
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if inspect.isroutine(value) or inspect.isdatadescriptor(value):
                    visit(f"{name}.{member}", value)

    modules = ["burtorch", *(module.name for module in pkgutil.walk_packages(burtorch.__path__, "burtorch."))]
    for module_name in modules:
        if module_name.endswith("__main__") or ".programs." in module_name:  # rivals may be absent
            continue
        module = importlib.import_module(module_name)
        found[module_name] = inspect.cleandoc(module.__doc__ or "")
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", module_name) in {module_name, "builtins", None} and not name.startswith(
                "__"
            ):
                visit(f"{module_name}.{name}", thing)
    return {name: text for name, text in found.items() if ">>>" in text}


@pytest.mark.parametrize(("name", "text"), documented().items(), ids=lambda value: value if "\n" not in value else "")
def test_the_example_is_right(name, text):
    example = doctest.DocTestParser().get_doctest(text, {"bt": burtorch, "burtorch": burtorch}, name, None, 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    with burtorch.Graph():  # the number of Parameters read by one graph is limited, and all examples together have many
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)
