"""The order of the rooms, and what the code says of it: who imports whom, drawn with `ast`.

The one place where rooms are declared. tests/unit/test_house.py fails on what `faults` finds,
benchmarks/publish/house.py counts it. Every import counts, those in functions and those for types
too: a module knows what it names. What is imported by a name in a string is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_MODULES, MOST_LINES = 16, 350

#: Folders of the repository and the packages that they are.
PACKAGES = {"hgemm_packs": "hgemm_packs", "generator": "hgemm_packs.generator"}

#: From the ground up: a room imports from itself and from rooms that stand before it here. A room
#: is a package with all that is in it and in no room of its own. The modules at the top of
#: `hgemm_packs` are of several steps, and each is named.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "hgemm_packs: C": ("hgemm_packs._C", "hgemm_packs._cublaslt"),
    "hgemm_packs: words": tuple(
        f"hgemm_packs.{name}"
        for name in ("errors", "settings", "problem", "reasons", "neutral", "tensor_keys")
    ),
    "hgemm_packs: torch": ("hgemm_packs.torch_state", "hgemm_packs.workspace"),
    "hgemm_packs/pack": ("hgemm_packs.pack",),
    "hgemm_packs/profiles": ("hgemm_packs.profiles",),
    "hgemm_packs: door": ("hgemm_packs.launcher",),
    "hgemm_packs/measure": ("hgemm_packs.measure",),
    "hgemm_packs: choice": ("hgemm_packs.selftest", "hgemm_packs.prediction", "hgemm_packs.select"),
    "hgemm_packs: dispatch": ("hgemm_packs.autograd", "hgemm_packs.dispatch"),
    "hgemm_packs/torch_hooks": ("hgemm_packs.torch_hooks",),
    "hgemm_packs/distribution": ("hgemm_packs.distribution",),
    "hgemm_packs/torch_compile": ("hgemm_packs.torch_compile",),
    "hgemm_packs/nn": ("hgemm_packs.nn",),
    "hgemm_packs/tuning": ("hgemm_packs.tuning",),
    "hgemm_packs: public": ("hgemm_packs.report", "hgemm_packs"),
    "hgemm_packs/cli": ("hgemm_packs.cli", "hgemm_packs.__main__"),
    **{
        f"generator/{name}": (f"hgemm_packs.generator.{name.replace('/', '.')}",)
        for name in (
            "families",
            "core",
            "compile",
            "gates/source",
            "gates/dataflow/program",
            "gates/dataflow",
            "gates/coverage/program",
            "gates/coverage",
            "gates",
            "store",
            "measure",
            "workers",
            "tables",
            "devices",
            "report",
            "flashinfer_trace",
            "search/analytic",
            "search",
            "search/rivals",
            "llm",
            "run",
            "redteam",
            "evaluator",
            "agents",
            "rl",
            "prediction",
            "campaigns",
            "cli",
        )
    },
    "generator": ("hgemm_packs.generator",),
}
#: Of these the room has the module itself, and not all that is below it.
ALONE = {"hgemm_packs", "hgemm_packs.generator"}


class Arrow(NamedTuple):
    """An import: which module names which, and where."""

    importer: str
    imported: str
    line: int


class House(NamedTuple):
    """The modules that were found, by name, and the imports among them."""

    modules: Mapping[str, Path]
    arrows: tuple[Arrow, ...]


def house(root: Path = REPOSITORY, packages: Mapping[str, str] = PACKAGES) -> House:
    """Read the code below `root`."""
    modules = {
        _name(path.relative_to(root / folder), package): path
        for folder, package in packages.items()
        for path in sorted((root / folder).rglob("*.py*"))
        if path.suffix in (".py", ".pyi")  # a stub stands for an extension
    }
    arrows = (
        Arrow(name, imported, line)
        for name, path in modules.items()
        for imported, line in _imports(name, path, modules)
        if imported != name
    )
    return House(modules, tuple(sorted(set(arrows))))


def _name(path: Path, package: str) -> str:
    parts = path.with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = name.split(".")
                up = node.level - (path.name == "__init__.py")
                base = ".".join([*here[: len(here) - up], *filter(None, [node.module])])
            named = [f"{base}.{each.name}" for each in node.names]
        else:
            continue
        for each in named:
            # A name in a module is that module's; one in a package may be a module of it.
            found = each if each in modules else each.rpartition(".")[0]
            if found in modules:
                yield found, node.lineno


def room(module: str, rooms: Mapping[str, tuple[str, ...]] = ROOMS) -> str | None:
    """The room of a module: the one that names the longest part of its name."""
    best: tuple[int, str] | None = None
    for each, parts in rooms.items():
        for part in parts:
            below = part not in ALONE and module.startswith(f"{part}.")
            if (module == part or below) and (best is None or len(part) > best[0]):
                best = len(part), each
    return best and best[1]


def undeclared(found: House, rooms: Mapping[str, tuple[str, ...]] = ROOMS) -> list[str]:
    """Modules in no room."""
    return [module for module in found.modules if room(module, rooms) is None]


def upward(found: House, rooms: Mapping[str, tuple[str, ...]] = ROOMS) -> list[Arrow]:
    """Imports of a room from one that is declared after it."""
    height = {each: at for at, each in enumerate(rooms)}
    heights = {module: height.get(room(module, rooms) or "", -1) for module in found.modules}
    return [each for each in found.arrows if heights[each.imported] > heights[each.importer] >= 0]


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Sets of nodes that reach each other (Tarjan's components of more than one)."""
    graph: dict[str, set[str]] = {}
    for start, end in edges:
        graph.setdefault(start, set()).add(end)
        graph.setdefault(end, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in sorted(graph[node]):
            if after not in index:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def module_circles(found: House) -> list[list[str]]:
    return circles((each.importer, each.imported) for each in found.arrows)


def room_circles(found: House, rooms: Mapping[str, tuple[str, ...]] = ROOMS) -> list[list[str]]:
    ends = ((room(each.importer, rooms), room(each.imported, rooms)) for each in found.arrows)
    return circles((a, b) for a, b in ends if a and b and a != b)


def folders(root: Path, tops: Iterable[str]) -> dict[str, int]:
    """Python modules of each folder, those in folders below it not counted."""
    counts: dict[str, int] = {}
    for path in modules_below(root, tops):
        folder = path.parent.relative_to(root).as_posix()
        counts[folder] = counts.get(folder, 0) + 1
    return counts


def lengths(root: Path, tops: Iterable[str]) -> dict[str, int]:
    """Lines of each module."""
    return {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules_below(root, tops)
    }


def modules_below(root: Path, tops: Iterable[str]) -> Iterator[Path]:
    for top in tops:
        yield from sorted((root / top).rglob("*.py"))
