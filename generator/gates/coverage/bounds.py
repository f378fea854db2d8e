"""Where a kernel reads and writes: each access against the bounds of A, B, C and the rest, and the
part of C that a CTA writes against the tile that its record declares.

A watcher of `machine`, made by `trial` for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage import written
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
from hgemm_packs.generator.gates.coverage.program.opcodes import access_width
from hgemm_packs.generator.gates.coverage.program.quick import divided, numbers_in
from hgemm_packs.generator.gates.coverage.program.registers import (
    Frame,
    Reader,
    Threads,
    adder,
    reader,
)
from hgemm_packs.generator.gates.coverage.program.slices import is_generic
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import ADDENDS, ENDS, WORKSPACE, C
from hgemm_packs.pack.manifest import GROUPED_LAYOUT

_NAMES: Final = {number: name for name, number in BASES.items()}
PIECE: Final = 8  # elements
#: A multiple of rows at which a box that holds all of C begins.
_NOTHING: Final = 1 << 62
MOST_WAITING: Final = 1 << 17  # threads' accesses that are judged together


class _Kind(NamedTuple):
    """How an instruction touches global memory. `address` is None where it does not, and is to be a
    multiple of `whole`; `room` is what a copy may take at most, None of other instructions."""

    ins: Instruction
    address: Reader | None
    size: Reader
    writes: bool
    room: int | None = None
    whole: int = 1


#: Threads, their addresses and the bytes from there on.
_Call = tuple[Array, Array, Array]


class _Judged(NamedTuple):
    """Accesses with the memory that each is in, by number, and whether it is wrong."""

    launch: Array
    address: Array
    place: Array
    wrong: Array


class Bounds:
    """Accesses of one run, which are settled behind it. `faults`: instruction -> what it does, the
    first time alone; `unknown`: instructions whose address is not known."""

    def __init__(
        self, fields: Mapping[str, Any], launches: Sequence[Launch], threads: Threads
    ) -> None:
        self.fields, self.launches, self.threads = fields, launches, threads
        self.faults: dict[int, str] = {}
        self.unknown: set[int] = set()
        self._kinds: dict[int, _Kind] = {}
        self._taken: dict[int, list[_Call]] = {}  # not yet judged, by instruction
        self._waiting = 0
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
        if fields["param_layout"] != GROUPED_LAYOUT:
            self._lines[C][:, 0] *= np.array([each.sizes.batches for each in launches])
        self._strides = {
            name: np.array([each.sizes.strides[i] for each in launches], np.int64)
            for i, name in enumerate(("A", "B", C))
        }
        self._bases = {
            name: np.array([base_of(fields, name, x.sizes.align) for x in launches], np.int64)
            for name in BASES
        }
        ctas = np.array([each.grid[0] * each.grid[1] for each in launches], np.int64)
        rows = self._lines[C][:, 0] if fields.get("epilogue") == "residual" else 1
        self._bytes = {
            ADDENDS: self._lines[C][:, 1] * rows * BYTES,
            WORKSPACE: ctas * int(fields.get("workspace_bytes", 0)),
            ENDS: np.array([each.sizes.batches * 4 for each in launches], np.int64),
        }

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Take down an access of the threads `who`; it is judged with others of its kind."""
        if ins.opcode[0] == "cp" and "tensor" in ins.opcode:
            if _is_store(ins.opcode):
                self._store_box(ins, who, frame)
            return
        kind = self._kinds.get(ins.index)
        if kind is None:
            kind = self._kinds[ins.index] = _kind_of(ins)
        if kind.address is None:
            return
        address, size = kind.address(frame), kind.size(frame)
        if address is None or size is None:
            self.unknown.add(ins.index)
            return
        if kind.room is not None and (size > kind.room).any():
            first = who[np.broadcast_to(size > kind.room, who.shape)][0]
            self._refuse(ins, self.threads.launch[first], f"more than {kind.room} bytes")
        torn = (address & (kind.whole - 1) != 0) & (size > 0)
        if torn.any():
            first = who[np.broadcast_to(torn, who.shape)][0]
            self._refuse(ins, self.threads.launch[first], f"no multiple of {kind.whole} bytes")
        self._taken.setdefault(ins.index, []).append((who, address, size))
        self._waiting += who.size
        if self._waiting > MOST_WAITING:
            self.settle()

    def settle(self) -> None:
        """Judge what was taken down. What was found is known only behind this."""
        for writes in (False, True):
            taken = {at: x for at, x in self._taken.items() if self._kinds[at].writes == writes}
            calls = [call for each in taken.values() for call in each]
            if calls and self._judge(calls, writes).wrong.any():
                for at, each in taken.items():
                    self._tell(self._kinds[at].ins, each, self._judge(each, writes))
        self._taken, self._waiting = {}, 0

    def _judge(self, calls: Sequence[_Call], writes: bool) -> _Judged:
        who = np.concatenate([each for each, _, _ in calls])
        address, length = (_of_each(calls, i).astype(np.int64, copy=False) for i in (1, 2))
        launch = self.threads.launch[who]
        place = address >> APART
        wrong = np.zeros(who.shape, np.bool_)
        for number in numbers_in(place):
            name = _NAMES.get(number)
            every = (place == number) & (length > 0)
            here: Any = slice(None) if every.all() else every
            if name is None:
                wrong[here] = True
                continue
            of, bytes_ = launch[here], length[here]
            offset = address[here] - self._bases[name][of]
            if name in self._bytes:
                wrong[here] = (offset < 0) | (offset + bytes_ > self._bytes[name][of])
            else:
                wrong[here] = self._outside(name, offset, bytes_, of, writes, who[here])
        return _Judged(launch, address, place, wrong)

    def _tell(self, ins: Instruction, calls: Sequence[_Call], judged: _Judged) -> None:
        """Refuse the first access of an instruction that is wrong, and of its threads the first
        with the lowest memory."""
        launch, address, place, wrong = judged
        if not wrong.any():
            return
        ends = np.cumsum([each.size for each, _, _ in calls])
        call = int(np.searchsorted(ends, int(np.argmax(wrong)), "right"))
        first = int(ends[call - 1]) if call else 0
        among = first + np.flatnonzero(wrong[first : ends[call]])
        at = int(among[np.argmin(place[among])])
        name, where = _NAMES.get(int(place[at])), "no memory of its own"
        if name is not None:
            offset = int(address[at] - self._bases[name][launch[at]])
            where = f"{name}, {offset} bytes from where it begins"
        self._refuse(ins, launch[at], where)

    def _outside(
        self, name: str, offset: Array, size: Array, launch: Array, writes: bool, who: Array
    ) -> Array:
        """Which accesses to A, B or C are outside, or between lines."""
        strides, (lines, lengths) = self._strides[name], self._lines[name].T
        stride = strides[launch]
        row = divided(offset, stride * BYTES)
        column = offset // BYTES - row * stride
        wide = (size + BYTES - 1) // BYTES
        if not writes:
            self._note_read(name, who, row, column, wide)
            # A copy takes pieces of 16 bytes, which may begin before a row and end behind it.
            last = ((lines - 1) * strides + lengths) * BYTES
            apart = (column + wide > (lengths + PIECE)[launch]) & (column < stride - PIECE)
            behind: Array = (offset < 0) | (offset + size > last[launch]) | apart
            return behind
        wrong: Array = (offset < 0) | (row >= lines[launch]) | (column + wide > lengths[launch])
        if name == C:
            self._note(who[~wrong], row[~wrong], column[~wrong], 1, wide[~wrong])
        return wrong

    def _note_read(self, name: str, who: Array, row: Array, column: Array, wide: Array) -> None:
        """Told of elements that threads read."""

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
        if len(found) > 2 and found[2] is not None:  # the product that a row is of
            row = row + np.broadcast_to(found[2], who.shape) * (lines // batches)
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
        """What CTAs write beyond one tile, or leave out, in launches in which each has one."""
        of = [each.sizes.text for each in self.launches for _ in each.ctas]
        return written.tile_fault(self.fields, self._low, self._high, of)


def _is_store(opcode: Sequence[str]) -> bool:
    """Whether a copy goes to global memory: its target is named first."""
    spaces = [word.split("::")[0] for word in opcode if word.startswith(("global", "shared"))]
    return spaces[:1] == ["global"]


def _kind_of(ins: Instruction) -> _Kind:
    name, target = ins.opcode[0], _global_address(ins)
    writes = name in ("st", "red", "atom") or (name == "cp" and _is_store(ins.opcode))
    if target is None:
        return _Kind(ins, None, lambda _: None, writes)
    address, size = adder(target), _size_of(ins)
    size = _of_global(address, size) if is_generic(ins) else size
    room = _room_of(ins)
    whole = access_width(ins) if ins.opcode[0] in ("ld", "st") else room or 1
    return _Kind(ins, _apart(address), size, writes, room, whole)


def _room_of(ins: Instruction) -> int | None:
    """The bytes that a copy by threads writes: it may take no more (PTX ISA 9.0, 9.7.9.25.3)."""
    numbers = _numbers_of(ins)
    by_threads = ins.opcode[0] == "cp" and "bulk" not in ins.opcode
    return numbers[0].value if by_threads and len(numbers) > 1 else None


def _numbers_of(ins: Instruction) -> list[Operand]:
    """What a copy has beside addresses: the bytes that it writes, and takes."""
    return [x for x in ins.operands if x.kind in ("number", "register")]


def _of_global(address: Reader, size: Reader) -> Reader:
    """The bytes of an access that lie in global memory: none of one in shared memory."""

    def read(frame: Frame) -> Array | None:
        at, bytes_ = address(frame), size(frame)
        return None if at is None or bytes_ is None else np.where(at >> APART == 0, 0, bytes_)

    return read


def _apart(address: Reader) -> Reader:
    """The same in an array that is no register's: those go on to change."""

    def read(frame: Frame) -> Array | None:
        found = address(frame)
        return None if found is None else found.copy()

    return read


def _size_of(ins: Instruction) -> Reader:
    """What reads the bytes of an access."""
    if ins.opcode[0] == "prefetch":
        return lambda _: _ONE
    if ins.opcode[0] == "cp":
        numbers = _numbers_of(ins)
        if not numbers:  # also what only waits for copies
            return lambda _: None
        whole = numbers[1 if len(numbers) > 1 and "bulk" not in ins.opcode else 0]
        return _apart(reader(whole, np.int32))
    size = np.array([access_width(ins)], np.int32)
    return lambda _: size


_ONE: Final = np.array([1], np.int32)


def _of_each(calls: Sequence[_Call], part: int) -> Array:
    """A part of several accesses for each of their threads."""
    found = [call[part] for call in calls]
    threads = [call[0].size for call in calls]
    if all(each.size == 1 for each in found):
        return np.repeat(np.concatenate(found), threads)
    wide = zip(found, threads, strict=True)
    return np.concatenate([x if x.size == n else np.repeat(x, n) for x, n in wide])


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
