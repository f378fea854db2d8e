"""The islands: cells hold the fastest of their kind, children are new members with parents, winners
of similar problems come over, moves that pay are tried more."""

from __future__ import annotations

import itertools
import random

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search.islands import CROSS, Islands, cell, elites
from hgemm_packs.problem import Problem
from tests.generator.kernels import DIRECT, WGMMA
from tests.generator.searched import outcome, search, spaces

PROBLEM = Problem(256, 512, 1024, "nt", "f16")


def test_a_cell_is_family_split_area_and_depth() -> None:
    wgmma = {**WGMMA, "tile_m": 128, "tile_n": 96, "split_k": 1, "stages": 6, "tile_k": 64}
    assert cell(Choice.of("sm90_wgmma", wgmma)) == ("sm90_wgmma", 1, 14, 3)
    direct = {**DIRECT, "mi": 1, "ni": 4, "warps_m": 2, "warps_n": 1, "warps_k": 4, "unroll": 2}
    assert cell(Choice.of("sm90_direct", direct)) == ("sm90_direct", 4, 10, 1)


def test_each_cell_keeps_the_fastest_that_was_told() -> None:
    (space,) = spaces([PROBLEM], every=6)
    islands = Islands(0)
    choices = random.Random(1).sample(space.core, 120)
    broken = choices[::10]
    outcomes = [outcome(choice, PROBLEM, broken=broken) for choice in choices]
    for part in (outcomes[:50], outcomes[50:]):
        islands.tell(space, part)
    archive = elites(islands.history.of(PROBLEM))
    timed = [o for o in outcomes if o.status is Status.OK]
    assert set(archive) == {cell(o.proposal.choice) for o in timed}
    assert 10 < len(archive) < len(timed)
    for kind, elite in archive.items():
        fastest = min(o.us for o in timed if cell(o.proposal.choice) == kind)
        assert next(o.us for o in timed if o.proposal.choice == elite) == fastest
    speeds = [next(o.us for o in timed if o.proposal.choice == e) for e in archive.values()]
    assert speeds == sorted(speeds)


def test_children_are_new_members_that_differ_by_their_move() -> None:
    space = Space(PROBLEM)
    islands = Islands(3)
    told = [outcome(choice, PROBLEM) for choice in space.core[::50]]
    islands.tell(space, told)
    known = {o.proposal.choice.key: o.proposal.choice for o in told}
    children = list(itertools.islice(islands.children(space, random.Random(2)), 60))
    found = [child.choice for child in children]
    assert len(found) == len(set(found)) == 60
    assert not set(found) & {o.proposal.choice for o in told}
    for child in children:
        assert space.contains(child.choice)
        family_name, move = child.operator.split(":")
        parents = [known[key] for key in child.parents]
        assert {parent.family for parent in parents} == {family_name} == {child.choice.family}
        genome, first = child.choice.genome, parents[0].genome
        changed = {gene for gene in genome if genome[gene] != first[gene]}
        if move == CROSS:
            assert all(genome[gene] in [p.genome[gene] for p in parents] for gene in genome)
        else:
            assert changed <= set(FAMILIES[family_name].operators[move])
    assert {child.operator.split(":")[1] for child in children} > {CROSS, "tile", "depth"}


def test_winners_of_similar_problems_migrate_with_the_layout_adapted() -> None:
    near = Problem(512, 512, 1024, "nn", "f16")
    islands = Islands(0)
    source = Space(near)
    told = [outcome(choice, near) for choice in source.core[::40]]
    islands.tell(source, told)
    space = Space(PROBLEM)
    islands.tell(space, [outcome(choice, PROBLEM) for choice in space.core[::100]])
    children = itertools.islice(islands.children(space, random.Random(0)), 60)
    migrants = [child.choice for child in children if child.operator == "migrate"]
    fastest = sorted(told, key=lambda o: o.us)[:2]
    adapted = [
        Choice.of(o.proposal.choice.family, {**o.proposal.choice.genome, "layout": "nt"})
        for o in fastest
    ]
    assert migrants == [choice for choice in adapted if space.contains(choice)]
    assert migrants


def test_a_move_is_rewarded_when_the_child_beats_its_parent() -> None:
    (space,) = spaces([PROBLEM], every=30)
    ranked = sorted(space.core, key=lambda choice: outcome(choice, PROBLEM).us)
    parent = next(c for c in ranked[10:-10] if c.family == "sm90_wgmma")
    islands = Islands(0)
    islands.tell(space, [outcome(parent, PROBLEM)])
    start = islands.bandit.posterior("elsewhere", "sm90_wgmma:tile")
    for child, arm in ((ranked[0], "sm90_wgmma:tile"), (ranked[-1], "sm90_wgmma:depth")):
        proposal = Proposal(child, "anyone", arm, (parent.key,))
        islands.tell(space, [outcome(proposal, PROBLEM)])
    orphan = Proposal(ranked[1], "anyone", "sm90_wgmma:split", ("unknown",))
    islands.tell(space, [outcome(orphan, PROBLEM)])
    posterior = {
        move: islands.bandit.posterior("elsewhere", f"sm90_wgmma:{move}")
        for move in ("tile", "depth", "split")
    }
    quarter = 0.25
    assert posterior["tile"] == (start[0] + quarter, start[1])
    assert posterior["depth"] == (start[0], start[1] + quarter)
    assert posterior["split"] == start


def test_a_failed_child_is_a_loss() -> None:
    (space,) = spaces([PROBLEM], every=30)
    islands = Islands(0)
    parent, child = space.core[:2]
    islands.tell(space, [outcome(parent, PROBLEM)])
    arm = f"{child.family}:tile"
    failed = Outcome(Proposal(child, "islands", arm, (parent.key,)), Status.BUILD, float("inf"))
    islands.tell(space, [failed])
    assert islands.bandit.posterior("elsewhere", arm) == (1.0, 1.25)


def test_the_first_batch_has_one_of_each_cell() -> None:
    (space,) = spaces([PROBLEM], every=4)
    asked = [proposal.choice for proposal in Islands(0).ask(space, 12)]
    assert len({cell(choice) for choice in asked}) == 12


def test_evolution_finds_what_its_seeds_do_not_hold() -> None:
    problem = Problem(3072, 3072, 3072, "nt", "f16")
    (space,) = spaces([problem], every=1)
    told = search(Islands(1), [space], rounds=8, batch=8)[problem]
    assert min(o.us for o in told[:8]) > 1.02 * min(o.us for o in told)
