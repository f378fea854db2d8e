"""What may share a table: hardware decides, and a table of another card is never used silently."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs import profiles, report, select
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.problem import DeviceInfo, Problem
from hgemm_packs.settings import settings
from tests import cards, pack_reader, packs, predictions

pytestmark = pytest.mark.usefixtures("clean_process")

SURE, UNSURE = Problem(128, 128, 256, "nn", "f16"), Problem(512, 128, 256, "nn", "f16")
TUNE = "`hgemm-packs tune` measures here; HGEMM_PACKS_SIBLINGS=1 predicts from there"


def install(patch: pytest.MonkeyPatch, *places: Path, siblings: str = "") -> None:
    patch.setenv("HGEMM_PACKS_PATH", os.pathsep.join(map(str, places)))
    patch.setenv("HGEMM_PACKS_SIBLINGS", siblings)
    settings.cache_clear()
    select.reset()


def write(place: Path, *known: DeviceProfile) -> Path:
    """The good pack, its rows of the first of these profiles."""
    kernels = packs.good_kernels()
    rows = tuple(each._replace(profile=known[0].name) for each in packs.good_rows(kernels))
    made = packs.write_good(place, device_profiles=known, table=rows)
    made.close()
    return made.path


def resolve(device: DeviceInfo, problem: Problem = packs.WIN) -> select.Selection:
    return select.resolve(problem, 0, device)


@pytest.mark.parametrize("theirs", cards.CARDS, ids=lambda each: each.name)
def test_a_table_serves_its_own_card_and_no_sibling(
    theirs: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, write(tmp_path / "pack", cards.profile(theirs)))
    served = [each.name for each in cards.CARDS if resolve(each).code == "kernel"]
    assert served == [theirs.name]
    refused = {resolve(each).code for each in cards.CARDS if each is not theirs}
    assert refused == {"profile"}


@pytest.mark.parametrize(("renamed", "own"), cards.RENAMED, ids=lambda each: each.name)
def test_a_renamed_card_gets_the_rows_of_the_profile_that_it_is(
    renamed: DeviceInfo, own: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows were looked up by the name of the device, and found by no other name."""
    others = [cards.profile(each) for each in cards.CARDS if each is not own]
    install(monkeypatch, write(tmp_path / "pack", cards.profile(own), *others))
    choice = resolve(renamed)
    assert choice.row is not None and choice.row.profile == own.name
    assert choice == resolve(own)


def test_where_the_profile_has_no_facts_the_name_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of earlier versions go on serving their card, whatever is known of it here."""
    install(monkeypatch, write(tmp_path / "pack", cards.unrecorded(cards.H200)))
    nothing = {"theoretical_mem_bw_gbps": None, "power_limit_w": None}
    assert resolve(cards.H200).code == "kernel"
    assert resolve(dataclasses.replace(cards.H200, **nothing)).code == "kernel"
    renamed, _ = cards.RENAMED[1]
    assert resolve(renamed).reasons[0].text == (
        "test-pack 1.0.0: measured on NVIDIA H200, and OEM Accelerator 141 here has another name, "
        f"and memory bandwidth and power limit cannot be compared. {TUNE}"
    )
    for field, value in (("sm_count", 120), ("l2_bytes", 30 << 20)):  # as a MIG slice has them
        assert resolve(dataclasses.replace(cards.H200, **{field: value})).code == "profile"


@pytest.mark.parametrize("field", ["theoretical_mem_bw_gbps", "power_limit_w"])
def test_a_fact_that_nobody_knows_here_makes_the_name_count(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, write(tmp_path / "pack", cards.profile(cards.H200)))
    unknown: dict[str, Any] = {field: None}
    assert resolve(dataclasses.replace(cards.H200, **unknown)).code == "kernel"
    renamed, _ = cards.RENAMED[1]
    assert resolve(renamed).code == "kernel"
    assert resolve(dataclasses.replace(renamed, **unknown)).code == "profile"


@pytest.mark.parametrize(
    ("field", "tolerance"),
    [
        ("theoretical_mem_bw_gbps", profiles.BANDWIDTH_TOLERANCE),
        ("power_limit_w", profiles.POWER_TOLERANCE),
    ],
)
def test_facts_may_differ_by_their_tolerance_and_no_more(field: str, tolerance: float) -> None:
    own = cards.profile(cards.H200)
    for step, is_same in ((0.99, True), (1.01, False)):
        for factor in (1 - step * tolerance, 1 / (1 - step * tolerance)):
            there = dataclasses.replace(cards.H200, **{field: factor * getattr(cards.H200, field)})
            assert (profiles.match([own], there) is own) == is_same, factor


def test_a_lowered_power_limit_is_another_profile_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nvidia-smi -pl 500`: nothing was measured at that limit, by nobody."""
    install(monkeypatch, write(tmp_path / "pack", cards.profile(cards.H200)))
    lowered = dataclasses.replace(cards.H200, power_limit_w=500.0)
    (reason,) = resolve(lowered).reasons
    assert (reason.code, reason.text) == (
        "profile",
        "test-pack 1.0.0: measured on NVIDIA H200, and NVIDIA H200 here has a power limit of 500 "
        f"W, not 700. {TUNE}",
    )
    own = write(tmp_path / "own", cards.profile(lowered))
    install(monkeypatch, tmp_path / "pack", own)
    for device, place in ((lowered, own), (cards.H200, tmp_path / "pack")):
        choice = resolve(device)
        assert choice.pack is not None and choice.pack.path == place


