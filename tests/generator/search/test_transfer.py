"""Winners of earlier runs come first, in the layout and type at hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from hgemm_packs.generator.compile.pack_writer import SourceKernel, read_source
from hgemm_packs.generator.core.space import Space, ahead, catalogue, limits
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Outcome, Status
from hgemm_packs.generator.families import FAMILIES, computed
from hgemm_packs.generator.run.start import read_earlier
from hgemm_packs.generator.search import STRATEGIES
from hgemm_packs.generator.search.transfer import (
    EACH,
    ONLY,
    Transfer,
    list_dependent_choices,
    move_choices,
    rows,
    turn_choice,
    winners,
)
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.problem import Problem

COMMITTED = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"
HERE = Problem(256, 512, 2048, "nt", "f16")


def seen(us: dict[Choice, float], bad: Choice | None = None, stage: str = "finals") -> Findings:
    """Finals of HERE in which each choice took so many us; `bad` was refused by a gate."""
    ids = {choice: f"{i:064x}" for i, choice in enumerate(us)}
    final = Field(
        HERE,
        stage,
        {"hot": {ids[c]: [t, t, t] for c, t in us.items()} | {"torch": [9.0] * 3}, "cold": {}},
        {ids[c]: Status.OK for c in us},
        "2026-11-21",
    )
    fields = {ids[c]: {"family": c.family, "genome": c.genome} for c in us}
    refused = {ids[bad]: Status.NUMERIC} if bad else {}
    return Findings(DeviceFacts("a", "b", 1, 1), (), (final,), kernels=fields, refused=refused)


def five() -> list[Choice]:
    """Grouped wgmma kernels that HERE admits."""
    core = Space(HERE).core
    return [c for c in core if c.family == "sm90_wgmma" and c.genome["epilogue"] == "grouped"][:5]


def test_the_fastest_right_kernels_of_a_size_are_its_winners() -> None:
    choices = five()
    times = dict(zip(choices, (5.0, 1.0, 3.0, 2.0, 4.0), strict=True))
    found = winners([seen(times, bad=choices[1])])
    assert found == {(256, 512, 2048): [choices[3], choices[2], choices[4]]}
    assert len(found[256, 512, 2048]) == EACH


def test_what_reads_ahead_and_was_confirmed_follows_elsewhere_however_slow() -> None:
    core = Space(HERE).core
    twins = [twin for c in core if c.family == "sm90_splitk" and (twin := ahead(c))][:4]
    times = dict.fromkeys([*five(), *twins], 1.0) | dict.fromkeys(twins, 9.0)
    found = list_dependent_choices(
        [seen(times, bad=twins[1], stage="confirm"), seen(dict.fromkeys(twins[2:], 1.0))]
    )
    assert found == {(256, 512, 2048): [twins[0], *twins[2:]]}
    there = move_choices(found, replace(HERE, dtype="bf16"))
    assert there == [
        Choice.of(c.family, {**c.genome, "dtype": "bf16"}) for c in (twins[0], *twins[2:])
    ]
    assert move_choices(found, replace(HERE, m=128)) == []
    assert list_dependent_choices([seen(dict.fromkeys(twins, 1.0))]) == {(256, 512, 2048): []}


def test_a_table_beside_an_export_lends_its_kernels(tmp_path: Path) -> None:
    place = tmp_path / "export"
    choices = five()
    export.write(seen(dict.fromkeys(choices, 1.0)), place)
    known, behind = read_earlier([place])
    assert known == {(256, 512, 2048): choices[:EACH]} and behind == {(256, 512, 2048): []}
    both, ahead_too = read_earlier([place, COMMITTED])
    _, named = rows(read_source(COMMITTED))
    assert len(named) > 1000 and both.keys() == {*named, (256, 512, 2048)}
    assert ahead_too[64, 64, 64] == both[64, 64, 64] == named[64, 64, 64]
    assert both[256, 512, 2048][:EACH] == choices[:EACH]
    assert [*both[256, 512, 2048][EACH:]] == [
        c for c in named.get((256, 512, 2048), []) if c not in choices[:EACH]
    ]


def test_the_transposed_sizes_lend_their_kernels_turned() -> None:
    core = Space(HERE).core
    wide, *_ = (c for c in core if c.family == "sm90_splitk" and c.genome["tile_n"] == 128)
    other = turn_choice(wide)
    assert other is not None and turn_choice(other) == wide
    assert (other.genome["tile_m"], other.genome["tile_n"]) == (128, wide.genome["tile_m"])
    known = {(512, 256, 2048): [wide], (256, 512, 2048): [wide]}
    assert move_choices(known, HERE) == [wide, other]
    square = replace(HERE, m=512)
    assert move_choices({(512, 512, 2048): [wide]}, square) == [wide]


def test_a_turned_tile_of_few_rows_has_one_consumer_and_rows_and_rasters_change() -> None:
    shared = next(
        c
        for c in Space(HERE).core
        if c.family == "sm90_wgmma"
        and (c.genome["tile_m"], c.genome["tile_n"], c.genome["consumers"]) == (128, 64, 2)
    )
    other = turn_choice(shared)
    assert other is not None
    assert (other.genome["tile_m"], other.genome["tile_n"], other.genome["consumers"]) == (
        64,
        128,
        1,
    )
    assert {shared.genome["raster"], other.genome["raster"]} == {"m", "n"}
    swapped = next(c for c in Space(replace(HERE, m=8)).core if c.family == "sm90_swapab")
    assert turn_choice(swapped) is None, "tokens are no rows of weights"
    assert turn_choice(Choice.of("sm90_gemv", {"mi": 1})) is None


def chosen(kernel: SourceKernel) -> Choice:
    return Choice.of(kernel.family, FAMILIES[kernel.family].whole(kernel.genome))


def test_a_table_says_what_won_and_what_else_its_rows_name() -> None:
    source = read_source(COMMITTED)
    won, named = rows(source)
    kernels = {each.id: each for each in source.kernels}
    # A free source is of its problem alone: no search takes it anywhere else.
    of_families = {id_ for id_, each in kernels.items() if each.family != "sm90_free"}
    mine = [row for row in source.table if row.kernel in of_families]
    assert len(won) == len(mine) > 5000
    for row in mine[::97]:
        own, behind = (chosen(kernels[i or str(row.kernel)]) for i in (row.kernel, row.dependent))
        assert won[Problem(*row.key)] == {own: (row.hot.speedup, row.cold.speedup)}
        there = named[row.m, row.n, row.k]
        assert own in there and behind in there and len(set(there)) == len(there)


def test_a_kernel_with_an_epilogue_won_too_and_lends_itself_to_a_product() -> None:
    """The table's 142 rows with an epilogue lent nothing: their genomes have a gene more."""
    plain = five()[0]
    biased = Choice.of(plain.family, computed.compute_also(plain.genome, "bias"))
    known = winners([seen({biased: 1.0})])
    assert known == {(256, 512, 2048): [biased]}
    assert move_choices(known, HERE) == [plain]
    assert move_choices(known, replace(HERE, epilogue="bias")) == [biased]


