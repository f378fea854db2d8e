"""Honest kernels that faults are planted in: of every family, layout, type and epilogue.

A kernel is drawn from the committed tables where these have some of the family, layout and type,
else from all valid genomes. Nothing is compiled here.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.generator.compile import compiler, source_folder
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, Genome, computed, family
from hgemm_packs.generator.redteam.mutation.operators.base import Honest
from hgemm_packs.problem import EPILOGUES

#: Names of all families, in a fixed order.
EVERY = (*FAMILIES, *GROUPED, *BATCHED)
#: The committed tables below `manifests/`: of products, of groups and of batches.
TABLES = ("sm_90a/h200", "sm_90a/h200_grouped", "sm_90a/h200_batched")
PLAIN_SHARE = 0.5  # of the kernels that compute the product alone
TRIES = 100_000  # genomes, of which one in some thousands is valid in the largest space


@cache
def _table() -> Mapping[tuple[str, str, str], Sequence[Genome]]:
    """Genomes of the committed tables by family, layout and type."""
    found: dict[tuple[str, str, str], list[Genome]] = defaultdict(list)
    listed = (source_folder.join(manifests_dir() / each)["kernels"] for each in TABLES)
    for kernel in itertools.chain.from_iterable(listed):
        genome = family(kernel["family"]).whole(kernel["genome"])
        kind = kernel["family"], str(genome["layout"]), str(genome["dtype"])
        found[kind].append(computed.compute_also(genome, computed.PLAIN))
    return found


@cache
def draw(seed: int, turn: int, name: str) -> Honest:
    """The kernel of a family in a turn of a seed, always the same."""
    dice = random.Random(f"{seed} turn {turn} {name}")
    f = family(name)
    kind = {gene: dice.choice(f.genes[gene]) for gene in ("layout", "dtype")}
    plain = dice.random() < PLAIN_SHARE or name in GROUPED  # of which none does more
    epilogue = computed.PLAIN if plain else dice.choice(EPILOGUES)
    listed = _table().get((name, str(kind["layout"]), str(kind["dtype"])), ())
    for _ in range(TRIES):
        drawn = {gene: dice.choice(values) for gene, values in f.genes.items()} | kind
        genome = dice.choice(listed) if listed else drawn
        for wanted in (epilogue, computed.PLAIN):
            found = computed.compute_also(genome, wanted)
            if f.is_valid(found):
                return of_choice(Choice.of(name, found))
    raise LookupError(f"no valid genome of {name} in {TRIES}")


def of_choice(choice: Choice) -> Honest:
    """A family's kernel as it is. Raises InvalidGenome."""
    genome = choice.genome
    return Honest(
        choice, compiler.render(choice.family, genome), family(choice.family).fields(genome)
    )


def other(base: Honest, genes: Sequence[str], dice: random.Random) -> Choice | None:
    """A valid choice that differs from the base in one of these genes and in its launch record,
    None where there is none."""
    f, genome = family(base.choice.family), base.choice.genome
    found = [
        {**genome, gene: value}
        for gene in genes
        if gene in genome
        for value in f.genes[gene]
        if value != genome[gene]
    ]
    record = f.record(genome)
    listed = [each for each in found if f.is_valid(each) and f.record(each) != record]
    return Choice.of(base.choice.family, dice.choice(listed)) if listed else None
