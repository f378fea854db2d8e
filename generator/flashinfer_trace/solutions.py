"""Rows of a table as solutions of FlashInfer-Trace, with what was measured of them.

Called by `trace_set`. A solution calls the public `matmul`, which picks the kernel of each row; the
texts of these kernels may travel with it. A trace says what its row says: times with cold caches,
which is what the field measures, and the rest of the evidence under `extra`. What no gate measures
is NaN there, which the format has for it, and never 0.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import SourceKernel, SourceManifest
from hgemm_packs.generator.flashinfer_trace.problems import DTYPES, Product, read_matrix_product
from hgemm_packs.generator.flashinfer_trace.schema import DEFINITION, PASSED, Workload
from hgemm_packs.pack.manifest import Row, Timing
from hgemm_packs.problem import ALIGNED, Problem

if TYPE_CHECKING:  # torch
    from hgemm_packs.generator.flashinfer_trace.errors import Errors

AUTHOR = "hgemm_packs"
OP_TYPE = "gemm"
#: (N, K, layout, dtype): what rows of one definition share.
Group = tuple[int, int, str, str]
Document = dict[str, Any]
Measure = Callable[[Problem, str], "Errors | None"]

_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}
_ABSENT = "NaN"


class Exported(NamedTuple):
    """The documents of one definition, as JSON has them."""

    definition: Document
    workloads: tuple[Document, ...]
    solution: Document
    traces: tuple[Document, ...]


def list_rows(source: SourceManifest) -> dict[Group, list[Row]]:
    """The rows that name a kernel, by what a definition says, each group by M: single products
    without an epilogue, of packed operands at 16 bytes."""
    found: dict[Group, list[Row]] = {}
    for row in source.table:
        plain = row.epilogue == "none" and row.packed and row.batches == 1
        if row.kernel and plain and row.base == ALIGNED and row.out_dtype == row.dtype:
            found.setdefault((row.n, row.k, row.layout, row.dtype), []).append(row)
    return {group: sorted(rows, key=lambda row: row.m) for group, rows in sorted(found.items())}


def name_definition(group: Group) -> str:
    """The field's own name for `nt` in float16; other layouts and types are said."""
    n, k, layout, dtype = group
    more = "" if (layout, dtype) == ("nt", "f16") else f"_{layout}_{dtype}"
    return f"gemm_n{n}_k{k}{more}"


def define(group: Group) -> Document:
    """A definition with N and K constant and M variable."""
    n, k, layout, dtype = group
    a = ["M", "K"] if layout[0] == "n" else ["K", "M"]
    b = ["K", "N"] if layout[1] == "n" else ["N", "K"]
    left, right = ("A", "A.T")[layout[0] == "t"], ("B", "B.T")[layout[1] == "t"]
    of_type = {"dtype": _TORCH[dtype]}
    code = f"import torch\n\n\ndef run(A, B):\n    return torch.matmul({left}, {right})\n"
    return {
        "name": name_definition(group),
        "op_type": OP_TYPE,
        "description": f"C = {left} @ {right}, added up in float32 and rounded once.",
        "axes": {
            "M": {"type": "var"},
            "N": {"type": "const", "value": n},
            "K": {"type": "const", "value": k},
        },
        "inputs": {"A": {"shape": a, **of_type}, "B": {"shape": b, **of_type}},
        "outputs": {"C": {"shape": ["M", "N"], **of_type}},
        "reference": code,
    }


def write_main(found: Product) -> str:
    """The solution's Python: its arguments are the inputs in their order and the output. Names of
    a foreign definition do not enter it."""
    names = ("a", "b") if found.a == 0 else ("b", "a")
    left, right = ("a", "a.T")[found.layout[0] == "t"], ("b", "b.T")[found.layout[1] == "t"]
    return (
        "from hgemm_packs import matmul\n\n\n"
        f"def run({', '.join(names)}, c):\n    matmul({left}, {right}, out=c)\n"
    )


def matching_rows(found: Product, groups: Mapping[Group, Sequence[Row]]) -> list[Row]:
    """The rows of problems that a definition has, by size."""
    axes = found.definition.axes
    m, n, k = (axes[name].value for name in (found.m, found.n, found.k))
    return [
        row
        for (columns, depth, layout, dtype), rows in groups.items()
        if (layout, dtype) == (found.layout, found.dtype)
        and n in (None, columns)
        and k in (None, depth)
        for row in rows
        if m in (None, row.m)
    ]


