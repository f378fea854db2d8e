"""The bytes that a barrier is told to expect against those that copies and stores bring.

`expect_tx` with too few bytes lets threads read before all has come, which shows under load alone;
with too many they wait for ever. `faults` follows whole clusters of CTAs on some problems without a
GPU, as `coverage.machine` does, and adds up both for each barrier, phase by phase where one thread
asks for all of them. Called by `coverage.gate`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage import lists
from hgemm_packs.generator.gates.coverage.exceptions import GROUPS, declared
from hgemm_packs.generator.gates.coverage.launches import BYTES, Launch, Sizes, grid, ranks, threads
from hgemm_packs.generator.gates.coverage.problems import few, handed_on, make, ring_of
from hgemm_packs.generator.gates.coverage.program.machine import Endless, Machine
from hgemm_packs.generator.gates.coverage.program.memory import Memory
from hgemm_packs.generator.gates.coverage.program.origins import PLACES, TURN, Origins
from hgemm_packs.generator.gates.coverage.program.slices import makers
from hgemm_packs.generator.gates.coverage.trial import Trial
from hgemm_packs.generator.gates.coverage.watchers import (
    arrivals,
    clusters,
    lanes,
    strands,
)
from hgemm_packs.generator.gates.coverage.watchers.arrivals import brings
from hgemm_packs.generator.gates.coverage.watchers.books import Books, expects
from hgemm_packs.generator.gates.coverage.watchers.tell import Tell
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.pack.manifest import MAPPED

ARRAY_BIT: Final = 20  # arrays in shared memory lie so far apart: none is larger than 227 KiB
TURNS: Final = 2  # tiles of a persistent CTA, along each side
ROUNDS: Final = 2  # of a ring that nobody knows
MOST_ROUND: Final = 1 << 13  # K of one
UNKNOWN: Final = "unseen: a place, or whom it orders, is not known in '{}'"
BETWEEN: Final = 16  # clusters that are neither first nor last
ROW: Final = 7  # tiles in a row: each of two consumers goes round its ring of stores


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say which barrier is told of what, and what is done to shared memory."""
    if expects(ins):
        return ins.operands
    return (*lanes.watched(ins), *strands.watched(ins))


def faults(trial: Trial, planned: Sequence[Sizes] = ()) -> Iterator[str]:
    """Barriers of a kernel that get other bytes than they expect, and rules of its stages, arrivals
    and lanes that it breaks; `planned` are followed beside the problems that all are."""
    kernel = trial.kernel
    if not any(True for ins in kernel.instructions for _ in watched(ins)):
        return
    for ins in kernel.instructions:
        if ins.opcode[:2] == ("mbarrier", "complete_tx"):
            yield f"bytes: a barrier is told of bytes that nothing brings in '{ins.text[:100]}'"
            return
    machine = _machine(trial)
    for laid in _runs(trial, machine, planned):
        try:
            told = _follow(trial, machine, laid)
        except Endless as error:
            told = f"endless: {error}"
        if told:
            yield told
            return


def _runs(trial: Trial, machine: Machine, planned: Sequence[Sizes]) -> Iterator[list[Launch]]:
    """Launches that are followed together; which ones depends on what those before have shown."""
    # Of a persistent kernel one cluster takes all tiles.
    yield _laid(trial, [*problems(trial.fields), *_deep(trial)], ranks(trial.fields))
    in_turns = _in_turns(trial, machine)
    yield _laid(trial, [*_further(trial, machine), *planned], trial.at_a_time)
    yield [*in_turns, *_between(trial, machine)]


def _machine(trial: Trial) -> Machine:
    kernel = trial.kernel
    memory = None if trial.machine.memory is None else Memory()
    machine = Machine(kernel, trial.tables, watched, trial.machine.slice, memory)
    machine.elected = lanes.LAST_LANE
    arrays = [name for name, space in kernel.symbols.items() if space == "shared"]
    machine.places |= {name: np.array([i << ARRAY_BIT], np.int64) for i, name in enumerate(arrays)}
    return machine


