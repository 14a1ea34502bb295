"""Builds the site: README, the manual, the records of measurements, and a reference made of stubs and docstrings.

    .venv/bin/python scripts/site.py --zensical .venv-release/bin/zensical

The pages are laid out in target/site/pages as the repository is, so that links between documents hold as they are; the
site is target/site/html. A link to a page that is not there ends the build. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path

import burtorch

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "target" / "site"
ROOT_PAGES = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASING.md")
MODULES = tuple(name for name in burtorch.__all__ if inspect.ismodule(getattr(burtorch, name)))

CONFIGURATION = """\
[project]
site_name = {name}
site_description = {description}
docs_dir = "pages"
site_dir = "html"
use_directory_urls = false
nav = {nav}

[project.theme]
font = false
features = ["navigation.indexes", "navigation.top", "content.code.copy", "search.highlight"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle = {{ icon = "lucide/sun", name = "Dark colours" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle = {{ icon = "lucide/moon", name = "Light colours" }}
"""


def title_of(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


SESSION = re.compile(r"(?<=\n\n)( *)    >>> .*\n(?:\1    .*\n|\n(?=\1    ))*")


def write_page(page: Path, text: str) -> None:
    """Examples with prompts, in fences or indented, are highlighted as sessions."""
    page.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"```python\n(?=>>> )", "```pycon\n", text)
    text = SESSION.sub(lambda found: fenced(found[1], inspect.cleandoc(found[0])), text)
    page.write_text(text, "utf-8")


def fenced(indent: str, session: str) -> str:
    lines = ["```pycon", *session.split("\n"), "```"]
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)


def copy_documents(pages: Path) -> list[object]:
    """The pages that exist already, and what the navigation says of them."""
    for name in ROOT_PAGES:
        write_page(pages / name, (ROOT / name).read_text("utf-8"))
    shutil.copytree(ROOT / "docs" / "pictures", pages / "docs" / "pictures")
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text("utf-8").replace("(../benches/record)", "(../benches/record/index.md)")
        write_page(pages / "docs" / page.name, text)
    # The order is that of the manual's own page: tutorials come before its table.
    parts = (ROOT / "docs" / "index.md").read_text("utf-8").partition("| to learn |")
    tutorials, linked = (re.findall(r"\]\(([a-z-]+\.md)\)", part) for part in (parts[0], parts[2]))
    known = {*tutorials, *linked, "index.md"}
    rest = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name not in known)
    manual = [f"docs/{name}" for name in ("index.md", *dict.fromkeys(linked), *rest)]

    records = sorted((ROOT / "benches" / "record").glob("*.md"))
    for page in records:
        write_page(pages / "benches" / "record" / page.name, page.read_text("utf-8"))
    rows = "".join(f"- [{title_of(page)}]({page.name})\n" for page in records)
    write_page(pages / "benches" / "record" / "index.md", f"# Dated measurements\n\n{rows}")
    return [
        {"burtorch": "README.md"},
        {"Tutorials": [{title_of(ROOT / "docs" / name): f"docs/{name}"} for name in tutorials]},
        {"Manual": [{title_of(ROOT / name): name} if name != "docs/index.md" else name for name in manual]},
        {"Project": [{name.removesuffix(".md").capitalize(): name} for name in ROOT_PAGES[1:]]},
        {"Measurements": "benches/record/index.md"},
    ]


class Signatures:
    """Signatures with types, as stubs and sources have them."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], list[str]] = {}
        package = ROOT / "python"
        for source in [*sorted(package.rglob("*.py")), package / "burtorch" / "_core.pyi"]:
            module = ".".join(source.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
            self._visit(module, ast.parse(source.read_text("utf-8")).body, "")

    def _visit(self, module: str, body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._visit(module, node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                line = f"{node.name}({ast.unparse(node.args)}){result}"
                self._by_name.setdefault((module, prefix + node.name), []).append(line)

    def of(self, owner: object, name: str) -> str:
        """Of something in the module that a function or class says it is from, or in the stub."""
        for module in (getattr(owner, "__module__", None), "burtorch._core"):
            if lines := self._by_name.get((str(module), name)):
                return "\n".join(lines)
        return ""


def escaped(line: str) -> str:
    """Text of a docstring as Markdown: what is in backticks stays, the rest has no markup."""
    line = re.sub(r":\w+:`([^`]*)`", r"`\1`", line)
    parts = re.split(r"(`+[^`]*`+)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]\\#])", r"\\\1", part) for part in parts)


def section(name: str, lines: list[str]) -> str:
    """A section of a docstring, such as Args or Example, from the indented lines below its name."""
    if name.startswith("Example"):
        return f"```pycon\n{inspect.cleandoc(chr(10).join(lines))}\n```\n"
    if name.startswith("Returns"):
        return f"**{name}** " + escaped(" ".join(line.strip() for line in lines)) + "\n"
    text = ""
    for line in filter(None, lines):
        subject, colon, rest = line.strip().partition(": ")
        is_first = not line.startswith("     ")
        text += f"\n- `{subject}`{colon}{escaped(rest)}" if is_first and colon else f" {escaped(line.strip())}"
    return f"**{name}**\n{text}\n"


def markdown(docstring: str) -> str:
    """A docstring as Markdown."""
    out: list[str] = []
    lines = docstring.split("\n")
    while lines:
        line = lines.pop(0)
        heading = re.fullmatch(r"([A-Z][A-Za-z, ]*):", line)
        indented: list[str] = []
        while heading and lines and (lines[0].startswith("    ") or not lines[0]):
            indented.append(lines.pop(0))
        out.append(f"\n{section(heading[1], indented)}" if heading and any(indented) else escaped(line))
    return "\n".join(out)


def described(level: int, shown: str, signature: str, object: object) -> str:
    fence = f"```python\n{signature}\n```\n\n" if signature else ""
    return f"{'#' * level} {escaped(shown)}\n\n{fence}{markdown(inspect.getdoc(object) or '')}\n\n"


def of_class(level: int, shown: str, cls: type, signatures: Signatures) -> str:
    name = cls.__qualname__
    made = signatures.of(cls, f"{name}.__new__") or signatures.of(cls, f"{name}.__init__")
    made = re.sub(r"^__\w+__\((?:self|cls)(?:, /)?(?:, )?(.*)\)(?: -> .*)?$", rf"{cls.__name__}(\1)", made, flags=re.M)
    text = described(level, shown, made, cls)
    for member in sorted(member for member in vars(cls) if not member.startswith("_")):
        if inspect.getdoc(vars(cls)[member]):
            signature = signatures.of(cls, f"{name}.{member}")
            text += described(level + 1, f"{shown}.{member}", signature, getattr(cls, member))
    return text


def of_names(module: object, names: list[str], level: int, prefix: str, signatures: Signatures) -> str:
    text = ""
    for name in names:
        object = getattr(module, name)
        if inspect.isclass(object):
            text += of_class(level, prefix + name, object, signatures)
        elif callable(object):
            text += described(level, prefix + name, signatures.of(object, name), object)
    return text


def write_reference(pages: Path) -> list[object]:
    """Pages of all public names, and what the navigation says of them."""
    signatures = Signatures()
    names = sorted((name for name in burtorch.__all__ if name not in MODULES), key=str.lower)
    classes = [name for name in names if inspect.isclass(getattr(burtorch, name))]
    errors = [name for name in classes if issubclass(getattr(burtorch, name), Exception)]
    functions = [name for name in names if name not in classes]
    parts = {"functions": ("Functions", "# Functions\n\n" + of_names(burtorch, functions, 2, "bt.", signatures))}
    for name in sorted(set(classes) - set(errors), key=str.lower):
        parts[name.lower()] = (f"bt.{name}", of_class(1, f"bt.{name}", getattr(burtorch, name), signatures))
    parts["errors"] = ("Errors", "# Errors and warnings\n\n" + of_names(burtorch, errors, 2, "bt.", signatures))
    for name in MODULES:
        module = importlib.import_module(f"burtorch.{name}")
        text = f"# burtorch.{name}\n\n{markdown(inspect.getdoc(module) or '')}\n\n"
        parts[name] = (f"burtorch.{name}", text + of_names(module, module.__all__, 2, f"{name}.", signatures))
    for name, (_, text) in parts.items():
        write_page(pages / "api" / f"{name}.md", text)
    rows = "".join(f"- [{title}]({name}.md)\n" for name, (title, _) in parts.items())
    heading = "# Reference\n\nEvery public name, from its stub and its docstring.\n\n"
    write_page(pages / "api" / "index.md", heading + rows)
    return [{"Reference": ["api/index.md", *({title: f"api/{name}.md"} for name, (title, _) in parts.items())]}]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--zensical", default="zensical", help="the generator's command")
    generator = parser.parse_args().zensical
    shutil.rmtree(SITE, ignore_errors=True)
    nav = copy_documents(SITE / "pages")
    nav[3:3] = write_reference(SITE / "pages")
    configuration = CONFIGURATION.format(
        name=json.dumps(f"burtorch {burtorch.__version__}"),
        description=json.dumps("Automatic differentiation on a CPU"),
        nav=toml(nav),
    )
    (SITE / "zensical.toml").write_text(configuration, "utf-8")
    command = [shutil.which(generator) or str((ROOT / generator).resolve()), "build", "--strict", "--clean"]
    subprocess.run(command, cwd=SITE, check=True)


def toml(value: object) -> str:
    """Lists, dicts and text as TOML, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
