"""Whether bulk stores have read what they store before it is staged over, and before their CTA
ends.

Made by `counts` for a run of whole clusters without a GPU. A bulk store reads shared memory on its
own: the thread that asked for it waits for it, then meets the others, and only then may any of them
stage over it. That thread stages as all do, so that its own order tells theirs. Shared memory is
another's once a CTA has ended. The tools that see races do not know what the copy engine reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage.launches import BYTES
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.coverage.watchers.events import LAST_LANE
from hgemm_packs.generator.gates.coverage.watchers.lanes import is_access
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

FLYING: Final = "stores: staged over what a bulk store may still read"
UNMET: Final = "stores: staged over a bulk store that other threads do not know to have read"
UNENDED: Final = "stores: a bulk store may still read when its CTA ends"
STORE, COMMIT, LEFT, MEET, STAGE = range(5)
_NOTHING: Final = (Operand("number"),)


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what is stored, waited for or staged."""
    kind = _kind(ins)
    return () if kind is None else (*ins.operands, *_NOTHING)


def _kind(ins: Instruction) -> int | None:
    name, words = ins.opcode[0], ins.opcode[1:]
    if name in ("bar", "barrier"):
        return MEET
    if name in ("st", "stmatrix") and is_access(ins):
        return STAGE
    if name != "cp" or "bulk" not in words:
        return None
    if "bulk_group" in words:
        return STORE
    return {"commit_group": COMMIT, "wait_group": LEFT}.get(words[2]) if len(words) > 2 else None


@dataclass(slots=True)
class _Thread:
    """Places from which one thread's stores read: not committed, by groups in flight, and waited
    for since it has met others."""

    fresh: set[int] = field(default_factory=set)
    flying: list[set[int]] = field(default_factory=list)
    waited: set[int] = field(default_factory=set)
    places: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Stores:
    """A watcher: `lane` is each thread's, `box` the bytes of a bulk store by a tensor map."""

    lane: Array
    box: int
    threads: dict[int, _Thread] = field(default_factory=dict)
    found: dict[int, str] = field(default_factory=dict)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` do."""
        kind = _kind(ins)
        if kind == STORE:
            self._store(ins, who, frame)
            return
        mine = np.flatnonzero(np.isin(who, list(self.threads))) if self.threads else ()
        if not len(mine):
            return
        if kind == STAGE:
            address = frame.sum(next(each for each in ins.operands if each.kind == "address"))
            if address is not None:
                at = np.broadcast_to(address, who.shape)
                for i in mine:
                    self._stage(ins, self.threads[int(who[i])], int(at[i]))
            return
        for i in mine:
            thread = self.threads[int(who[i])]
            if kind == MEET:
                thread.waited.clear()
            elif kind == COMMIT:
                thread.flying.append(thread.fresh)
                thread.fresh = set()
            else:
                read = max(len(thread.flying) - ins.operands[0].value, 0)
                thread.waited.update(*thread.flying[:read])
                thread.flying = thread.flying[read:]

    def _store(self, ins: Instruction, who: Array, frame: Frame) -> None:
        source = [each for each in ins.operands if each.kind == "address"][-1]
        address = frame.sum(source)
        if address is None:
            return
        at = np.broadcast_to(address, who.shape)
        for i in np.flatnonzero((self.lane[who] == 0) | (self.lane[who] == LAST_LANE)):
            thread = self.threads.setdefault(int(who[i]), _Thread())
            thread.fresh.add(int(at[i]))
            thread.places.add(int(at[i]))

    def _stage(self, ins: Instruction, thread: _Thread, at: int) -> None:
        over = {place for place in thread.places if place <= at < place + self.box}
        if over & thread.fresh.union(*thread.flying):
            self.found.setdefault(ins.index, f"{FLYING} in '{ins.text[:60]}'")
        elif over & thread.waited:
            self.found.setdefault(ins.index, f"{UNMET} in '{ins.text[:60]}'")

    def faults(self) -> Iterator[str]:
        """Rules that are broken, in the order of the kernel."""
        for at in sorted(self.found):
            yield self.found[at]
        if any(thread.fresh or thread.flying for thread in self.threads.values()):
            yield UNENDED


def box_of(fields: Mapping[str, Any]) -> int:
    """The bytes that one bulk store by a tensor map reads; 0 where C has no map."""
    boxes = [each["box"] for each in fields.get("tma", ()) if each["operand"] == "c"]
    return prod(map(int, boxes[0])) * BYTES if boxes else 0
