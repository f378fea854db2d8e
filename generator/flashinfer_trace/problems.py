"""Problems of definitions and their workloads.

Called by `generate --shapes definition.json` and by `generate trace import`, which writes a list of
problems. A definition that is no product of ours is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hgemm_packs.errors import PackError
from hgemm_packs.generator.core import problems as problem_lists
from hgemm_packs.generator.flashinfer_trace.reference import read_product
from hgemm_packs.generator.flashinfer_trace.schema import (
    Definition,
    Tensor,
    Workload,
    read_definition,
    read_traces,
)
from hgemm_packs.problem import Problem
from hgemm_packs.tuning import shapes

#: torch's names of our types.
DTYPES = {"float16": "f16", "bfloat16": "bf16"}
DEFINITIONS, WORKLOADS = "definitions", "workloads"


class Product(NamedTuple):
    """A definition as a product of ours. `m`, `n` and `k` are names of its axes; `a` is the place
    of the left factor among the inputs, which are two."""

    definition: Definition
    m: str
    n: str
    k: str
    layout: str
    dtype: str
    a: int

    def problem(self, axes: Mapping[str, int]) -> Problem:
        """The problem at these values of the variable axes. Raises PackError where one is missing,
        is none of the definition's, or is out of bounds."""
        sizes = {name: axis.value for name, axis in self.definition.axes.items()}
        wanted = {name for name, size in sizes.items() if size is None}
        if axes.keys() != wanted:
            text = f"the axes {sorted(axes)} have values, and {sorted(wanted)} want them"
            raise PackError("unknown_axis", text[:200], "axes")
        m, n, k = (sizes[name] or axes.get(name, 0) for name in (self.m, self.n, self.k))
        if min(m, n, k) < 1:
            raise PackError("out_of_bounds", f"{m}x{n}x{k} has nothing to multiply", "axes")
        if 2 * (m * k + k * n + m * n) > shapes.LARGEST_BYTES:
            most = f"at most {shapes.LARGEST_BYTES >> 30} GiB"
            raise PackError("out_of_bounds", f"{m}x{n}x{k}: operands are {most}", "axes")
        return Problem(m, n, k, self.layout, self.dtype)


def read_matrix_product(definition: Definition) -> Product:
    """What a definition multiplies. Raises PackError for one that is no single product of two
    matrices of one half-precision type."""
    inputs, outputs = list(definition.inputs.values()), list(definition.outputs.values())
    if len(inputs) != 2 or len(outputs) != 1:
        detail = f"{len(inputs)} inputs and {len(outputs)} outputs, not 2 and 1"
        raise PackError("no_product", detail, "inputs")
    dtypes = {each.dtype for each in (*inputs, *outputs)}
    if len(dtypes) != 1 or not dtypes <= DTYPES.keys():
        detail = f"types are {', '.join(sorted(dtypes))}, not all float16 or all bfloat16"
        raise PackError("no_product", detail, "inputs")
    if definition.constraints:
        raise PackError("unknown_constraint", "no constraint is understood", "constraints")
    (dtype,) = dtypes
    left, right = read_product(definition.reference, len(inputs), dtype)
    rows, inner = _turn(inputs[left.place], left.transposed)
    depth, columns = _turn(inputs[right.place], right.transposed)
    result = _turn(outputs[0], False)

    def same(one: str, other: str) -> bool:
        size = definition.axes[one].value
        return one == other or (size is not None and size == definition.axes[other].value)

    if not (same(inner, depth) and same(rows, result[0]) and same(columns, result[1])):
        detail = f"[{rows}, {inner}] times [{depth}, {columns}] is not [{result[0]}, {result[1]}]"
        raise PackError("no_product", detail, "outputs")
    for name, axis in definition.axes.items():
        if axis.value is None and name not in (rows, inner, columns):
            raise PackError("no_product", f"the variable axis {name} is of neither factor", "axes")
    layout = "nt"[left.transposed] + "nt"[right.transposed]
    return Product(definition, rows, columns, inner, layout, DTYPES[dtype], left.place)


