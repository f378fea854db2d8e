"""From records to the committed table: nothing is a win that two measurements do not prove."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.evidence import ratio
from hgemm_packs.generator import assemble
from hgemm_packs.generator.assemble import error_bound
from hgemm_packs.generator.records import Record, read_records
from hgemm_packs.generator.table import timing
from hgemm_packs.manifest import Row
from hgemm_packs.problem import Problem

from .measured import PROBLEM, key, measured, noise, samples

DATE = "2026-11-21"
FLOOR = 0.004  # of `noise()`
PROVEN = {"k_best", "k_second"}


def one_row(
    selected: Record, confirmed: list[Record], proven: set[str] = PROVEN
) -> tuple[Row, set[str]]:
    rows, floor, used = assemble.table([selected], [*confirmed, noise()], proven, DATE)
    assert floor == FLOOR
    (row,) = rows
    return row, used


# --- records --------------------------------------------------------------------------------------


def write(path: Path, *records: Record, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    whole, torn = [measured(), noise()], json.dumps(measured(error=1.0))
    for cut in (1, 20, len(torn) - 1):
        path = write(tmp_path / "a.jsonl", *whole, tail=torn[:cut])
        assert read_records([path]) == whole


def test_records_are_read_from_several_files_gzipped_or_not(tmp_path: Path) -> None:
    first, second, third = (measured(error=error) for error in (1e-4, math.inf, 3e-4))
    plain = write(tmp_path / "b.jsonl", first)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / "c", second, third).read_bytes()))
    assert read_records([packed, plain]) == [second, third, first]
    assert read_records([]) == []


# --- the noise floor ------------------------------------------------------------------------------


def test_the_noise_floor_is_the_99th_percentile_of_both_protocols() -> None:
    def record(hot: float, cold: float) -> Record:
        return {
            "noise": key(PROBLEM),
            "hot": [1.0, 1.0 - hot, 1.0 + hot / 2],
            "cold": [1.0, 1.0 - cold / 2, 1.0 + cold],
        }

    # 200 deviations, 0.0001 to 0.0200 in some order: the 99th of a hundred is the 199th.
    records = [record((200 - i) / 1e4, (i + 1) / 1e4) for i in range(100)]

    def floor(confirmed: list[Record]) -> float:
        return assemble.table([], confirmed, PROVEN, DATE)[1]

    assert floor(records) == 0.0199
    assert floor(records[::-1]) == 0.0199
    assert floor([record(0.003, 0.001)]) == 0.003
    assert floor([measured(), record(0.001, 0.002)]) == 0.002


def test_no_noise_no_table() -> None:
    with pytest.raises(ValueError, match="no noise records"):
        assemble.table([measured()], [measured()], PROVEN, DATE)


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_says_what_was_measured() -> None:
    record = measured(hot=(12.0, 11.0, 10.0), cold=(13.0, None, 12.0), count=21)
    row, used = one_row(record, [record])
    assert row.key == PROBLEM.key
    assert (row.kernel, used) == ("k_best", {"k_best"})
    assert (row.pairs, row.date, row.profile) == (21, DATE, "NVIDIA H200")
    assert row.hot[:3] == pytest.approx((10.0, 12.0, 11.0), rel=1e-4)
    assert row.cold[:3] == pytest.approx((12.0, 13.0, 13.0), rel=1e-4), "no cuBLASLt: torch's"
    expected = ratio(samples(12.0, 21), samples(10.0, 21))
    assert row.hot[3:] == (round(expected.value, 4), round(expected.lcb, 4))
    assert row.cold.speedup == pytest.approx(13 / 12, rel=1e-4)


def test_the_ratio_is_paired_and_against_torch() -> None:
    """All arms slow down together in later blocks: pairs know, medians of each would not."""
    drift = [1.0, 1.0, 1.1, 1.2, 1.3]
    arms = {
        "torch": [12.0 * d for d in drift],
        "cublaslt": [11.0 * d for d in drift],
        "ours": [10.0 * d for d in drift],
    }
    found = timing(arms, "ours")
    assert (found.speedup, found.lcb) == (1.2, 1.2)
    assert found.vs_best == pytest.approx(1.1)


def test_the_error_bound_is_that_of_rounding_to_the_output_type() -> None:
    """8 bits of significand against 11, and a quarter on top."""
    assert error_bound(PROBLEM) == pytest.approx(2.62e-4, rel=0.01)
    assert error_bound(Problem(8, 8, 8, "nt", "bf16")) == pytest.approx(2.12e-3, rel=0.01)


#: A selection that looks like a win by far, whatever the confirmation then says.
SELECTED = measured(hot=(12.0, 11.0, 8.0), cold=(14.0, 13.0, 9.0))


@pytest.mark.parametrize(
    ("changes", "wins"),
    [
        ({}, True),
        ({"hot": (12.0, 13.0, 12.0)}, False),  # no faster hot
        ({"cold": (14.0, 15.0, 14.0)}, False),  # no faster cold
        ({"hot": (11.0, 12.0, 10.95)}, True),  # 1.0046 is above the floor of 1.004
        ({"hot": (11.0, 12.0, 10.96)}, False),  # 1.0036 is faster, and within the noise
        ({"cold": (13.0, 14.0, 12.96)}, False),
        ({"hot": (12.0, 10.0, 11.0)}, True),  # what runs without a kernel is torch
        ({"error": error_bound(PROBLEM)}, True),
        ({"error": error_bound(PROBLEM) * 1.01}, False),
        ({"error": math.inf}, False),
        ({"error": math.nan}, False),
        ({"chosen": "k_unproven"}, False),  # the numeric gate has not passed it
    ],
    ids=str,
)
def test_a_win_clears_both_protocols_the_error_bound_and_the_gate(
    changes: dict[str, Any], wins: bool
) -> None:
    second = measured(**{"hot": (12.0, 11.0, 10.0), "cold": (14.0, 13.0, 12.0)} | changes)
    row, used = one_row(SELECTED, [second])
    assert (row.kernel, used) == (("k_best", {"k_best"}) if wins else (None, set()))
    # Won or lost, the figures are those of the confirmation.
    ours = {p: second["finals"][p][second["chosen"]] for p in ("hot", "cold")}
    assert row.hot.us == pytest.approx(sorted(ours["hot"])[4], rel=1e-4)
    assert row.cold.us == pytest.approx(sorted(ours["cold"])[4], rel=1e-4)


def test_a_bound_within_the_noise_is_no_win_however_good_the_median() -> None:
    """Half of the pairs at 1.2, half at 0.9: the median is unsure."""
    second = measured()
    for protocol in ("hot", "cold"):
        second["finals"][protocol]["k_best"] = [11.0 / 1.2] * 5 + [11.0 / 0.9] * 4
        second["finals"][protocol]["torch"] = [11.0] * 9
    row, _ = one_row(SELECTED, [second])
    assert row.kernel is None
    assert (row.hot.speedup, row.hot.lcb) == (1.2, 0.9)


def test_the_unconfirmed_is_cublas_with_the_figures_of_the_selection() -> None:
    failed = {"problem": key(PROBLEM), "failed": "RuntimeError: no"}
    other = measured(Problem(64, 64, 64, "nt", "f16"))
    for confirmed in ([], [failed], [other]):
        row, used = one_row(SELECTED, confirmed)
        assert (row.kernel, used) == (None, set())
        assert row.hot.us == pytest.approx(8.0, rel=1e-4)
        assert row.hot.lcb > 1 + FLOOR, "it looked like a win"


def test_the_confirmed_kernel_is_the_one_in_the_row() -> None:
    """Another selection may have run since: what was confirmed is what is named."""
    row, used = one_row(SELECTED, [measured(chosen="k_second")])
    assert (row.kernel, used) == ("k_second", {"k_second"})


def test_a_problem_of_grid_and_layers_is_one_row() -> None:
    again = measured(hot=(12.0, 11.0, 11.5))
    rows, _, _ = assemble.table([SELECTED, again], [noise()], PROVEN, DATE)
    assert [row.key for row in rows] == [PROBLEM.key]
    assert rows[0].hot.us == pytest.approx(11.5, rel=1e-4)


def test_problems_without_a_candidate_have_no_row() -> None:
    without = {"problem": key(PROBLEM), "torch_us": 3.0, "screen": {}, "finals": {}}
    failed = {"problem": key(PROBLEM), "failed": "RuntimeError: no"}
    assert assemble.table([without, failed], [noise()], PROVEN, DATE)[0] == []
