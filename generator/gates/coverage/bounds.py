"""Where a kernel reads and writes: each access against the bounds of A, B, C and the rest, and the
part of C that a CTA writes against the tile that its record declares.

A watcher of `machine`, made by `trial` for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.coverage.launches import (
    APART,
    BASES,
    BYTES,
    Launch,
    base_of,
    columns_of,
    stored,
)
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.machine import Frame, Threads
from hgemm_packs.generator.gates.coverage.program.slices import is_generic
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import ADDENDS, WORKSPACE, C

_NAMES: Final = {number: name for name, number in BASES.items()}
PIECE: Final = 8  # elements
#: A multiple of rows at which a box that holds all of C begins.
_NOTHING: Final = 1 << 62


class Bounds:
    """Accesses of one run. `faults`: instruction -> what it does, the first time alone; `unknown`:
    instructions whose address is not known."""

    def __init__(
        self, fields: Mapping[str, Any], launches: Sequence[Launch], threads: Threads
    ) -> None:
        self.fields, self.launches, self.threads = fields, launches, threads
        self.faults: dict[int, str] = {}
        self.unknown: set[int] = set()
        count = int(threads.cta[-1]) + 1 if threads.total else 0
        self._low = np.full((count, 2), _NOTHING, np.int64)
        self._high = np.full((count, 2), -1, np.int64)
        lines = [
            stored(str(fields["layout"]), s.m, s.n, s.k, columns_of(fields, s.n))
            for s in (each.sizes for each in launches)
        ]
        self._lines = {
            name: np.array([each[i] for each in lines], np.int64)
            for i, name in enumerate(("A", "B", C))
        }
        self._lines[C][:, 0] *= np.array([each.sizes.batches for each in launches])
        self._strides = {
            name: np.array([each.sizes.strides[i] for each in launches], np.int64)
            for i, name in enumerate(("A", "B", C))
        }
        self._bases = {
            name: np.array([base_of(fields, name, x.sizes.align) for x in launches], np.int64)
            for name in BASES
        }
        of_workspace = int(fields.get("workspace_bytes", 0))
        rows = self._lines[C][:, 0] if fields.get("epilogue") == "residual" else 1
        self._bytes = {
            ADDENDS: self._lines[C][:, 1] * rows * BYTES,
            WORKSPACE: np.array(
                [each.grid[0] * each.grid[1] * of_workspace for each in launches], np.int64
            ),
        }

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Judge an access of the threads `who`."""
        name = ins.opcode[0]
        if name == "cp" and "tensor" in ins.opcode:
            if _is_store(ins.opcode):
                self._store_box(ins, who, frame)
            return
        target = _global_address(ins)
        if target is None:
            return
        address, size = frame.sum(target), self._size(ins, frame)
        if address is None or size is None:
            self.unknown.add(ins.index)
            return
        writes = name in ("st", "red", "atom") or (name == "cp" and _is_store(ins.opcode))
        self._judge(ins, who, address, size, writes)

    def _size(self, ins: Instruction, frame: Frame) -> Array | None:
        """Bytes of an access."""
        if ins.opcode[0] == "prefetch":
            return np.array([1], np.int32)
        if ins.opcode[0] == "cp":
            numbers = [x for x in ins.operands if x.kind in ("number", "register")]
            if "bulk" in ins.opcode:
                return frame.value(numbers[0], np.int32) if numbers else None
            whole = frame.value(numbers[0], np.int32)
            least = frame.value(numbers[1], np.int32) if len(numbers) > 1 else None
            return whole if len(numbers) < 2 else least
        count = next((int(word[1:]) for word in ins.opcode if word in ("v2", "v4", "v8")), 1)
        return np.array([int(ins.opcode[-1].lstrip("busf")) // 8 * count], np.int32)

    def _judge(
        self, ins: Instruction, who: Array, address: Array, size: Array, writes: bool
    ) -> None:
        address, length = (np.broadcast_to(x, who.shape).astype(np.int64) for x in (address, size))
        launch = self.threads.launch[who]
        place = address >> APART
        for number in np.unique(place):
            name = _NAMES.get(int(number))
            here = (place == number) & (length > 0)
            if not here.any():
                continue
            if not number and is_generic(ins):
                continue  # shared memory
            if name is None:
                self._refuse(ins, launch[here][0], "no memory of its own")
                continue
            if name not in self._strides and name not in self._bytes:
                continue  # where groups end
            of, bytes_ = launch[here], length[here]
            offset = address[here] - self._bases[name][of]
            if name in self._bytes:
                wrong = (offset < 0) | (offset + bytes_ > self._bytes[name][of])
            else:
                wrong = self._outside(name, offset, bytes_, of, writes, who[here])
            if wrong.any():
                at = int(np.argmax(wrong))
                self._refuse(ins, of[at], f"{name}, {int(offset[at])} bytes from where it begins")

    def _outside(
        self, name: str, offset: Array, size: Array, launch: Array, writes: bool, who: Array
    ) -> Array:
        lines, length = self._lines[name][launch].T
        stride = self._strides[name][launch]
        row = offset // (stride * BYTES)
        column = offset // BYTES - row * stride
        wide = -(-size // BYTES)
        if not writes:
            # A copy takes pieces of 16 bytes, which may begin before a row and end behind it.
            last = ((lines - 1) * stride + length) * BYTES
            apart = (column + wide > length + PIECE) & (column < stride - PIECE)
            behind: Array = (offset < 0) | (offset + size > last) | apart
            return behind
        wrong: Array = (offset < 0) | (row >= lines) | (column + wide > length)
        if name == C:
            self._note(who[~wrong], row[~wrong], column[~wrong], 1, wide[~wrong])
        return wrong

    def _store_box(self, ins: Instruction, who: Array, frame: Frame) -> None:
        place = next(x for x in ins.operands if x.kind == "address" and len(x.parts) > 2)
        found = [frame.value(part, np.int32) for part in place.parts[1:]]
        if any(each is None for each in found):
            self.unknown.add(ins.index)
            return
        column, row = (
            np.broadcast_to(x, who.shape).astype(np.int64) for x in found[:2] if x is not None
        )
        box = next(each["box"] for each in self.fields["tma"] if each["operand"] == "c")
        launch = self.threads.launch[who]
        lines, length = self._lines[C][launch].T
        batches = np.array([each.sizes.batches for each in self.launches])[launch]
        rows = np.minimum(int(box[1]), lines // batches - row)
        columns = np.minimum(int(box[0]), length - column)
        wrong = (row < 0) | (column < 0)
        if wrong.any():
            self._refuse(ins, launch[int(np.argmax(wrong))], "a box that begins before C")
        inside = (rows > 0) & (columns > 0) & ~wrong
        self._note(who[inside], row[inside], column[inside], rows[inside], columns[inside])

    def _note(self, who: Array, row: Array, column: Array, rows: Any, columns: Any) -> None:
        cta = self.threads.cta[who]
        of_matrix = np.array([each.sizes.m for each in self.launches])[self.threads.launch[who]]
        row = row % of_matrix
        for i, (first, count) in enumerate(((row, rows), (column, columns))):
            np.minimum.at(self._low[:, i], cta, first)
            np.maximum.at(self._high[:, i], cta, first + count - 1)

    def _refuse(self, ins: Instruction, launch: Any, where: str) -> None:
        if ins.index not in self.faults:
            sizes = self.launches[int(launch)].sizes
            self.faults[ins.index] = f"bounds: {where} in '{ins.text[:100]}' of {sizes.text}"

    def tile_fault(self) -> str:
        """What CTAs write beyond one tile; empty where none does. Only for launches in which each
        CTA has one."""
        shape = self.fields["grid"]
        tile = [int(shape["tile_m"]), int(shape["tile_n"])]
        if self.fields.get("epilogue") == GATED:
            tile[1] //= 2
        wrote = self._high[:, 0] >= 0
        if not wrote.any():
            return "tile: no CTA writes"
        low, high = self._low[wrote], self._high[wrote]
        for i, (side, word) in enumerate(zip(tile, ("rows", "columns"), strict=True)):
            wrong = low[:, i] // side != high[:, i] // side
            if wrong.any():
                at = int(np.argmax(wrong))
                told = f"{word} {int(low[at, i])} to {int(high[at, i])}"
                return (
                    f"tile: a CTA writes {told}, declared are {side} from a multiple of {side} on"
                )
        return ""


def _is_store(opcode: Sequence[str]) -> bool:
    """Whether a copy goes to global memory: its target is named first."""
    spaces = [word.split("::")[0] for word in opcode if word.startswith(("global", "shared"))]
    return spaces[:1] == ["global"]


def _global_address(ins: Instruction) -> Operand | None:
    addresses = [x for x in ins.operands if x.kind == "address"]
    if ins.opcode[0] != "cp":
        return addresses[0] if addresses else None
    if "async" not in ins.opcode or len(addresses) < 2:
        return None
    spaces = [word.split("::")[0] for word in ins.opcode if word.startswith(("global", "shared"))]
    if "global" not in spaces:
        return None
    return addresses[spaces.index("global")]