def test_every_difference_is_named() -> None:
    found = profiles.compare(cards.profile(cards.H200), cards.H100_PCIE)
    assert found.unlike == (
        "114 SMs, not 132",
        "50 MiB of L2, not 60",
        "2039 GB/s of memory bandwidth, not 4917",
    )


def test_the_nearest_profile_is_the_one_that_is_named() -> None:
    known = [cards.profile(each) for each in (cards.H20, cards.H200, cards.H100)]
    nearest = {
        each.name: profiles.find_nearest(known, each).name
        for each in (cards.H100_PCIE, cards.H100_NVL, cards.H200_NVL, cards.GH200_144)
    }
    assert nearest == {
        "NVIDIA H100 PCIe": cards.H100.name,
        "NVIDIA H100 NVL": cards.H100.name,
        "NVIDIA H200 NVL": cards.H200.name,
        "NVIDIA GH200 144G HBM3e": cards.H200.name,
    }


def test_of_two_profiles_that_fit_the_one_of_the_name_counts() -> None:
    first, second = cards.profile(cards.RENAMED[1][0]), cards.profile(cards.H200)
    assert profiles.match([first, second], cards.H200) is second
    assert profiles.match([second, first], cards.H200) is second
    other = dataclasses.replace(cards.H200, name="another")
    assert profiles.match([first, second], other) is first


def test_the_reader_of_the_page_knows_the_same_profiles() -> None:
    devices = [*cards.CARDS, *(each for each, _ in cards.RENAMED)]
    devices += [dataclasses.replace(each, power_limit_w=None) for each in devices]
    known = [make(each) for each in cards.CARDS for make in (cards.profile, cards.unrecorded)]
    same = 0
    for device, own in itertools.product(devices, known):
        facts = {
            each: getattr(device, each)
            for each in own._fields
            if each != "mem_bw_gbps" and getattr(device, each) is not None
        }
        written = {name: value for name, value in own._asdict().items() if value is not None}
        ours = not profiles.compare(own, device).unlike
        assert pack_reader.is_profile(written, facts) == ours, (device, own)
        same += ours
    assert same == len(cards.CARDS) * 4 + len(cards.RENAMED)


