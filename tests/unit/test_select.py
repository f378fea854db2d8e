"""Every way in which a problem gets a kernel or a fallback, with the reason."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs import select
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from tests import packs
from tests.abuse.builder import edit, put

pytestmark = pytest.mark.usefixtures("clean_process")


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The good pack, installed, and in it a win in the noise, which the writer would refuse."""
    pack = packs.write_good(tmp_path / "good")
    kernel = pack.manifest.kernels[0].id
    noisy = packs.row(packs.NOISE, None, lcb=1.02)._replace(kernel=kernel)
    raw = noisy._asdict() | {"hot": noisy.hot._asdict(), "cold": noisy.cold._asdict()}
    del raw["dependent"], raw["base"], raw["packed"], raw["batches"]
    edit(pack.path, lambda document: document["table"].insert(1, raw))
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    return pack.path


def resolve(problem: Problem, **device: Any) -> select.Selection:
    return select.resolve(problem, 0, dataclasses.replace(packs.H200, **device))


def test_a_measured_win_gets_its_kernel(good: Path) -> None:
    choice = resolve(packs.WIN)
    assert choice.code == "kernel"
    assert choice.kernel is not None and choice.row is not None and choice.pack is not None
    assert (choice.kernel.name, choice.pack.path) == ("k_tma2", good)
    assert choice.row.key == packs.WIN.key
    assert [(reason.code, reason.accepted) for reason in choice.reasons] == [("kernel", True)]
    assert "1.120x hot" in choice.reasons[0].text
    small = resolve(packs.WIN_SMALL).kernel
    assert small is not None and small.name == "k_direct"


@pytest.mark.parametrize(
    ("problem", "device", "code"),
    [
        (packs.CUBLAS, {}, "cublas_measured_better"),
        (packs.NOISE, {}, "below_noise_floor"),
        (dataclasses.replace(packs.WIN, m=264), {}, "not_measured"),
        (dataclasses.replace(packs.WIN, layout="nt"), {}, "not_measured"),
        (dataclasses.replace(packs.WIN, out_dtype="bf16"), {}, "not_measured"),
        (Problem(0, 0, 0, "nn", "f16"), {}, "not_measured"),
        (dataclasses.replace(packs.WIN, base=(8, 8, 8)), {}, "unaligned"),
        (dataclasses.replace(packs.WIN, packed=False), {}, "strided"),
        (packs.WIN, {"arch": "sm_90"}, "arch"),
        (packs.WIN, {"arch": "sm_100a"}, "arch"),
        (packs.WIN, {"driver": 12090}, "driver"),
        (packs.WIN, {"name": "NVIDIA H100 80GB HBM3"}, "profile"),
        (packs.WIN, {"sm_count": 78}, "profile"),
        (packs.WIN, {"l2_bytes": 50 << 20}, "profile"),
    ],
)
def test_anything_less_is_a_fallback(
    good: Path, problem: Problem, device: dict[str, Any], code: str
) -> None:
    choice = resolve(problem, **device)
    assert (choice.kernel, choice.row, choice.pack) == (None, None, None)
    assert choice.code == code
    assert not any(reason.accepted for reason in choice.reasons)


def test_no_pack() -> None:
    assert resolve(packs.WIN).code == "no_pack"


def test_a_newer_driver_is_welcome(good: Path) -> None:
    assert resolve(packs.WIN, driver=14000).code == "kernel"


def test_a_row_counts_only_on_the_profile_that_it_was_measured_on(good: Path) -> None:
    """Two profiles in one pack: the H100's device must not get the H200's row."""
    h100 = {"name": "NVIDIA H100 PCIe", "sm_count": 114, "l2_bytes": 50 << 20, "mem_bw_gbps": 2000}
    edit(good, lambda document: document["device_profiles"].append(h100))
    there = {"name": "NVIDIA H100 PCIe", "sm_count": 114, "l2_bytes": 50 << 20}
    assert resolve(packs.WIN, **there).code == "not_measured"
    assert resolve(packs.WIN).code == "kernel"