def _deep(trial: Trial) -> list[Sizes]:
    """A tile of a kernel of no family whose K goes round shared memory more than twice, in each
    CTA that takes a part of it: nobody knows its ring, but that a stage holds lines of A or B."""
    fields, kernel = trial.fields, trial.kernel
    sizes = (kernel.sizes.get(at, 0) for at, space in kernel.symbols.items() if space == "shared")
    room = sum(sizes) + int(fields["smem_bytes"])
    if is_of_family(fields) or not room:
        return []
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, _ = ring_of(fields)
    parts = int(fields["cluster"][2]) * int(fields["grid"].get("slices", 1))
    depth = min(room // (BYTES * min(rows, columns)), MOST_ROUND)
    return list(make(fields, [(rows, columns, ROUNDS * depth * parts + step + 8)]))


def _further(trial: Trial, machine: Machine) -> list[Sizes]:
    """Problems that the size gate has had outcomes of comparisons from which were not met here:
    what is told may depend on them."""
    return list(dict.fromkeys(each.sizes for each in _unmet(trial.seen, machine)))


def _unmet(seen: Mapping[int, Mapping[int, Launch]], machine: Machine) -> Iterator[Launch]:
    """Where comparisons have had outcomes that were not met here."""
    met = machine.outcomes.seen
    for at, had in seen.items():
        if at in machine.slice.observed:
            yield from (each for outcome, each in had.items() if outcome not in met.get(at, ()))


def _between(trial: Trial, machine: Machine) -> list[Launch]:
    """The clusters of CTAs that have had outcomes which the first clusters and the last have not,
    a few."""
    found = {}
    for each in _unmet(trial.seen, machine):
        ctas = _cluster(trial.fields, each)
        found[each.sizes, each.grid, ctas[0]] = each._replace(ctas=ctas)
    return list(found.values())[:BETWEEN]


def _cluster(fields: Mapping[str, Any], launch: Launch) -> list[tuple[int, int]]:
    """The cluster of the one CTA of a launch."""
    ((x, y),), together = launch.ctas, ranks(fields)
    return [(x - x % together + rank, y) for rank in range(together)]


def _in_turns(trial: Trial, machine: Machine) -> list[Launch]:
    """Clusters of persistent grids for which a comparison of places has gone another way than for
    one that takes all tiles, a few, each with tiles in turn."""
    chosen = _chosen_by_place(trial)
    placed = {at: had for at, had in trial.dealt.items() if at in chosen}
    found = {}
    for each in _unmet(placed, machine):
        ctas = _cluster(trial.fields, each)
        for sizes in _of_turns(trial.fields, each):
            found[each.grid, ctas[0]] = Launch(sizes, each.grid, ctas)
    return list(found.values())[:BETWEEN]


def _chosen_by_place(trial: Trial) -> set[int]:
    """What a place in the grid decides: comparisons, and other instructions in which no turn of a
    loop has a part."""
    origins = Origins(makers(trial.kernel), trial.kernel.joins, trial.machine.slice.sized)
    found = set()
    for ins in trial.kernel.instructions:
        follows = {name for operand in ins.operands[1:] for name in origins.of(operand)}
        chooses = ins.opcode[0] == "setp" or ins.opcode[-1] == "pred"
        if any(x.startswith(PLACES) for x in follows) and (chooses or TURN not in follows):
            found.add(ins.index)
    return found


def _of_turns(fields: Mapping[str, Any], launch: Launch) -> list[Sizes]:
    """A problem of which each cluster of a grid has some tiles; a list of groups as it is."""
    if launch.sizes.ends:
        return [launch.sizes]
    clusters = launch.grid[0] // ranks(fields)
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    side = TURNS * int(fields["cluster"][0])
    across = -(-ROW * clusters // TURNS) * int(fields["cluster"][1])
    return list(make(fields, [(side * rows, across * columns, handed_on(fields))]))


def problems(fields: Mapping[str, Any]) -> list[Sizes]:
    """One element, whole tiles and tails, more columns of tiles than rows, K below the ring, round
    it and above, each number of rows where these are few."""
    if GROUPS in declared(fields):
        return lists.few(fields)
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, ring = ring_of(fields)
    shapes = [
        (1, 8, 8),
        (rows, columns, 2 * ring),
        (TURNS * rows - 3, TURNS * columns - 8, 2 * ring + step + 8),
        (rows, ROW * columns, handed_on(fields)),
        *((m, columns + 8, step + 8) for m in few(fields["dims"]["m"])[::5]),
    ]
    return list(make(fields, shapes))


def _laid(trial: Trial, asked: Sequence[Sizes], most: int) -> list[Launch]:
    """Some clusters of these problems; `most` as in `launches.grid`."""
    fields, together = trial.fields, ranks(trial.fields)
    places = trial.named_places()
    found = []
    for sizes in asked:
        x, y = grid(fields, sizes, most)
        told = {(place - place % together, 0) for place in places if place < x}
        starts = sorted({*told, *_starts((x, y), together, is_of_family(fields))})
        ctas = [(first + rank, j) for first, j in starts for rank in range(together)]
        found.append(Launch(sizes, (x, y), ctas))
    return found


def _follow(trial: Trial, machine: Machine, laid: Sequence[Launch]) -> str:
    """What is wrong in any CTA of these launches, the first fault alone."""
    if not laid:
        return ""
    fields, kernel, together = trial.fields, trial.kernel, ranks(trial.fields)
    places = trial.named_places()
    ctas = [place for each in laid for place, _ in each.ctas]
    named = [i for i, place in enumerate(ctas) if place in places]
    who = threads(fields, trial.kernel.params, trial.roles, laid)
    maps = trial.kernel.params[: len(MAPPED[str(fields["param_layout"])])]
    numbers = {name: np.array([i + 1 << 40], np.int64) for i, name in enumerate(maps)}
    books = Books(fields, maps, who.cta, together)
    lane = who.specials["%laneid"]
    arrived = arrivals.Arrivals(who.cta, together)
    shared = strands.Strands(who.cta, together, books.copied)
    looked = lanes.CTAS if is_of_family(fields) else lanes.CTAS_OF_A_STRANGER
    met = lanes.Lanes.of(lane, who.cta, named, looked)
    tell = Tell(
        [
            (lambda ins: expects(ins) or brings(ins), books),
            (arrivals.is_told, arrived),
            (lanes.watched, met),
            (strands.watched, shared),
        ]
    )
    machine.run(who._replace(params={**who.params, **numbers}), tell)
    unknown = shared.unknown or arrived.unknown
    if unknown:
        return UNKNOWN.format(unknown.text[:100])
    if books.unknown:
        return f"bytes: {books.unknown[0]}"
    for cta, words in books.differences():
        of = int(who.launch[int(np.argmax(who.cta == cta))])
        return f"bytes: {words} of {laid[of].sizes.text}"
    is_known = is_of_family(fields)
    most = clusters.ACTS if is_known else clusters.ACTS_OF_A_STRANGER
    raced = clusters.faults(kernel, shared, arrived.counts, most, exact=not is_known)
    return next(itertools.chain(arrived.faults(), met.faults(), raced), "")


def _starts(of: tuple[int, int], together: int, few: bool) -> Iterator[tuple[int, int]]:
    """The first CTAs of the clusters that are followed of a grid: the first one and the last, and
    where these are not to be `few` those in the middle and at the sides."""
    x, y = of
    last = x - together, y - 1
    if few:
        yield from ((0, 0), last)
        return
    along_x = (0, together, x // 2 // together * together, last[0])
    yield from ((i, j) for i in along_x if i < x for j in (0, y // 2, last[1]))
