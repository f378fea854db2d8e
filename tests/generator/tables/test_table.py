"""From findings to a table: a row names a kernel only when two measurements and the gate agree."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.families import computed, family
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.measure.evidence import ratio
from hgemm_packs.pack.manifest import Numerics, Row
from hgemm_packs.profiles import names
from tests.generator.found import (
    DEVICE,
    FLOOR,
    NOISE,
    OTHER,
    PROBLEM,
    THIRD,
    TRIAL,
    both,
    found,
    job,
)
from tests.generator.kernels import SWAPAB, UNALIGNED, WGMMA
from tests.generator.measured import samples


def named(source: SourceManifest) -> dict[int, str | None]:
    """K of each row's problem -> kernel."""
    return {row.k: row.kernel for row in source.table}


def only_row(some: Findings) -> Row:
    (row,) = table.source(some).table
    return row


GOOD = {"a": (10.0, 12.0)}


def test_a_confirmed_kernel_has_the_figures_of_its_confirmation() -> None:
    row = only_row(
        found(job("finals", {"a": (9.0, 11.0)}), job("confirm", GOOD, date="2026-11-22"))
    )
    assert (row.kernel, row.profile, row.pairs, row.date) == ("a", "Some GPU", 9, "2026-11-22")
    assert row.key == PROBLEM.key
    assert row.hot[:3] == (10.0, 12.0, 11.0)
    assert row.cold[:3] == (12.0, 14.0, 13.0)
    expected = ratio(samples(14.0), samples(12.0))
    assert row.cold[3:] == (round(expected.value, 4), round(expected.lcb, 4))
    assert row.cold.vs_best == 13.0 / 12.0


@pytest.mark.parametrize(
    ("ours", "wins"),
    [
        ((10.0, 12.0), True),
        ((11.94, 12.0), True),  # 1.0050 is above the floor of 1.004
        ((11.96, 12.0), False),
        ((10.0, 13.96), False),
        ((12.5, 12.0), False),
    ],
)
def test_both_protocols_of_the_confirmation_must_clear_the_floor(
    ours: tuple[float, float], wins: bool
) -> None:
    row = only_row(found(job("finals", GOOD), job("confirm", {"a": ours})))
    assert row.kernel == ("a" if wins else None)
    assert (row.hot.us, row.cold.us) == ours


def test_torch_is_the_bar_and_cublaslt_stands_beside_it() -> None:
    """Without a kernel torch runs: one that beats it is worth having, whatever a tuned cuBLASLt,
    which nobody calls, would do. What that would do is in the row all the same."""
    fast = [job(s, GOOD, torch=(9.9, 13.0)) for s in ("finals", "confirm")]
    assert only_row(found(*fast)).kernel is None
    alone = [job(s, GOOD, cublaslt=None) for s in ("finals", "confirm")]
    row = only_row(found(*alone))
    assert (row.hot.speedup, row.hot.vs_best) == (1.2, 1.2)
    tuned = [job(s, GOOD, cublaslt=(9.0, 11.0)) for s in ("finals", "confirm")]
    row = only_row(found(*tuned))
    assert (row.kernel, row.hot.speedup, row.hot.vs_best) == ("a", 1.2, 0.9)


@pytest.mark.parametrize(
    "changes",
    [{"proofs": {}}, {"refused": {"a": Status.SANITIZER}}],
    ids=["not gated", "refused"],
)
def test_without_the_numeric_gate_no_win(changes: dict[str, Any]) -> None:
    some = found(*both({"a": (10.0, 12.0), "b": (10.5, 12.5)}), **changes)
    if "refused" in changes:
        assert only_row(some).kernel == "b"
    else:
        assert only_row(some).kernel is None


def test_a_refused_kernel_serves_nowhere() -> None:
    some = found(*both({"b": (10.5, 12.5), **GOOD}), refused={"a": Status.HACK})
    assert named(table.source(some)) == {1024: "b"}
    with pytest.raises(ValueError, match="no kernel reached the finals"):
        table.source(found(*both(GOOD), refused={"a": Status.NUMERIC}))


def test_a_kernel_that_failed_on_one_problem_serves_others() -> None:
    lost = Field(OTHER, "confirm", {}, {"a": Status.LAUNCH}, "2026-11-21")
    fields = [*both(GOOD), *both({"b": (10.5, 12.5), **GOOD}, OTHER), lost]
    assert named(table.source(found(*fields))) == {1024: "a", 2048: "b"}
    assert named(table.source(found(*both(GOOD), *both(GOOD, OTHER), lost))) == {1024: "a"}


