"""The bench of a GPU, as far as the stand-in driver goes: kernels that fail are left out."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from hgemm_packs import select, selftest
from hgemm_packs.errors import TuneError
from hgemm_packs.measure import timing
from hgemm_packs.pack.folder import BLOB_NAME, Pack
from hgemm_packs.settings import settings
from hgemm_packs.tuning import bench, journal
from hgemm_packs.tuning.bench import GpuBench
from hgemm_packs.tuning.candidates import Candidate, Candidates
from tests import fake_driver, packs
from tests.cpu.call.served_packs import install
from tests.cpu.tuning import world
from tests.cpu.tuning.world import FIRST, SECOND


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device answers: there is no CUDA here to be asked."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)


def named(pack: Pack) -> dict[str, Candidate]:
    return {each.entry.name: each for each in Candidates([pack]).rank(FIRST)}


def test_right_kernels_become_arms(pack: Pack) -> None:
    arms = GpuBench(0)._prove(FIRST, list(named(pack).values()))
    assert len(arms) == 4
    a, b = torch.ones(64, 128).half(), torch.ones(128, 64).half()
    for arm in arms.values():
        c = torch.empty(64, 64).half()
        arm(a, b, c)
        assert torch.equal(c, torch.full((64, 64), 128.0).half())


def test_a_wrong_kernel_is_left_out_here_and_in_later_processes(
    pack: Pack, bare: fake_driver.Started, tmp_path: Path
) -> None:
    each = named(pack)["best"]
    bare.control.noop = 1
    assert GpuBench(0)._prove(FIRST, [each]) == {}
    bare.control.noop = 0
    assert select.exclusion_reason(each.entry) is not None
    select.reset()
    assert "self-test on" in str(_after_finding(each))
    assert "best" not in named(pack)


def _after_finding(each: Candidate) -> str | None:
    select.find_packs()
    return select.exclusion_reason(each.entry)


def test_a_launch_that_fails_leaves_the_kernel_out(pack: Pack, bare: fake_driver.Started) -> None:
    bare.control.fail_launches = 1
    assert GpuBench(0)._prove(FIRST, [named(pack)["best"]]) == {}
    bare.control.fail_launches = 0
    assert "best" not in named(pack)


def test_a_kernel_that_takes_the_device_with_it_is_never_tried_again(
    pack: Pack, bare: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(device: object = None) -> None:
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    bare.control.fail_launches = 1
    each = named(pack)["best"]
    with pytest.raises(TuneError, match="best on 64x64x128 nn f16 has taken the device with it"):
        GpuBench(0)._prove(FIRST, [each])
    select.reset()
    assert "lost the device" in str(_after_finding(each))
    assert len(selftest.read_quarantine(settings().cache)) == 1


def test_a_cubin_that_has_changed_takes_its_pack_out(pack: Pack) -> None:
    each = named(select.find_packs().packs[0])
    data = bytearray((pack.path / BLOB_NAME).read_bytes())
    data[each["best"].entry.offset + 100] ^= 1
    (pack.path / BLOB_NAME).write_bytes(data)
    proven = GpuBench(0)._prove(FIRST, list(each.values()))
    assert len(proven) == 3
    assert [refused.error.code for refused in select.find_packs().refused] == ["kernel_hash"]


def test_candidates_come_by_how_near_their_wins_are(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dict(zip(world.NAMES, world.kernels(), strict=True))
    far = packs.Problem(4096, 4096, 4096, "nn", "f16")
    rows = [packs.row(far, made["slow"]), packs.row(SECOND, made["other"])]
    pack = world.write(tmp_path / "pack", rows=rows)
    install(monkeypatch, pack.path)
    found = Candidates([pack])
    assert [each.entry.name for each in found.rank(FIRST)][:2] == ["other", "slow"]
    assert len(found.rank(FIRST)) == 4
    assert found.takes(FIRST) and not found.takes(packs.Problem(64, 63, 128, "nn", "f16"))


def test_twins_that_only_a_dependent_launch_tells_apart_are_timed_once(tmp_path: Path) -> None:
    made = [
        packs.built(
            f"k{place}",
            "tma2_v1",
            cubin=fake_driver.image(f"k{place}", "tma2_v1"),
            genome={"tile_m": 64, "reads_ahead": bool(place)},
            reads_ahead=bool(place),
        )
        for place in range(2)
    ]
    from hgemm_packs.generator.compile.pack_writer import write_pack

    pack = write_pack(
        tmp_path / "pack",
        packs.source(made, []),
        made,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    assert [each.entry.name for each in Candidates([pack]).rank(FIRST)] == ["k0"]


class FakeReplay:
    """A graph whose time follows from the kernel."""

    us_of: ClassVar[dict[object, float]] = {}
    made: ClassVar[list[object]] = []
    queued: ClassVar[list[object]] = []

    def __init__(self, arm: object, sets: object, calls: int) -> None:
        self.arm = arm
        assert calls == 7
        FakeReplay.made.append(arm)

    def us(self) -> float:
        return FakeReplay.us_of.get(self.arm, 10.0)

    def free(self) -> None: ...


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> type[FakeReplay]:
    """Replays of made-up times, on a stage without a stream."""
    at = SimpleNamespace(
        active=contextlib.nullcontext, stream=SimpleNamespace(synchronize=lambda: None)
    )
    how = timing.TimingPlan((), 7, flushed=False)
    monkeypatch.setattr(bench, "stage", lambda index: at)
    monkeypatch.setattr(bench, "Replay", FakeReplay)
    monkeypatch.setattr(
        bench, "queue_block", lambda replays, flushed, at: FakeReplay.queued.append(replays[0].arm)
    )
    monkeypatch.setattr(timing, "plan", lambda *arguments, **options: how)
    for each in (FakeReplay.us_of, FakeReplay.made, FakeReplay.queued):
        each.clear()
    return FakeReplay


def test_a_screen_times_a_hopeless_kernel_once_and_others_some_times(
    pack: Pack, timed: type[FakeReplay]
) -> None:
    each, gpu = named(pack), GpuBench(0)
    names = list(each)
    for name, us in zip(names, (9.0, 14.0, 13.0, 8.0), strict=True):
        gpu._try(each[name], FIRST, lambda arm, us=us: timed.us_of.__setitem__(arm, us))
    found = gpu.screen(FIRST, [each[name] for name in names], math.inf)
    assert found.torch_us == 10.0
    assert [found.times[each[name].entry.id] for name in names] == [9.0, 14.0, 13.0, 8.0]
    arms = [gpu._arms[each[name].entry.id] for name in names]
    assert [timed.queued.count(arm) for arm in arms] == [3, 1, 3, 3]  # 13.5 is half as much again


def test_a_screen_ends_in_time_but_tries_one(pack: Pack, timed: type[FakeReplay]) -> None:
    ranked = list(named(pack).values())
    assert len(GpuBench(0).screen(FIRST, ranked, time.monotonic() - 1.0).times) == 1


def test_finals_and_confirmations_are_of_proven_kernels_beside_torch(
    pack: Pack, bare: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def compare(arms, problem, **options):  # type: ignore[no-untyped-def]
        asked.append((list(arms), options["protocol"], options["blocks"], options["seed"]))
        return timing.Comparison({arm: [1.0] for arm in arms}, 3, 1, False)

    monkeypatch.setattr(timing, "compare", compare)
    each = named(pack)
    ids = {name: one.entry.id for name, one in each.items()}
    done = GpuBench(0).finals(FIRST, [each["best"], each["good"]], 5)
    assert done is not None and set(done.samples) == {"hot", "cold"}
    assert done.conditions["cold"] | {} == {
        **{"calls": 3, "sets": 1, "flushed": False, "repeated": 0, "led": True},
        **{"sm_mhz": [], "power_w": []},
    }
    GpuBench(0).confirm(FIRST, each["best"], 6)
    three = [journal.TORCH, ids["best"], ids["good"]]
    again = [journal.TORCH, journal.AGAIN, ids["best"]]
    assert asked == [
        *((three, protocol, bench.FINALS_BLOCKS, 5) for protocol in ("hot", "cold")),
        *((again, protocol, bench.CONFIRM_BLOCKS, 6) for protocol in ("hot", "cold")),
    ]
    bare.control.noop = 1
    assert GpuBench(0).finals(FIRST, [each["other"]], 7) is None and len(asked) == 4
