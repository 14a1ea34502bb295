"""The arrows between the modules of a Rust crate: which file uses names that another one defines.

A file's module is named by its path below `src`: "graph/block/affine" for `graph/block/affine.rs` and "graph" for
`graph/mod.rs`. A re-exported name (`pub use`) counts for the module that defines it. Names inside `#[cfg(test)]`
modules do not count.
"""

from __future__ import annotations

import re
from pathlib import Path

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|r#\".*?\"#|'(?:\\.|[^'\\])'",
    re.DOTALL,
)
USE = re.compile(r"(?:(pub(?:\([^)]*\))?)\s+)?\buse\s+([^;]+);")
INLINE = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


class Module:
    """The declarations of a file."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.code = code
        # By the name it defines: the path it stands for.
        self.handed_on: dict[str, tuple[str, ...]] = {}
        self.paths: set[tuple[str, ...]] = set()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/")) if self.name else ()


def without_tests(code: str) -> str:
    """The code without its `#[cfg(test)]` modules."""
    while (found := re.search(r"#\[cfg\(test\)\]\s*mod \w+ \{", code)) is not None:
        depth, at = 1, found.end()
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        code = code[: found.start()] + code[at:]
    return code


def expand(tree: str) -> list[tuple[tuple[str, ...], str]]:
    """The paths of a `use` tree, each with the name it defines."""
    tree = tree.strip()
    if (brace := tree.find("{")) >= 0:
        head = tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
        found, depth, start = [], 0, brace + 1
        for at in range(brace + 1, len(tree)):
            if (tree[at] == "," and depth == 0) or at == tree.rindex("}"):
                if tree[start:at].strip():
                    found += [(head + path, name or head[-1]) for path, name in expand(tree[start:at])]
                start = at + 1
            depth += {"{": 1, "}": -1}.get(tree[at], 0)
        return found
    path, _, alias = tree.partition(" as ")
    parts = tuple(part.strip() for part in path.split("::") if part.strip())
    if parts[-1:] == ("self",):
        parts = parts[:-1]
    return [(parts, alias.strip() or "".join(parts[-1:]))]


def read(src: Path) -> dict[str, Module]:
    """The modules of a crate by name."""
    modules = {}
    for path in sorted(src.rglob("*.rs")):
        parts = list(path.relative_to(src).with_suffix("").parts)
        if parts[-1] in ("mod", "lib"):
            parts.pop()
        code = without_tests(NOT_CODE.sub(lambda m: '""' if m[0].startswith('"') else " ", path.read_text()))
        module = Module("/".join(parts), code)
        for found in USE.finditer(code):
            for used, name in expand(found[2]):
                if found[1]:
                    module.handed_on[name] = used
                else:
                    module.paths.add(used)
        for found in INLINE.finditer(USE.sub(" ", code)):
            module.paths.add(tuple(found[0].split("::")))
        modules[module.name] = module
    return modules


class Crate:
    """The modules of a crate and the arrows between them."""

    def __init__(self, src: Path) -> None:
        self.modules = read(src)
        self.arrows = {name: self.targets(module) for name, module in self.modules.items() if name}

    def absolute(self, module: Module, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """The path from the root of the crate; `None` for a path into another crate."""
        parts = list(module.parts)
        if path[0] == "crate":
            return path[1:]
        if path[0] in ("super", "self"):
            for k, part in enumerate(path):
                if part == "super":
                    parts = parts[:-1]
                elif part != "self":
                    return tuple(parts) + path[k:]
            return tuple(parts)
        if "/".join((*parts, path[0])) in self.modules:
            return tuple(parts) + path
        return None

    def defining(self, path: tuple[str, ...], steps: int = 8) -> str | None:
        """The module that defines the item at a path from the root."""
        for n in range(len(path), -1, -1):
            module = self.modules.get("/".join(path[:n]))
            if module is None:
                continue
            if n == len(path) or steps == 0 or path[n] not in module.handed_on:
                return module.name
            onward = self.absolute(module, module.handed_on[path[n]])
            return module.name if onward is None else self.defining(onward + path[n + 1 :], steps - 1)
        return None

    def targets(self, module: Module) -> set[str]:
        """The modules that a module uses, without itself, its ancestors and its descendants."""
        found = set()
        for path in module.paths:
            if (absolute := self.absolute(module, path)) is None:
                continue
            target = self.defining(absolute)
            if (
                target
                and not f"{target}/".startswith(f"{module.name}/")
                and not f"{module.name}/".startswith(f"{target}/")
            ):
                found.add(target)
        return found

    def room(self, name: str) -> str:
        """The top-level folder or file of a module."""
        return name.split("/")[0]

    def between_rooms(self) -> dict[tuple[str, str], list[str]]:
        """The arrows between rooms, each with the files that cause it."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, targets in self.arrows.items():
            for target in sorted(targets):
                pair = (self.room(name), self.room(target))
                if pair[0] != pair[1]:
                    found.setdefault(pair, []).append(f"{name} -> {target}")
        return found

    def cycles(self) -> list[list[str]]:
        """Groups of files that reach each other (Tarjan's algorithm, without recursion)."""
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        found = []
        for root in self.arrows:
            if root in index:
                continue
            work = [(root, iter(sorted(self.arrows[root])))]
            index[root] = low[root] = len(index)
            stack.append(root)
            while work:
                name, targets = work[-1]
                target = next(targets, None)
                if target is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[name])
                    if low[name] == index[name]:
                        group = stack[stack.index(name) :]
                        del stack[-len(group) :]
                        if len(group) > 1:
                            found.append(sorted(group))
                elif target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(self.arrows.get(target, ())))))
                elif target in stack:
                    low[name] = min(low[name], index[target])
        return found

    def unsafe_modules(self) -> set[str]:
        """The modules that contain `unsafe` code."""
        return {name for name, module in self.modules.items() if re.search(r"\bunsafe\b", module.code)}