def test_a_kernel_without_times_or_with_the_wrong_values_is_none() -> None:
    half = job("finals", {"b": (9.0, 11.0)})
    half.samples["cold"].pop("b")  # type: ignore[attr-defined]
    wrong = job("finals", {"c": (9.0, 11.0)}, statuses={"c": Status.NUMERIC})
    assert only_row(found(*both({"a": (10.9, 12.9)}), half, wrong)).hot.us == 10.9


def test_finals_alone_leave_the_problem_to_cublas() -> None:
    row = only_row(found(job("finals", {"a": (8.0, 9.0)})))
    assert row.kernel is None
    assert (row.hot.us, row.cold.us) == (8.0, 9.0)


def test_the_finals_choose_and_the_confirmation_only_proves() -> None:
    """`b` is a little faster in the confirmation; that is no reason to take it."""
    fields = [
        job("finals", {"a": (9.0, 11.0), "b": (9.5, 11.5)}),
        job("confirm", {"a": (9.6, 11.6), "b": (9.4, 11.4)}),
    ]
    assert only_row(found(*fields)).kernel == "a"
    fields[1] = job("confirm", {"a": (12.0, 14.0), "b": (9.4, 11.4)})
    assert only_row(found(*fields)).kernel == "b", "the next that is proven"


def test_a_win_must_be_one_in_the_finals_too() -> None:
    assert only_row(found(job("finals", {"a": (12.5, 14.5)}), job("confirm", GOOD))).kernel is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_confirming_again_never_turns_a_loss_into_a_win(order: tuple[int, int]) -> None:
    runs = [job("confirm", GOOD), job("confirm", {"a": (12.0, 14.0)})]
    row = only_row(found(job("finals", GOOD), *(runs[i] for i in order)))
    assert (row.kernel, row.hot.us) == (None, 12.0)


LED = {"conditions": {protocol: {"led": True} for protocol in ("hot", "cold")}}


def ahead(each: Field, **bounds: tuple[float, float, float]) -> Field:
    """The job in blocks that were led; of a trial, with these bounds."""
    return replace(each, evidence={**LED, **each.evidence, **bounds})


def test_what_was_led_is_held_against_the_floor_of_what_was_led() -> None:
    """One percent ahead of torch: above a floor of 0.4% and below one of 2%."""
    close = {"a": (12.0 / 1.01, 14.0 / 1.01)}
    loose = {"hot": (1.0, 0.98, 1.0), "cold": (1.0, 1.0, 1.0)}
    trials = (replace(TRIAL, evidence=loose), ahead(TRIAL))
    for confirmed, kernel in (
        ([job("confirm", close)], None),
        ([ahead(job("confirm", close))], "a"),
        ([ahead(job("confirm", close)), job("confirm", {"a": (13.0, 15.0)})], "a"),
        ([ahead(job("confirm", {"a": (13.0, 15.0)})), job("confirm", GOOD)], None),
    ):
        source = table.source(found(job("finals", GOOD), *confirmed, trials=trials))
        assert source.policy.noise_floor == FLOOR
        assert named(source) == {1024: kernel}
    # A floor that nobody measured is the highest that somebody did.
    led_alone = found(job("finals", GOOD), job("confirm", close), trials=(ahead(TRIAL),))
    assert judge.floors(led_alone) == {True: FLOOR} and only_row(led_alone).kernel == "a"
    some = found(job("finals", GOOD), ahead(job("confirm", close)), trials=trials[:1])
    assert judge.floors(some) == {False: 0.02} and only_row(some).kernel is None


def test_pruning_sends_a_problem_to_its_next_proven_kernel_or_to_cublas() -> None:
    fields = [
        *both({"a": (9.00, 11.00), "z": (9.01, 11.01)}, PROBLEM),
        *both({"b": (9.00, 11.00), "z": (9.01, 11.01)}, OTHER),
        # Measured in the finals only: `z` is not proven here.
        job("finals", {"c": (11.94, 13.93), "z": (9.00, 11.00)}, THIRD),
        job("confirm", {"c": (11.94, 13.93)}, THIRD),
    ]
    some = found(*fields, device=DEVICE)
    by_problem = {row.key: row.kernel for row in table.source(some).table}
    assert by_problem == {PROBLEM.key: "a", OTHER.key: "b", THIRD.key: "c"}
    pruned = table.source(some, keep=0.95)
    assert {row.key: row.kernel for row in pruned.table} == {
        PROBLEM.key: "z",
        OTHER.key: "z",
        THIRD.key: None,
    }
    assert [kernel.id for kernel in pruned.kernels] == ["z"]


def test_the_document_is_of_the_device_that_measured() -> None:
    source = table.source(found(*both(GOOD)))
    (profile,) = source.device_profiles
    assert (profile.name, profile.sm_count, profile.l2_bytes) == ("Some GPU", 100, 50 << 20)
    assert profile.mem_bw_gbps == 4000.0
    assert (source.arch, source.pack.name) == ("sm_90a", names.of_machine("Some GPU"))
    assert (source.baseline.torch, source.baseline.driver) == ("2.11.0", "580.1")
    assert source.policy.noise_floor == FLOOR
    assert source.pack.created == "2026-11-21T00:00:00Z"
    assert source.kernels[0].numerics == Numerics("float64", 0.000212346, 12)