@pytest.fixture
def predicting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pack of tests/predictions.py, of the H200, installed."""
    pack = predictions.write(tmp_path / "predicting")
    pack.close()
    install(monkeypatch, pack.path)
    return pack.path


def test_a_sibling_gets_nothing_unless_it_is_asked_for(predicting: Path) -> None:
    for problem in (packs.WIN, SURE):
        choice = resolve(cards.GH200, problem)
        assert (choice.kernel, choice.code) == (None, "profile")
    said = report.explain_problem(packs.WIN, device=cards.GH200)
    assert TUNE in said and "1.120x" not in said and "nearest" not in said


def test_a_sibling_that_asks_gets_predictions_marked_as_such_and_no_row(
    predicting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, predicting, siblings="1")
    choice = resolve(cards.GH200, SURE)
    assert choice.kernel is not None and choice.row is None
    assert (choice.code, choice.expected_on) == ("predicted", "NVIDIA H200")
    assert resolve(cards.H200, SURE).expected_on is None
    assert report.explain_problem(SURE, device=cards.GH200).splitlines()[2:] == [
        "runs on   k_tma2, predicted: 2.000x torch expected on NVIDIA H200, another card",
        "          no  profile: test-pack 1.0.0: measured on NVIDIA H200, and NVIDIA GH200 480GB "
        f"here has 50 MiB of L2, not 60. {TUNE}",
        "          yes predicted: test-pack 1.0.0, for NVIDIA H200 and not for this GPU: k_tma2, "
        "expected 2.000x torch, at least 2.000x; never measured",
        "nearest   no M was measured with N = 128, K = 256",
    ]
    unsure = resolve(cards.GH200, UNSURE)
    assert (unsure.kernel, unsure.code) == (None, "not_measured")
    # A measured win of the other card is no more than a problem to be predicted.
    won = resolve(cards.GH200, packs.WIN)
    assert won.row is None and won.code == "predicted"
    said = report.explain_problem(packs.WIN, device=cards.GH200)
    assert "1.120x" not in said and "M = 256 was measured" not in said


def test_a_sibling_gets_no_prediction_where_these_are_off(
    predicting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_PREDICT", "0")
    install(monkeypatch, predicting, siblings="1")
    assert resolve(cards.GH200, SURE).code == "profile"


def test_another_architecture_is_no_sibling(
    predicting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, predicting, siblings="1")
    assert resolve(dataclasses.replace(cards.GH200, arch="sm_100a"), SURE).code == "arch"
    assert resolve(dataclasses.replace(cards.GH200, driver=12090), SURE).code == "driver"


def test_a_pack_of_the_card_itself_comes_before_predictions_for_another(
    predicting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = predictions.write(tmp_path / "own", margin=1.5)
    own.close()
    path = own.path / "manifest.json"
    path.write_text(path.read_text().replace("NVIDIA H200", cards.GH200.name))
    path.write_text(path.read_text().replace('"l2_bytes":62914560', '"l2_bytes":52428800'))
    install(monkeypatch, predicting, own.path, siblings="1")
    choice = resolve(cards.GH200, SURE)
    assert choice.pack is not None and choice.pack.path == own.path
    assert choice.expected_on is None


def predict_for_some(place: Path, *known: DeviceInfo) -> Path:
    """A pack that was measured on these cards, and predicts for the H200 alone."""
    kernels = packs.good_kernels()
    source = packs.source(
        kernels,
        packs.good_rows(kernels),
        predictors=(predictions.of(kernels),),
        device_profiles=tuple(map(cards.profile, known)),
    )
    made = write_pack(place, source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
    made.close()
    return made.path


@pytest.mark.parametrize("card", [cards.H100, cards.GH200], ids=lambda each: each.name)
def test_a_card_without_a_predictor_asks_that_of_another_card(
    card: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The H100 got the H200's predictions until a pack had rows of its own; the GH200, which is
    nearer to the H100, until then too. What is measured on the card still comes first."""
    place = predict_for_some(tmp_path / "two", cards.H100, cards.H200)
    install(monkeypatch, place)
    assert resolve(card, SURE).kernel is None
    install(monkeypatch, place, siblings="1")
    choice = resolve(card, SURE)
    assert (choice.code, choice.expected_on) == ("predicted", "NVIDIA H200")
    assert choice.kernel is not None and choice.kernel.name == "k_tma2"
    assert resolve(card, UNSURE).kernel is None
    assert resolve(cards.H200, SURE).expected_on is None, "its own predictor"
    # Where its own is not sure, no other card's is asked.
    assert [r.code for r in resolve(cards.H200, UNSURE).reasons] == ["not_measured"] * 2


def test_the_batch_invariant_mode_asks_for_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, write(tmp_path / "pack", cards.profile(cards.H200)))
    for device in (cards.H200, cards.GH200):
        choice = select.resolve(packs.WIN, 0, device, invariant=True)
        assert choice.code == "no_invariant_kernel", "the pack has none, whatever the card"
