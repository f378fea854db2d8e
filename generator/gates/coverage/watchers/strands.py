"""What the threads of a cluster do to shared memory and to what orders them, as strands: threads of
a warp that wait, meet and tell alike.

Made by `counts` for a run of whole clusters without a GPU; `races` runs the strands once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.launches import APART
from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT, Array
from hgemm_packs.generator.gates.coverage.program.opcodes import access_width
from hgemm_packs.generator.gates.coverage.program.registers import Frame, adder
from hgemm_packs.generator.gates.coverage.watchers import operands
from hgemm_packs.generator.gates.coverage.watchers.arrivals import Barrier, barrier_at
from hgemm_packs.generator.gates.coverage.watchers.lanes import (
    WARP,
    Access,
    access_of,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

UNIT: Final = 2  # bytes that are told apart
PLACES: Final = 1 << 22  # bytes of a CTA's arrays
WHOLE: Final = 0xFFFFFFFF  # all lanes of a warp
UNKNOWN: Final = -1
_ZERO, _ONE = np.array([0], np.int64), np.array([1], np.int64)
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

ARRIVE, FILL, WAIT, COPY, SEND, PASS = range(6)  # of a barrier; PASS copies to another CTA
MULTIPLY, PRODUCTS, MULTIPLIED, STORE, STORES, STORED, COPIES, COPIED = range(6, 14)
MEET, OF_WARP, OF_CLUSTER = range(14, 17)
LOOK, FENCE = 17, 18  # a wait that acquires nothing, and what acquires what such have seen
MAKE: Final = 19  # a barrier
READ, WRITE, FETCH, SENT = range(4)  # what is done to a place: FETCH by cp.async, SENT from afar

_ACQUIRES_NOTHING: Final = ("proxy", "mbarrier_init", "release")
_NOTHING: Final = (Operand("number"),)


class Act(NamedTuple):
    """What a strand does that orders others, or brings bytes: `numbers` by kind, as `_numbers_of`
    has them."""

    kind: int
    ins: Instruction
    numbers: tuple[int, ...]


class Touch(NamedTuple):
    """Places that a strand reads or writes between two of its acts; `places` in units, over the
    arrays of all CTAs."""

    kind: int
    ins: int
    places: Array


@dataclass(slots=True)
class Strand:
    """Threads of a warp that do alike: `weight` of them. `touched` by how many acts came before."""

    cta: int
    warp: int
    weight: int
    acts: list[Act] = field(default_factory=list)
    touched: dict[int, list[Touch]] = field(default_factory=dict)


def kind_of(ins: Instruction) -> int | None:
    """What an instruction does that orders others, or bytes that it brings by itself."""
    name, words = ins.opcode[0], ins.opcode[1:]
    if name == "wgmma":
        kinds = {"mma_async": MULTIPLY, "commit_group": PRODUCTS, "wait_group": MULTIPLIED}
        return kinds.get(words[0])
    if name == "mbarrier":
        if words[0] in ("try_wait", "test_wait"):
            return LOOK if "relaxed" in words else WAIT
        return {"init": MAKE, "arrive": ARRIVE, "expect_tx": ARRIVE}.get(words[0])
    if name in ("bar", "barrier"):
        return {"warp": OF_WARP, "cluster": OF_CLUSTER}.get(words[0], MEET)
    if name == "st" and words[0] == "async":
        return SEND
    if name in ("fence", "membar"):
        return None if words[0] in _ACQUIRES_NOTHING else FENCE
    if name != "cp":
        return None
    if "bulk" not in words:
        kinds = {"commit_group": COPIES, "wait_group": COPIED, "wait_all": COPIED, "mbarrier": FILL}
        return kinds.get(words[1])
    if "commit_group" in words or "wait_group" in words:
        return STORES if "commit_group" in words else STORED
    if "bulk_group" in words:
        return STORE
    return COPY if "global" in words else PASS


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what is done, and where."""
    return () if kind_of(ins) is None and _access(ins) is None else (*ins.operands, *_NOTHING)