def _turn(tensor: Tensor, transposed: bool) -> tuple[str, str]:
    """The axes of a matrix, or of its transpose."""
    if tensor.shape is None or len(tensor.shape) != 2:
        raise PackError("no_product", "a tensor is no matrix", "inputs")
    first, second = tensor.shape
    return (second, first) if transposed else (first, second)


def find_workloads(path: Path) -> Path | None:
    """The workloads of a definition: `workload.jsonl` or a file of its name beside it, or that of a
    folder with `definitions/` and `workloads/`."""
    places = [path.with_name("workload.jsonl"), path.with_suffix(".jsonl")]
    parts = path.absolute().parts
    if DEFINITIONS in parts:
        at = len(parts) - 1 - parts[::-1].index(DEFINITIONS)
        below = Path(*parts[:at], WORKLOADS, *parts[at + 1 :])
        places.append(below.with_suffix(".jsonl"))
    return next((place for place in places if place.is_file()), None)


def list_workloads(path: Path, name: str) -> Iterator[Workload]:
    """The workloads of the definition `name` in a file of lines, those of traces too. Raises
    PackError and OSError."""
    return (each.workload for each in read_traces(path) if each.definition == name)


def read_workloads(path: Path) -> list[Workload]:
    """The workloads that a definition has beside it or in its folder, if any. Raises PackError and
    OSError."""
    place = find_workloads(path)
    return list(list_workloads(place, read_definition(path).name)) if place else []


def read_problems(
    path: Path, workloads: Path | None = None, rows: Sequence[int] = ()
) -> list[Problem]:
    """The problems of `definition.json`, each once, in the order of its workloads.

    The variable axes have the values of the `workloads`, which `find_workloads` finds where none
    are given, or each of `rows` if one axis is variable. Raises PackError, which names file and
    field, and OSError.
    """
    definition = read_definition(path)
    place = workloads or (None if rows else find_workloads(path))
    try:
        found = read_matrix_product(definition)
        axes = _list_axes(found, place, rows)
        return list(dict.fromkeys(found.problem(each) for each in axes))
    except PackError as error:
        if error.where.startswith(str(place)):
            raise
        raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None


def read_list(place: str, models: Sequence[str]) -> list[Problem]:
    """The problems of a definition where `place` ends in .json, else those of a list or a TOML
    file, of these models. Raises PackError and OSError."""
    if place.endswith(".json"):
        return read_problems(Path(place))
    return problem_lists.read(place, models)


def _list_axes(
    found: Product, place: Path | None, rows: Sequence[int]
) -> Iterable[Mapping[str, int]]:
    definition = found.definition
    variable = [name for name, axis in definition.axes.items() if axis.value is None]
    if not variable:
        return [{}]
    if place is not None:
        listed = [dict(each.axes) for each in list_workloads(place, definition.name)]
        if not listed:
            raise PackError("missing_workloads", f"{place} has no workload of {definition.name}")
        return listed
    if not rows or len(variable) > 1:
        detail = f"{', '.join(variable)} is variable, and no workload says its value"
        raise PackError("missing_workloads", detail, "axes")
    return [dict(zip(variable, each, strict=True)) for each in product(rows)]


def list_definitions(folder: Path) -> list[Path]:
    """The definitions of a folder of FlashInfer-Trace, by path."""
    return sorted(path for path in (folder / DEFINITIONS).rglob("*.json") if path.is_file())


def write_list(problems: Sequence[Problem], source: str) -> str:
    """The problems as a TOML list for `generate --shapes`, which is read back before it is
    returned. Raises PackError."""
    lines = [f"# Problems of {source!a}, from FlashInfer-Trace."]
    for p in problems:
        lines += ["[[problem]]", f"m = {p.m}", f"n = {p.n}", f"k = {p.k}"]
        lines += [f'layout = "{p.layout}"', f'dtype = "{p.dtype}"', ""]
    text = "\n".join(lines)
    assert list(shapes.parse(text).problems()) == list(problems)
    return text
