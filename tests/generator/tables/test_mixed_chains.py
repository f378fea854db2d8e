"""Which kernel a row has for dependent launch: by chains with other products between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hgemm_packs.generator.tables import mixed_chains
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem
from tests.generator.called import FORMER, NAMES, A, B, C, identity, row, source
from tests.generator.called import line as called

ONE = Problem(64, 64, 64, "nn", "f16")
LARGE = Problem(4096, 4096, 1024, "nn", "f16")
assert 2.0 * LARGE.m * LARGE.n * LARGE.k >= mixed_chains.LARGE_FLOP


def line(
    gains: Mapping[str, tuple[float, float]],
    problem: Problem = ONE,
    *,
    own: str = A,
    cubins: Mapping[str, str] = {},
    wrong: Sequence[str] = (),
    **changes: Any,
) -> dict[str, Any]:
    """Of candidates by id: how much faster than the own kernel launched plainly, in the regime and
    among all; of other `cubins` where those say so."""

    def samples(i: int) -> dict[str, list[float]]:
        ours = {NAMES[id_]: [90.0 / each[i]] * 3 for id_, each in gains.items()}
        return {"torch": [200.0] * 3, "plain": [90.0] * 3, **ours}

    return {
        "problem": [*problem.key[:5]],
        "kernel": NAMES[own],
        "identities": {NAMES[id_]: identity(cubins.get(id_, id_)) for id_ in (own, *gains)},
        "wrong": list(wrong),
        "regime": samples(0),
        "all": samples(1),
        **changes,
    }


def chosen(
    *lines: dict[str, Any], public: Sequence[dict[str, Any]] = (), of: Row | None = None
) -> str | None:
    """The kernel that the row has for dependent launch then."""
    rows = (of or row(ONE, A, A), row(replace(ONE, m=512), C, B))
    found = mixed_chains.choose_mixed_kernels(source(*rows), lines, public)
    assert found.table[1:] == rows[1:]
    assert found.table[0]._replace(dependent=rows[0].dependent) == rows[0]
    used = {id_ for each in found.table for id_ in (each.kernel, each.dependent)}
    assert {kernel.id for kernel in found.kernels} == used - {None}
    return found.table[0].dependent


def test_gains_are_medians_of_pairs_over_the_own_kernel() -> None:
    one = line({A: (1.0, 1.0), B: (1.2, 1.25)})
    one["regime"][NAMES[A]] = [45.0, 30.0, 90.0]
    want = {NAMES[A]: 2.0**0.5, NAMES[B]: (1.2 * 1.25) ** 0.5}
    assert mixed_chains.gains(one) == pytest.approx(want)


def test_the_best_in_both_kinds_of_chain() -> None:
    assert chosen(line({A: (1.1, 1.1), B: (1.2, 1.2), C: (1.05, 1.05)})) == B
    assert chosen(line({A: (1.3, 1.0), B: (1.0, 1.4), C: (1.2, 1.2)})) == C
    again = line({A: (1.3, 1.3), B: (1.2, 1.2)})  # the last of a problem counts
    assert chosen(line({B: (1.4, 1.4)}), again) == A


def test_what_loses_in_one_kind_of_chain_is_not_chosen() -> None:
    assert chosen(line({A: (1.1, 1.1), B: (2.0, 0.98), C: (0.98, 2.0)})) == A
    assert chosen(line({A: (1.1, 1.1), B: (2.0, 0.991)})) == B


def test_what_was_wrong_is_not_chosen() -> None:
    of = {A: (1.1, 1.1), B: (1.2, 1.2)}
    assert chosen(line(of, wrong=[f"all: {NAMES[B]}"])) == A
    assert chosen(line(of, wrong=[f"all: {NAMES[C]}", "regime: torch"])) == B


def test_noise_is_no_gain() -> None:
    assert chosen(line({A: (1.004, 1.004), B: (1.0, 1.0)})) is None
    assert chosen(line({A: (1.006, 1.006), B: (1.0, 1.0)})) == A
    assert chosen(line({})) is None


def test_another_cubin_of_the_name_is_another_kernel() -> None:
    of = {A: (1.1, 1.1), B: (1.2, 1.2)}
    assert chosen(line(of, cubins={B: FORMER[B]})) == A
    unknown = line(of)
    del unknown["identities"][NAMES[B]]
    assert chosen(unknown) == A
    gone = line(of)
    gone["regime"]["gone"] = gone["all"]["gone"] = [1.0] * 3
    assert chosen(gone) == B


def test_what_public_lines_had_slow_gives_way_to_the_next_best() -> None:
    one = line({A: (1.1, 1.1), B: (1.3, 1.3), C: (1.2, 1.2)})
    assert chosen(one, public=[called(ONE, [A, B])]) == B
    slow = [called(ONE, [A, B], {"8x1": 0.98})]
    assert chosen(one, public=slow) == C
    slow.append(called(ONE, [A, C], wrong=["2x2"]))
    assert chosen(one, public=slow) == A
    slow.append(called(ONE, [A, A], {"all": 0.5}))
    assert chosen(one, public=slow) is None
    others = [called(ONE, [C, B], {"8x1": 0.5}), called(ONE, [A, FORMER[B]], {"8x1": 0.5})]
    assert chosen(one, public=[*others, called(LARGE, [A, B], {"8x1": 0.5})]) == B


def test_rows_without_a_line_of_theirs_keep_what_they_have() -> None:
    others = (
        line({B: (1.2, 1.2)}, replace(ONE, layout="nt")),
        line({B: (1.2, 1.2)}, own=C),
        line({B: (1.2, 1.2)}, error="no"),
        {"group": []},
    )
    assert chosen(*others) == A
    assert chosen(*others, of=row(ONE, A)) is None
    assert chosen(line({B: (1.2, 1.2)}), of=row(ONE, None)) is None


def test_large_ones_have_none_unless_they_were_measured() -> None:
    large = row(LARGE, A, B)
    assert chosen(of=large) is None
    assert chosen(line({B: (1.2, 1.2)}, LARGE, own=C), of=large) is None
    assert chosen(line({B: (1.2, 1.2)}, LARGE), of=large) == B
