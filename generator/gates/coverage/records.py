"""What a launch record admits and no launch has, or its kernel does not serve.

Called by `gate`. A record is believed by tables and by the launcher: what it admits must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

from hgemm_packs.generator.gates.coverage.launches import BYTES, columns_of, stored, with_strides
from hgemm_packs.generator.gates.coverage.problems import admitted, fit
from hgemm_packs.generator.gates.dataflow.exceptions import ALIGNS, is_of_family
from hgemm_packs.generator.gates.dataflow.exceptions import declared as of_dataflow
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import C
from hgemm_packs.pack.manifest import MAPPED

OF_MAPS: Final = 16  # bytes: the driver makes a tensor map of no address or stride but multiples
_LANES: Final = {"v2": 2, "v4": 4, "v8": 8}


def faults(flow: Flow) -> Iterator[str]:
    """What is wrong with the record of a kernel that the data-flow gate has followed."""
    fields = flow.fields
    yield from _unmapped(fields)
    if is_of_family(fields):  # records of strangers admit what users may ask for
        yield from _too_wide(fields)
        yield from _unpacked(fields)
        if ALIGNS not in of_dataflow(fields):
            yield from _unaligned(flow)


def _unmapped(fields: Mapping[str, Any]) -> Iterator[str]:
    """Operands with a tensor map, and alignments that no map is made of."""
    for name in MAPPED[str(fields["param_layout"])]:
        if int(fields["align"][name]) < OF_MAPS:
            yield f"align: no tensor map is made of {name.upper()} at {fields['align'][name]} bytes"


def _too_wide(fields: Mapping[str, Any]) -> Iterator[str]:
    """More rows or columns than any grid has tiles for."""
    dims = fields["dims"]
    least = [fit(dims[dim], 1) for dim in "mnk"]
    for i, dim in enumerate("mn"):
        most = [*least]
        most[i] = fit(dims[dim], 1 << 62)
        if not admitted(fields, with_strides(fields, *most)):
            yield f"dims: no grid has tiles for {dim.upper()} {most[i]}"


def _unpacked(fields: Mapping[str, Any]) -> Iterator[str]:
    """Sizes whose packed lines are not aligned as the record says: rows of a table are packed."""
    m, n, k = (int(fields["dims"][dim]["multiple_of"]) for dim in "mnk")
    lines = stored(str(fields["layout"]), m, n, k, columns_of(fields, n))
    for name, (_, length) in zip("abc", lines, strict=True):
        if length * BYTES % int(fields["align"][name]):
            yield f"dims: packed lines of {name.upper()} are {length * BYTES} bytes apart"


def _unaligned(flow: Flow) -> Iterator[str]:
    """Accesses that are wider than what an operand is said to lie at."""
    for ins in flow.kernel.instructions:
        if not _is_access(ins) or not flow.threads.reach[ins.index]:
            continue
        flow.active = flow.threads.reach[ins.index]
        width = _bytes_of(ins)
        for operand in ins.operands:
            bases = flow.value(operand.parts[0]).bases if operand.kind == "address" else ()
            for name in ("A", "B", C):
                if name in bases and width > int(flow.fields["align"][name.lower()]):
                    yield f"align: {width} bytes of {name} at once in '{ins.text[:100]}'"


def _is_access(ins: Instruction) -> bool:
    return ins.opcode[0] in ("ld", "st") and any(x.startswith("global") for x in ins.opcode)


def _bytes_of(ins: Instruction) -> int:
    """Bytes of a load or a store of a thread."""
    bits = "".join(each for each in ins.opcode[-1] if each.isdigit())
    return int(bits) // 8 * prod(_LANES.get(word, 1) for word in ins.opcode)