def test_a_profile_has_what_was_recorded_of_the_hardware() -> None:
    (bare,) = table.source(found(*both(GOOD))).device_profiles
    assert (bare.theoretical_mem_bw_gbps, bare.power_limit_w) == (None, None)
    known = replace(DEVICE, theoretical_mem_bw_gbps=4916.736, power_limit_w=700.0)
    (profile,) = table.source(found(*both(GOOD), device=known)).device_profiles
    assert profile == bare._replace(theoretical_mem_bw_gbps=4916.7, power_limit_w=700.0)


def test_bandwidth_that_no_copy_measured_is_the_best_of_a_product() -> None:
    device = DeviceFacts("Some GPU", "sm_90a", 100, 50 << 20)
    source = table.source(found(*both(GOOD), device=device))
    moved = 2 * (256 * 1024 + 512 * 1024 + 256 * 512)
    assert source.device_profiles[0].mem_bw_gbps == round(moved / 12.0 / 1e3, 1)
    assert source.baseline.cublas == "unknown"


def test_no_noise_no_table() -> None:
    with pytest.raises(ValueError, match="no noise records"):
        table.source(found(*both(GOOD), trials=()))


def test_the_order_of_the_findings_does_not_matter() -> None:
    fields = [
        *both({"b": (10.0, 12.0), "a": (10.0, 12.0)}),
        *both({"a": (10.0, 12.0)}, OTHER),
    ]
    forth, back = (table.source(found(*some)) for some in (fields, fields[::-1]))
    assert sorted(forth.table) == sorted(back.table)
    assert forth.kernels == back.kernels
    assert named(forth) == {1024: "a", 2048: "a"}


def test_the_floor_and_the_paired_ratio() -> None:
    assert judge.noise_floor([NOISE] * 3) == FLOOR
    # 200 deviations, 0.0001 to 0.0200 in some order: the 99th of a hundred is the 199th.
    bounds = [
        {
            "hot": (1.0, 1.0 - (200 - i) / 1e4, 1.0 + (200 - i) / 2e4),
            "cold": (1.0, 1.0 - (i + 1) / 2e4, 1.0 + (i + 1) / 1e4),
        }
        for i in range(100)
    ]
    assert judge.noise_floor(bounds) == judge.noise_floor(bounds[::-1]) == 0.0199
    arms = {"torch": [12.0, 13.0, 14.0], "ours": [10.0, 10.0, 10.0]}
    assert judge.paired_ratio(arms, "ours") == 1.3
    assert math.isclose(judge.summarise_times(arms, "ours").speedup, 1.3)
    # All arms slow down together in later blocks: pairs know, medians of each would not.
    drift = [1.0, 1.0, 1.1, 1.2, 1.3]
    times = {"torch": 12.0, "cublaslt": 11.0, "ours": 10.0}
    seen = judge.summarise_times(
        {arm: [us * d for d in drift] for arm, us in times.items()}, "ours"
    )
    assert (seen.speedup, seen.lcb) == (1.2, 1.2)
    assert math.isclose(seen.vs_best, 1.1)


def test_a_bound_within_the_noise_is_no_win_however_good_the_median() -> None:
    """Half of the pairs at 1.2, half at 0.9: the median is unsure."""
    unsure = job("confirm", GOOD)
    for protocol in ("hot", "cold"):
        arms = {"torch": (11.0,) * 9, "a": (11.0 / 1.2,) * 5 + (11.0 / 0.9,) * 4}
        unsure.samples[protocol].update(arms)  # type: ignore[attr-defined]
    row = only_row(found(job("finals", GOOD), unsure))
    assert row.kernel is None and (row.hot.speedup, row.hot.lcb) == (1.2, 0.9)


def test_kernels_that_add_in_order_are_named_only_with_their_bits_measured() -> None:
    """Twice a table named kernels of the batch-invariant mode whose bits nobody had measured."""
    kernels = {
        "in order": family("sm90_wgmma").fields(WGMMA),
        "measured": family("sm90_wgmma").fields({**WGMMA, "stages": 3}),
        "parts of K": family("sm90_swapab").fields({**SWAPAB, "split_k": 4}),
        "another family": family("sm90_unaligned").fields(UNALIGNED),
        "with a bias": family("sm90_wgmma").fields(computed.compute_also(WGMMA, "bias")),
    }
    usable = table.restrict_to_bits({"measured"}, set)
    assert usable(kernels) == kernels.keys() - {"in order"}