def test_packs_are_asked_in_order(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = packs.good_kernels()
    rows = [packs.row(packs.WIN, kernels[2]), packs.row(packs.WIN_SMALL, None)]
    first = packs.write_pack(
        tmp_path / "first", packs.source(kernels, rows), kernels, generator_info=packs.GENERATOR
    )
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{first.path}{os.pathsep}{good}")
    win, small = resolve(packs.WIN), resolve(packs.WIN_SMALL)
    assert win.kernel is not None and win.kernel.name == "k_tma3"
    assert small.kernel is not None and small.kernel.name == "k_direct"
    assert [reason.code for reason in small.reasons] == ["cublas_measured_better", "kernel"]
    assert resolve(packs.CUBLAS).code == "cublas_measured_better"


def test_a_quarantined_kernel_is_passed_over_for_the_next_pack(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resolve(packs.WIN).kernel
    assert before is not None
    select.quarantine(before, "the driver refused it")
    after = resolve(packs.WIN)
    assert (after.kernel, after.code) == (None, "quarantined")
    assert "the driver refused it" in after.reasons[0].text
    assert resolve(packs.WIN_SMALL).code == "kernel"

    kernels = packs.good_kernels()
    second = packs.write_pack(
        tmp_path / "second",
        packs.source(kernels, [packs.row(packs.WIN, kernels[2])]),
        kernels,
        generator_info=packs.GENERATOR,
    )
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{good}{os.pathsep}{second.path}")
    settings.cache_clear()
    select.reset()
    assert resolve(packs.WIN).kernel == before, "reset forgets the quarantine"
    select.quarantine(before, "the driver refused it")
    beside = resolve(packs.WIN)
    assert beside.kernel is not None and beside.kernel.name == "k_tma3"


def test_a_kernel_that_failed_without_a_word_is_kept_out(good: Path) -> None:
    """Chosen again it would fail again, without end."""
    choice = resolve(packs.WIN)
    assert choice.kernel is not None
    assert select.exclusion_reason(choice.kernel, dependent=True) is None
    select.quarantine_dependent(choice.kernel, "")
    assert select.exclusion_reason(choice.kernel, dependent=True) == ""
    assert select.exclusion_reason(choice.kernel) is None
    select.quarantine(choice.kernel, "")
    assert select.exclusion_reason(choice.kernel) == "" and resolve(packs.WIN).code == "quarantined"


def test_a_row_names_the_kernel_of_dependent_launches_too(good: Path) -> None:
    """The row's own is chosen whatever becomes of the other."""
    direct, tma2, tma3 = (each.entry_fields["id"] for each in packs.good_kernels())
    for behind in (direct, tma2):  # another, and the row's own
        put(behind, "table", 2, "dependent")(good)  # the row of WIN
        select.reset()
        choice, small = resolve(packs.WIN), resolve(packs.WIN_SMALL)
        assert choice.kernel is not None and choice.kernel.id == tma2 and choice.pack is not None
        assert choice.dependent is not None and choice.dependent.id == behind
        assert small.kernel is not None and small.kernel.id == direct and small.dependent is None
        by_id = choice.pack.manifest.by_id
        select.quarantine(by_id[tma3], "another")
        assert resolve(packs.WIN) == choice
        select.quarantine_dependent(by_id[behind], "it does not load")
        without = resolve(packs.WIN)
        assert (without.kernel, without.row) == (choice.kernel, choice.row)
        assert without.code == "kernel" and without.dependent is None
        assert [reason.code for reason in without.reasons] == ["kernel", "quarantined"]
        assert "it does not load" in without.reasons[1].text
        assert resolve(packs.WIN_SMALL) == small, "it is still right for ordinary launches"
        select.quarantine(by_id[behind], "wrong values")
        assert resolve(packs.WIN).code == ("kernel" if behind == direct else "quarantined")
        assert resolve(packs.WIN).dependent is None
        assert (resolve(packs.WIN_SMALL).kernel is None) == (behind == direct)


def test_the_device_is_asked_for_only_when_it_matters(good: Path) -> None:
    """What no kernel of the batch-invariant mode takes is refused before a driver is touched."""
    odd = dataclasses.replace(packs.WIN, base=(4, 4, 4))
    assert select.resolve(odd, 99, invariant=True).code == "unaligned"