def test_winners_are_asked_for_once_and_in_the_type_and_layout_at_hand() -> None:
    choices = five()[:2]
    known = winners([seen(dict.fromkeys(choices, 1.0))])
    alone = Transfer(known, None)
    assert alone.name == ONLY
    space = Space(replace(HERE, layout="nn", dtype="bf16"))
    asked = alone.ask(space, 8)
    expected = {
        Choice.of(c.family, {**c.genome, "layout": "nn", "dtype": "bf16", "epilogue": "staged"})
        for c in choices
    }
    assert {p.choice for p in asked} == expected
    alone.tell(space, [Outcome(asked[0], Status.OK, 1.0)])
    assert [p.choice for p in alone.ask(space, 8)] == [p.choice for p in asked[1:]]
    alone.tell(space, [Outcome(p, Status.LAUNCH, math.inf) for p in asked])
    assert alone.ask(space, 8) == []


def test_a_winner_with_a_gene_that_is_no_more_is_not_asked_for() -> None:
    first, second = five()[:2]
    old = Choice.of(first.family, {**first.genome, "reduce": "last"})
    alone = Transfer(winners([seen({old: 1.0, second: 2.0})]), None)
    assert [p.choice for p in alone.ask(Space(HERE), 8)] == [second]


def test_the_search_goes_on_and_is_told_of_the_winners() -> None:
    choices = five()[:1]
    after = Transfer(winners([seen({choices[0]: 1.0})]), STRATEGIES["exhaustive"](0))
    assert after.name == "exhaustive"
    space = Space(HERE)
    first = after.ask(space, 4)
    assert [p.choice for p in first] == choices
    after.tell(space, [Outcome(p, Status.OK, 1.0) for p in first])
    rest = after.ask(space, len(space.core))
    assert choices[0] not in {p.choice for p in rest}
    assert len(rest) == len(space.core) - 1


def test_what_a_problem_does_not_admit_is_not_asked_for() -> None:
    small = Problem(64, 64, 64, "nt", "f16")
    deep = next(c for c in catalogue("nt", "f16") if limits(c)[2][0] > small.k)
    assert Transfer({(64, 64, 64): [deep]}, None).ask(Space(small), 8) == []
    assert Transfer({(64, 64, 64): [deep, *Space(small).core[:1]]}, None).ask(Space(small), 8)


def test_a_winner_from_before_a_gene_came_is_the_kernel_it_is_today() -> None:
    today = next(c for c in Space(HERE).core if c.family == "sm90_splitk" and c.genome["run"] == 0)
    old = Choice.of(today.family, {g: v for g, v in today.genome.items() if g != "run"})
    assert winners([seen({old: 1.0})]) == {(256, 512, 2048): [today]}


def test_winners_are_asked_for_with_the_epilogue_at_hand() -> None:
    """What won a plain product is tried first where a bias is added to it."""
    problem = Problem(16, 512, 1024, "nt", "bf16")
    won = [choice for choice in Space(problem).core if choice.family == "sm90_swapab"][:3]
    known = {(16, 512, 1024): won}
    biased = replace(problem, epilogue="bias")
    asked = move_choices(known, biased)
    assert [computed.compute_also(c.genome, "none") for c in asked] == [dict(c.genes) for c in won]
    assert all(Space(biased).contains(choice) for choice in asked)
    assert move_choices({(16, 512, 1024): asked}, problem) == won