def _access(ins: Instruction) -> Access | None:
    """What a lane reads or stages, in its own CTA or in another of its cluster."""
    if ins.opcode[0] not in ("ld", "st") or "shared::cluster" not in ins.opcode:
        return access_of(ins)
    address = adder(next(each for each in ins.operands if each.kind == "address"))
    return Access(address, 0, access_width(ins), ins.opcode[0] == "st")


def _numbers_of(
    ins: Instruction, kind: int, frame: Frame, size_of: Callable[[Instruction, Frame], Array | None]
) -> Sequence[Array | None]:
    """The numbers of an act, None where one is not known.

    A barrier's address comes first, or the number of a meeting, or how many groups may be in
    flight; then bytes, a parity, or how many meet; then arrivals, or where bytes go; then masks of
    CTAs, or where bytes come from.
    """
    addresses = [frame.sum(each) for each in ins.operands if each.kind == "address"]
    values = [
        frame.value(each, np.int64) if each.kind in ("register", "number") else None
        for each in ins.operands
    ]
    words = ins.opcode
    if kind == ARRIVE:
        told = values[-1] if "expect_tx" in words else _ZERO
        return addresses[-1], told, _ONE if "arrive" in words else _ZERO
    if kind == MAKE:
        return addresses[:1]
    if kind == FILL:
        return addresses[-1], _ZERO, _ONE if "noinc" in words else _ZERO
    if kind in (WAIT, LOOK):
        return addresses[-1], values[-1] if "parity" in words else _ZERO + UNKNOWN
    if kind == COPY:
        mask = values[-1] if "multicast::cluster" in words else _ZERO
        return addresses[-1], size_of(ins, frame), addresses[0], mask
    if kind == PASS:
        return addresses[2], values[-2], addresses[0], addresses[1]
    if kind == SEND:
        return addresses[-1], _ZERO + access_width(ins)
    if kind == STORE:
        return addresses[-1], size_of(ins, frame)
    if kind == MULTIPLY:
        return [_described(*each) for each in zip(ins.operands[1:3], values[1:3], strict=True)]
    if "wait_all" in words:
        return [_ZERO + UNKNOWN]
    if kind in (STORED, MULTIPLIED, COPIED):
        return [values[0] if values and values[0] is not None else _ZERO]
    if kind == MEET:
        count = values[1] if len(values) > 1 else _ZERO
        return values[0], count, _ONE if "arrive" in words else _ZERO
    if kind == OF_WARP:
        mask = values[0] if values and values[0] is not None else _ZERO
        return [(mask & WHOLE == WHOLE).astype(np.int64)]
    if kind == OF_CLUSTER:
        return _ZERO + ("wait" in words), _ZERO + ("relaxed" in words)
    return [_ZERO + (kind == FENCE and "cta" in words)]


def _described(operand: Operand, value: Array | None) -> Array | None:
    """The descriptor of a product's operand: none, if registers have the operand."""
    return _ZERO + UNKNOWN if operand.kind == "vector" else value