def export_definition(
    source: SourceManifest,
    groups: Mapping[Group, Sequence[Row]],
    document: Document,
    known: Iterable[Workload] = (),
    with_kernels: bool = False,
    measure: Measure | None = None,
) -> Exported:
    """The documents of one definition, which stays as it is: a trace for each row of `groups` that
    it has. Raises PackError for a definition that is no product of ours or has no row.

    `known` are its workloads, if it came with some: rows at their sizes keep their identity and
    inputs. `with_kernels` adds the text of each kernel to the sources of the solution; `measure` is
    asked for the errors of each row by problem and name of the kernel.
    """
    found = read_matrix_product(DEFINITION(document))
    rows = matching_rows(found, groups)
    name = found.definition.name
    if not rows:
        raise PackError("no_rows", f"no row of the table names a kernel for {name}")
    by_id = {kernel.id: kernel for kernel in source.kernels}
    mine = [by_id[row.kernel] for row in rows if row.kernel]
    unique = {kernel.id: kernel for kernel in mine}.values()
    by_axes = {tuple(sorted(each.axes.items())): each for each in known}
    workloads: list[Document] = []
    traces: list[Document] = []
    for row, kernel in zip(rows, mine, strict=True):
        bare = {"definition": name, "workload": _workload(found, row, by_axes)}
        workloads += [bare] if bare not in workloads[-1:] else []
        problem = Problem(row.m, row.n, row.k, row.layout, row.dtype)
        errors = measure(problem, kernel.name) if measure else None
        answer = evaluate(source, row, kernel, errors)
        traces.append({**bare, "solution": _name(name), "evaluation": answer})
    solution = {
        "name": _name(name),
        "definition": name,
        "author": AUTHOR,
        "description": "hgemm_packs.matmul: on the GPUs named, the kernel of the row in the traces "
        "runs the call; elsewhere, and at sizes without a row, torch's own matmul may.",
        "spec": {
            "language": "python",
            "target_hardware": sorted({row.profile for row in rows}),
            "entry_point": "main.py::run",
            "dependencies": ["hgemm-packs"],
            "destination_passing_style": True,
        },
        "sources": [
            {"path": "main.py", "content": write_main(found)},
            *(_kernel_text(each) for each in unique if with_kernels),
        ],
    }
    return Exported(document, tuple(workloads), solution, tuple(traces))


def _name(definition: str) -> str:
    return f"{AUTHOR}_{definition}"


def _kernel_text(kernel: SourceKernel) -> Document:
    text = compiler.render(kernel.family, kernel.genome)
    return {"path": f"kernels/{kernel.name}.cu", "content": text}


def _workload(
    found: Product, row: Row, known: Mapping[tuple[tuple[str, int], ...], Workload]
) -> Document:
    axes = {
        name: size
        for name, size in ((found.m, row.m), (found.n, row.n), (found.k, row.k))
        if found.definition.axes[name].value is None
    }
    there = known.get(tuple(sorted(axes.items())))
    if there is not None:
        return {"axes": axes, "inputs": dict(there.inputs), "uuid": there.uuid}
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{found.definition.name} {sorted(axes.items())}")
    inputs = {name: {"type": "random"} for name in found.definition.inputs}
    return {"axes": axes, "inputs": inputs, "uuid": str(identity)}


def evaluate(
    source: SourceManifest, row: Row, kernel: SourceKernel, errors: Errors | None = None
) -> Document:
    """What a row says, in the words of the field. `latency_ms` and `reference_latency_ms` are
    medians of ours and of torch with cold caches, the speed-up is one by the other. `errors` of
    elements are those of another run, if one was made."""
    baseline, toolchain = source.baseline, source.toolchain
    libs = {
        source.pack.name: source.pack.version,
        "torch": baseline.torch,
        "cublas": baseline.cublas,
        "driver": baseline.driver,
        "nvrtc": toolchain.nvrtc,
    }
    extra = {
        "reference": kernel.numerics.reference,
        "relative_frobenius_error": kernel.numerics.max_rel_err,
        "shapes_tested": kernel.numerics.shapes_tested,
        "elementwise_errors": (
            f"against torch.matmul, N(0,1), on {errors.device}" if errors else "not measured"
        ),
        "kernel": kernel.name,
        "kernel_sha256": kernel.id,
        "protocol": baseline.protocol,
        "rule": source.policy.rule,
        "noise_floor": source.policy.noise_floor,
        "pairs": row.pairs,
        "hot_us": _times(row.hot),
        "cold_us": _times(row.cold),
    }
    return {
        "status": PASSED,
        "environment": {"hardware": row.profile, "libs": libs},
        "timestamp": row.date,
        "log": "",
        "correctness": {
            "max_relative_error": errors.relative if errors else _ABSENT,
            "max_absolute_error": errors.absolute if errors else _ABSENT,
            "extra": extra,
        },
        "performance": {
            "latency_ms": round(row.cold.us / 1e3, 9),
            "reference_latency_ms": round(row.cold.torch_us / 1e3, 9),
            "speedup_factor": round(row.cold.torch_us / row.cold.us, 6),
        },
    }


def _times(timing: Timing) -> Document:
    """Medians in us, and the speed-up over torch from pairs with its lower bound."""
    return {
        "ours": timing.us,
        "torch": timing.torch_us,
        "cublaslt": timing.cublaslt_us,
        "paired_speedup": timing.speedup,
        "lcb": timing.lcb,
    }
