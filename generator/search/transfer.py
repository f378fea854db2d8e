"""What won elsewhere comes first: kernels that earlier runs timed best on the same sizes, in any
layout and type, or on the nearest sizes, before a search of one's own, or instead of one.

Made by the CLI from exports, run folders and tables. A winner in another layout or type is the same
genome with those genes changed, if that is a genome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.devices.recording import complete_choice
from hgemm_packs.generator.families import FAMILIES, computed
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.search.near import near_choices
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.problem import Problem

Sizes = tuple[int, int, int]
Gain = tuple[float, float]
#: What is known to win, by M, N and K.
Known = Mapping[Sizes, Sequence[Choice]]

#: Genes that change places where M and N do.
TURNS = (("tile_m", "tile_n"), ("cluster_m", "cluster_n"), ("mi", "ni"), ("warps_m", "warps_n"))

EACH = 3  # winners of one size in one layout and type
FEW = 4  # known of a size: with fewer, the nearest sizes lend theirs
ONLY = "winners"  # the name of the strategy that does nothing else


def winners(parts: Iterable[Findings]) -> dict[Sizes, list[Choice]]:
    """By M, N and K, the kernels that were fastest by hot median in finals and confirmations."""

    def fastest(part: Findings, one: Field) -> list[str]:
        us = {
            kernel: median(samples)
            for kernel, samples in one.samples["hot"].items()
            if one.statuses.get(kernel) is Status.OK and kernel not in part.refused
        }
        return sorted(us, key=us.__getitem__)[:EACH]

    return _list_kernels(parts, fastest)


def list_dependent_choices(parts: Iterable[Findings]) -> dict[Sizes, list[Choice]]:
    """By M, N and K, the kernels that read ahead and were confirmed: a run had found them by
    launches behind one another, and their times alone say nothing of that."""

    def ahead(part: Findings, one: Field) -> list[str]:
        return [
            kernel
            for kernel, status in one.statuses.items()
            if one.stage == "confirm" and status is Status.OK and kernel not in part.refused
            if part.kernels[kernel]["genome"].get("reads_ahead")
        ]

    return _list_kernels(parts, ahead)


def rows(
    source: SourceManifest,
) -> tuple[dict[Problem, dict[Choice, Gain]], dict[Sizes, list[Choice]]]:
    """Of a table: what each row's own kernel won, hot and cold against torch, and by M, N and K,
    each once, the kernels that rows name, for plain or for dependent launch."""
    built = {
        kernel.id: choice
        for kernel in source.kernels
        if (choice := complete_choice(kernel.family, kernel.genome))
    }
    won: dict[Problem, dict[Choice, Gain]] = {}
    named: dict[Sizes, dict[Choice, None]] = {}
    for row in source.table:
        for id_ in (row.kernel, row.dependent):
            if id_ in built:
                named.setdefault((row.m, row.n, row.k), {})[built[id_]] = None
        if row.kernel in built:
            gain = row.hot.speedup, row.cold.speedup
            won[Problem(*row.key)] = {built[row.kernel]: gain}
    return won, {sizes: list(choices) for sizes, choices in named.items()}


def _list_kernels(
    parts: Iterable[Findings], of: Callable[[Findings, Field], Iterable[str]]
) -> dict[Sizes, list[Choice]]:
    """By M, N and K, each once, the kernels that `of` names of each finals and confirmation."""
    found: dict[Sizes, dict[Choice, None]] = {}
    for part in parts:
        for one in part.fields:
            p = one.problem
            mine = found.setdefault((p.m, p.n, p.k), {})
            for kernel in of(part, one):
                fields = part.kernels[kernel]
                if choice := complete_choice(fields["family"], fields["genome"]):
                    mine[choice] = None
    return {sizes: list(choices) for sizes, choices in found.items()}


def unite_choices(parts: Iterable[Known]) -> dict[Sizes, list[Choice]]:
    """What any of the parts knows, each choice once."""
    found: dict[Sizes, dict[Choice, None]] = {}
    for part in parts:
        for sizes, choices in part.items():
            found.setdefault(sizes, {}).update(dict.fromkeys(choices))
    return {sizes: list(choices) for sizes, choices in found.items()}


def move_choices(known: Known, problem: Problem) -> list[Choice]:
    """What is known of the sizes of `problem`, each once, in its layout, type and epilogue, and
    then, turned, what is known of M and N exchanged: searches find one of the two more often than
    both."""
    m, n, k = problem.m, problem.n, problem.k
    known_so = [*known.get((m, n, k), ())]
    if m != n:
        known_so += filter(None, map(turn_choice, known.get((n, m, k), ())))
    here = (_move_choice(choice, problem) for choice in known_so)
    return list(dict.fromkeys(choice for choice in here if choice))


def start_choices(known: Known, problem: Problem) -> list[Choice]:
    """What to try first: the known of the sizes of `problem`, then, where that is fewer than FEW,
    of those nearest to them."""
    own = move_choices(known, problem)
    near = near_choices(known, problem, _move_choice) if len(own) < FEW else []
    return list(dict.fromkeys((*own, *near)))


def turn_choice(choice: Choice) -> Choice | None:
    """The choice with rows and columns exchanged, in the same layout; None when that is no genome,
    or its kind has nothing to exchange."""
    genome = choice.genome
    pairs = [pair for pair in TURNS if set(pair) <= genome.keys()]
    if choice.family not in FAMILIES or not pairs:
        return None
    family = FAMILIES[choice.family]
    other = {**genome, **{n: genome[m] for m, n in pairs}, **{m: genome[n] for m, n in pairs}}
    if "raster" in other:
        other["raster"] = {"m": "n", "n": "m"}[str(other["raster"])]
    # Consumers share the rows of a tile: where there are too few now, one consumer has them all.
    each = [other, {**other, "consumers": 1}] if "consumers" in other else [other]
    valid = next((genome for genome in each if family.is_valid(genome)), None)
    return Choice.of(choice.family, valid) if valid else None


class Before:
    """Asks for the `first` choices of a space, then what `then` asks; tells `then` everything.
    `operator` says of a proposal what made it."""

    def __init__(
        self,
        name: str,
        operator: str,
        first: Callable[[Space], Iterable[Choice]],
        then: Strategy | None,
    ) -> None:
        self.name = name
        self._operator, self._first, self._then = operator, first, then
        self._told: dict[Problem, set[Choice]] = {}

    def ask(self, space: Space, n: int) -> list[Proposal]:
        told = self._told.get(space.problem, set())
        new = [choice for choice in self._first(space) if choice not in told]
        if new:
            return [Proposal(choice, self.name, self._operator) for choice in new[:n]]
        return self._then.ask(space, n) if self._then else []

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        told = self._told.setdefault(space.problem, set())
        told.update(outcome.proposal.choice for outcome in outcomes)
        if self._then:
            self._then.tell(space, outcomes)


class Transfer(Before):
    """Asks for winners first."""

    def __init__(self, known: Known, then: Strategy | None) -> None:
        def winners(space: Space) -> list[Choice]:
            return [each for each in start_choices(known, space.problem) if space.contains(each)]

        super().__init__(then.name if then else ONLY, "winners", winners, then)


def _move_choice(choice: Choice, problem: Problem) -> Choice | None:
    """The choice in a problem's layout, type and epilogue; None when that is no genome."""
    genome = computed.compute_also(choice.genome, problem.epilogue)
    genome |= {"layout": problem.layout, "dtype": problem.dtype}
    no_groups = problem.layout[1] == "n" or problem.epilogue == computed.GATED
    if genome.get("epilogue") == "grouped" and no_groups:
        genome["epilogue"] = "staged"
    valid = choice.family in FAMILIES and FAMILIES[choice.family].is_valid(genome)
    return Choice.of(choice.family, genome) if valid else None
