"""Arms and what the gate asks of a kernel with a workspace, on the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.arms import Arm, Scratch
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.checker import Checker, NumericError
from hgemm_packs.generator.spec import Status
from hgemm_packs.manifest import GridRule, KernelEntry
from tests import fake_driver, reference
from tests.fake_driver import PARTIALS, SLICES, Started

from . import stand_in
from .stand_in import run, words

CPU = torch.device("cpu")


@pytest.fixture
def fake(clean_process: None, monkeypatch: pytest.MonkeyPatch, driver_library: Path) -> Started:
    return fake_driver.start(monkeypatch, driver_library)


def loaded(layout: str = "nt", tile: int = 16) -> tuple[KernelEntry, launcher.Kernel]:
    cubin = fake_driver.image("kernel", "tma2_ws_v1", layout)
    grid = GridRule(tile, tile, False, SLICES)
    entry = fake_driver.entry("tma2_ws_v1", layout, cubin=cubin, grid=grid)
    return entry, launcher.load(0, entry, cubin)


def multiply(fake: Started, arm: Arm, m: int = 40, n: int = 24) -> tuple[int, int]:
    """Where the counters and partial sums of a launch were, whose values are checked."""
    a, b = reference.cancelling(m, n, 64, "nt", torch.float16)
    out = torch.full((m, n), torch.nan, dtype=torch.float16)
    arm(a, b, out)
    reference.assert_exact(out, a, b)
    return fake.control.counters, fake.control.partials


def test_arms_share_partial_sums_and_no_counters(fake: Started) -> None:
    _, kernel = loaded()
    scratch = Scratch()
    first, second = Arm(kernel, scratch), Arm(kernel, scratch)
    mine, other = multiply(fake, first), multiply(fake, second)
    assert mine[0] != other[0] and mine[1] == other[1]
    assert multiply(fake, first) == mine == multiply(fake, first, 16, 16)
    twin = multiply(fake, first.twin())
    assert not set(twin) & {*mine, *other}
    larger = multiply(fake, second, 160, 160)
    assert larger[1] != mine[1] and multiply(fake, first) == mine  # a graph may replay it
    assert multiply(fake, first, 160, 160)[1] == larger[1]


def test_a_captured_launch_uses_the_arms_own(fake: Started) -> None:
    arm = Arm(loaded()[1])
    before = multiply(fake, arm)
    fake.control.capturing, fake.control.capture_id = 1, 9
    assert multiply(fake, arm) == before


def test_spoilt_counters_spoil_nobody_else(fake: Started) -> None:
    _, kernel = loaded()
    scratch = Scratch()
    bad, good = Arm(kernel, scratch), Arm(kernel, scratch)
    fake.control.dirty = 2
    multiply(fake, bad)
    fake.control.dirty = 0
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):  # as the stand-in answers
        multiply(fake, bad)
    multiply(fake, good)
    assert (int(bad.dirty()), int(good.dirty())) == (2, 0)


def test_scrubbing(fake: Started) -> None:
    arm = Arm(loaded()[1])
    c = torch.zeros(40, 24, dtype=torch.float16)
    arm.scrub(c)
    counters, partials = arm._workspace.counters, arm._workspace.partials  # type: ignore[union-attr]
    tiles = 3 * 2 * SLICES
    assert counters.tolist() == [0] * tiles and int(arm.dirty()) == 0
    assert partials.numel() * 4 == tiles * PARTIALS and torch.isnan(partials).all()
    assert multiply(fake, arm) == (counters.data_ptr(), partials.data_ptr())


class Spoils(Arm):
    """Leaves a counter above zero, which does not trouble it the next time."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        self.scrub(c)
        assert self._workspace is not None
        self._workspace.counters.zero_()
        super().__call__(a, b, c)
        self._workspace.counters[-1] = 1

    def twin(self) -> Arm:
        return Spoils(self._kernel)


@pytest.mark.parametrize(
    "check", [numeric.check_specials, numeric.check_replay, numeric.check_streams]
)
def test_the_gate_looks_at_the_counters(fake: Started, check: Callable[[Checker], None]) -> None:
    entry, kernel = loaded(tile=8)
    good = Checker(entry, Arm(kernel), CPU, seed=1)
    check(good)
    assert good.settle().shapes_tested >= 2
    bad = Checker(entry, Spoils(kernel), CPU, seed=1)
    check(bad)
    with pytest.raises(NumericError, match=r": \d workspace counters not left at zero$"):
        bad.settle()


def test_a_kernel_that_reads_what_it_did_not_write(fake: Started) -> None:
    """Partial sums are NaN before each launch of the gate."""
    entry, kernel = loaded()

    class Stale(Arm):
        def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().__call__(a, b, c)
            assert self._workspace is not None
            c += 0 * self._workspace.partials[-1]  # beyond what the stand-in writes

    bad = Checker(entry, Stale(kernel), CPU, seed=2)
    numeric.check_specials(bad)
    with pytest.raises(NumericError, match="repeat 21x24x200: 504 elements wrong"):
        bad.settle()


def test_a_kernel_that_finds_its_last_result_in_the_workspace(fake: Started) -> None:
    """What NaN before each launch wipes out: the gate leaves it there once."""
    entry, kernel = loaded()

    class Keeps(Arm):
        def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            space = self._fitting(c)
            assert space is not None
            if space.partials[-1] == c.data_ptr() % 4093:
                c.copy_(self.kept)
                return
            super().__call__(a, b, c)
            self.kept = c.clone()
            space.partials[-1] = c.data_ptr() % 4093  # beyond what the stand-in writes

    for check in (numeric.check_specials, numeric.check_replay, numeric.check_streams):
        run = Checker(entry, Keeps(kernel), CPU, seed=2)
        check(run)
        run.settle()
    numeric.check_rewritten(run)
    with pytest.raises(NumericError, match="rewritten 37x40x136: "):
        run.settle()


@pytest.mark.parametrize("kind", ["screen", "race", "finals", "confirm"])
def test_jobs(machine: SimpleNamespace, kind: str) -> None:
    """Every kind of job measures it; one that spoils its counters fails alone."""
    kernel = stand_in.kernel("tma2_ws_v1")
    other = stand_in.kernel("tma2_ws_v1", "nt", fake_driver.image("kernel ", "tma2_ws_v1", "nt"))
    machine.clock.us |= {kernel.id: 7.0, other.id: 7.0}
    assert words(run(machine, kind, kernel, other)) == [(Status.OK, "")] * 2
    spaces = [one.arm._workspace for one in machine.device._kernels.values()]
    assert spaces[0].partials is spaces[1].partials
    spaces[0].counters[0] = 1
    (status, detail), fine = words(run(machine, kind, kernel, other))
    assert status is Status.LAUNCH and "INVALID_VALUE" in detail and fine == (Status.OK, "")