@dataclass(slots=True)
class Strands:
    """A watcher: `cta` is each thread's, `together` of them are a cluster."""

    cta: Array
    together: int
    size_of: Callable[[Instruction, Frame], Array | None]
    done: Array = field(init=False)  # acts of each thread
    path: Array = field(init=False)  # what tells their sequences apart
    acts: list[tuple[int, Instruction, Array, Array]] = field(default_factory=list)
    touches: list[tuple[int, int, Array, Array, Array]] = field(default_factory=list)
    unknown: Instruction | None = None  # one with a number that is not known

    def __post_init__(self) -> None:
        self.done = np.zeros(self.cta.size, np.int32)
        self.path = np.zeros(self.cta.size, np.uint64)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` do."""
        kind = kind_of(ins)
        access = _access(ins)
        if access is not None:
            self._touch(ins, who, frame, access)
        if kind is None:
            return
        found = _numbers_of(ins, kind, frame, self.size_of)
        if any(each is None for each in found):
            self.unknown = self.unknown or ins
            return
        numbers = np.stack([np.broadcast_to(each, who.shape) for each in found if each is not None])
        self.acts.append((kind, ins, who, numbers))
        told = self.path[who] * _FACTOR + np.uint64(ins.index + 1)
        for each in numbers:
            told = told * _FACTOR + each.astype(np.uint64)
        self.path[who] = told
        self.done[who] += 1

    def _touch(self, ins: Instruction, who: Array, frame: Frame, access: Access) -> None:
        address = access.address(frame)
        if address is None:
            self.unknown = self.unknown or ins
            return
        address = np.broadcast_to(address, who.shape)
        some = address >> APART == 0  # an address of no state space may be one of global memory
        if access.rows:
            some &= who % WARP < access.rows
        if not some.any():
            return
        place = self.place_of(who[some], address[some])
        units = place[:, None] + np.arange(max(access.width // UNIT, 1))
        who = who[some]
        kind = READ if not access.stages else FETCH if ins.opcode[0] == "cp" else WRITE
        kind = SENT if ins.opcode[:2] == ("st", "async") else kind
        self.touches.append((kind, ins.index, who, self.done[who], units))

    def place_of(self, who: Array, address: Array) -> Array:
        """Where an address is among the units of all CTAs."""
        cta, rank = self.cta[who], address >> RANK_BIT
        cta = np.where(rank > 0, cta - cta % self.together + rank - 1, cta)
        found: Array = (cta * PLACES + (address & (1 << RANK_BIT) - 1) % PLACES) // UNIT
        return found

    def clusters(self) -> Iterator[list[Strand]]:
        """The strands of each cluster."""
        warp = np.arange(self.cta.size) // WARP
        keys = np.stack([warp.astype(np.uint64), self.path], axis=1)
        _, first, of, weights = np.unique(
            keys, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        of = of.reshape(-1)
        strands = [
            Strand(int(self.cta[one]), int(warp[one]), int(many))
            for one, many in zip(first, weights, strict=True)
        ]
        is_first = np.full(self.cta.size, -1)
        is_first[first] = np.arange(first.size)
        for kind, ins, who, numbers in self.acts:
            mine = is_first[who]
            for i in np.flatnonzero(mine >= 0).tolist():
                strands[mine[i]].acts.append(Act(kind, ins, tuple(numbers[:, i].tolist())))
        for kind, at, who, done, units in self.touches:
            key = of[who] << 32 | done
            order = np.argsort(key, kind="stable")
            each, starts = np.unique(key[order], return_index=True)
            for one, places in zip(each.tolist(), np.split(units[order], starts[1:]), strict=True):
                touched = strands[one >> 32].touched.setdefault(one & (1 << 32) - 1, [])
                touched.append(Touch(kind, at, places.ravel()))
        by_cluster: dict[int, list[Strand]] = {}
        for strand in strands:
            by_cluster.setdefault(strand.cta // self.together, []).append(strand)
        yield from by_cluster.values()


def targets_of(cta: int, together: int, act: Act) -> list[Barrier]:
    """The CTAs that a strand of a CTA copies to, each with the barrier that is told."""
    first = cta - cta % together
    ranks = [i for i in range(together) if act.numbers[3] >> i & 1]
    key = barrier_at(cta, together, act.numbers[0])
    return [(first + rank, key[1]) for rank in ranks] or [key]


def regions(cta: int, together: int, act: Act) -> list[Array]:
    """The places that an act touches, one array each."""
    if act.kind == MULTIPLY:
        found = enumerate(act.numbers)
        every = [operands.places(act.ins, i, each) for i, each in found if each != UNKNOWN]
        return [(cta * PLACES + each) // UNIT for each in every]
    if act.kind == STORE:
        return [_region(cta, act.numbers[0], act.numbers[1])]
    if act.kind == COPY:
        _, bytes_, to, _ = act.numbers
        return [_region(each, to, bytes_) for each, _ in targets_of(cta, together, act)]
    if act.kind == PASS:
        _, bytes_, to, source = act.numbers
        return [_region(cta, source, bytes_), _region(*barrier_at(cta, together, to), bytes_)]
    return []


def _region(cta: int, address: int, bytes_: int) -> Array:
    first = (cta * PLACES + address % PLACES) // UNIT
    return np.arange(first, first + max(bytes_ // UNIT, 1))
