"""What CTAs read of A and B against what their tiles of C are made of: every element of these rows
and columns, along all of K.

A watcher beside `bounds`. CTAs that share a tile, or copies of operands, are a team, and count
together. A choice that leaves a part of K out, or takes other rows, shows here whatever it was made
by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage.bounds import Bounds
from hgemm_packs.generator.gates.coverage.launches import Launch, ranks
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Threads
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

OPERANDS: Final = ("A", "B")


class Reads(Bounds):
    """The watcher of one run in which each CTA has one tile. `boxed`: instructions that copy boxes
    of A or B, and which."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        launches: Sequence[Launch],
        threads: Threads,
        boxed: Mapping[int, str],
    ) -> None:
        super().__init__(fields, launches, threads)
        self.boxed = boxed
        self._teams, self._whole = self._in_teams()
        #: Of each operand: teams, first lines, how many, first elements, how many.
        self._read: dict[str, list[tuple[Array, ...]]] = {name: [] for name in OPERANDS}

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        super().__call__(ins, who, frame)
        if ins.opcode[0] == "cp" and "tensor" in ins.opcode:
            self._load_box(ins, who, frame)

    def _note_read(self, name: str, who: Array, row: Array, column: Array, wide: Array) -> None:
        if name not in OPERANDS:
            return
        team = self._teams[self.threads.cta[who]]
        self._read[name].append((team, row, np.ones(row.shape, np.int16), column, wide))

    def _load_box(self, ins: Instruction, who: Array, frame: Frame) -> None:
        name = self.boxed.get(ins.index)
        if name is None:
            return
        place = next(x for x in ins.operands if x.kind == "address" and len(x.parts) > 2)
        found = [frame.value(part, np.int32) for part in place.parts[1:3]]
        if found[0] is None or found[1] is None:
            self.unknown.add(ins.index)
            return
        first, line = (
            np.broadcast_to(x, who.shape).astype(np.int64) for x in found if x is not None
        )
        box = next(x["box"] for x in self.fields["tma"] if x["operand"] == name.lower())
        across, down = (np.full_like(line, int(side)) for side in box[:2])
        self._read[name].append((self._teams[self.threads.cta[who]], line, down, first, across))

    def missing(self) -> str:
        """What a CTA with a tile does not read, the first such; empty where all is read."""
        wrote = np.flatnonzero(self._high[:, 0] >= 0)
        launches = self._launch_of()
        for name in OPERANDS:
            parts = self._read[name]
            if not parts:
                return f"unread: no address of {name} is known"
            of, line, lines, first, count = (
                np.concatenate(each) for each in zip(*parts, strict=True)
            )
            order = np.argsort(of, kind="stable")
            ends = np.searchsorted(of[order], np.arange(len(launches) + 1))
            for each in wrote[self._whole[self._teams[wrote]]]:
                team = int(self._teams[each])
                here = order[ends[team] : ends[team + 1]]
                span = self._span(name, int(each), int(launches[each]))
                told = _uncovered(span, line[here], lines[here], first[here], count[here])
                if told:
                    sizes = self.launches[int(launches[each])].sizes
                    return f"unread: {told} of {name} of {sizes.text}"
        return ""

    def _in_teams(self) -> tuple[Array, Array]:
        """The team of each CTA, and of each team whether all of it is followed."""
        together = ranks(self.fields)
        slices = int(self.fields["grid"].get("slices", 1))
        keys: dict[tuple[int, int, int], int] = {}
        found = []
        for i, each in enumerate(self.launches):
            apart = max(each.grid[0] // slices, 1)
            for x, y in each.ctas:
                found.append(keys.setdefault((i, x % apart // together, y), len(keys)))
        # Few enough for 16 bits, which are sorted in one pass.
        teams = np.array(found, np.int16 if len(found) < 1 << 15 else np.int64)
        return teams, np.bincount(teams, minlength=len(found)) == together * slices

    def _launch_of(self) -> Array:
        firsts = np.unique(self.threads.cta, return_index=True)[1]
        found: Array = self.threads.launch[firsts]
        return found

    def _span(self, name: str, cta: int, launch: int) -> tuple[int, int, int, int]:
        """The lines and elements, from and to, that a CTA's part of C is made of."""
        side = 0 if name == "A" else 1
        own = int(self._low[cta, side]), int(self._high[cta, side]) + 1
        depth = 0, self.launches[launch].sizes.k
        along_k = str(self.fields["layout"])[side] == ("n" if name == "A" else "t")
        return (*own, *depth) if along_k else (*depth, *own)


def _uncovered(
    span: tuple[int, int, int, int], line: Array, lines: Array, first: Array, count: Array
) -> str:
    """Words for the first element of a span that no access covers; empty where there is none."""
    top, bottom, left, right = span
    wide = right - left + 1
    inside = np.zeros((bottom - top) * wide, np.int64)
    for at, start, end in _intervals(span, line, lines, first, count):
        inside += np.bincount(at * wide + start, minlength=inside.size)
        inside -= np.bincount(at * wide + end, minlength=inside.size)
    bare = np.cumsum(inside.reshape(-1, wide), axis=1)[:, :-1] <= 0
    if not bare.any():
        return ""
    row, column = np.unravel_index(int(np.argmax(bare)), bare.shape)
    return f"line {top + int(row)}, element {left + int(column)}"


def _intervals(
    span: tuple[int, int, int, int], line: Array, lines: Array, first: Array, count: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """Accesses as intervals of one line each, cut to the span."""
    top, bottom, left, right = span
    for i in range(int(lines.max(initial=0))):
        at = line + i
        start, end = np.maximum(first, left), np.minimum(first + count, right)
        kept = (i < lines) & (at >= top) & (at < bottom) & (start < end)
        yield at[kept] - top, start[kept] - left, end[kept] - left


def boxed(flow: Flow) -> dict[int, str]:
    """Instructions that copy boxes of A or B, and which."""
    found = {}
    for ins in flow.kernel.instructions:
        if ins.opcode[0] == "cp" and "tensor" in ins.opcode:
            read = [flow.value(x.parts[0]).bases for x in ins.operands if x.parts]
            names = [name for name in OPERANDS if any(name in bases for bases in read)]
            if names:
                found[ins.index] = names[0]
    return found
