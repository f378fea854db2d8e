"""Arms and what the gate asks of a kernel with a workspace, on the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.checker import Checker, NumericError
from hgemm_packs.generator.gates.values import places
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import bias_of
from hgemm_packs.pack.manifest import GridRule, KernelEntry
from tests import fake_driver, reference
from tests.fake_driver import PARTIALS, SLICES, Started
from tests.generator import stand_in
from tests.generator.stand_in import run, words

CPU = torch.device("cpu")


@pytest.fixture
def fake(clean_process: None, monkeypatch: pytest.MonkeyPatch, driver_library: Path) -> Started:
    return fake_driver.start(monkeypatch, driver_library)


def loaded(layout: str = "nt", tile: int = 16) -> tuple[KernelEntry, launcher.Kernel]:
    cubin = fake_driver.image("kernel", "tma2_ws_v2", layout)
    grid = GridRule(tile, tile, False, SLICES)
    entry = fake_driver.entry("tma2_ws_v2", layout, cubin=cubin, grid=grid)
    return entry, launcher.load(0, entry, cubin)


def multiply(fake: Started, arm: KernelArm, m: int = 40, n: int = 24) -> int:
    """Where the workspace of a launch was, whose values are checked."""
    a, b = reference.cancelling(m, n, 64, "nt", torch.float16)
    out = torch.full((m, n), torch.nan, dtype=torch.float16)
    arm(a, b, out)
    reference.assert_exact(out, a, b)
    return int(fake.control.parts)


def test_arms_share_no_memory(fake: Started) -> None:
    _, kernel = loaded()
    first, second = KernelArm(kernel), KernelArm(kernel)
    found = [multiply(fake, arm) for arm in (first, second, first.twin())]
    assert len(set(found)) == 3
    assert multiply(fake, first) == found[0] == multiply(fake, first, 16, 16)
    larger = multiply(fake, second, 144, 128)
    assert larger != found[1] and multiply(fake, second) == larger
    assert (int(first.count_dirty()), int(second.count_dirty())) == (0, 0)


def test_a_captured_launch_uses_the_arms_own(fake: Started) -> None:
    arm = KernelArm(loaded()[1])
    before = multiply(fake, arm)
    fake.capture(9)
    assert multiply(fake, arm) == before


def test_what_one_arm_spoils_spoils_no_other(fake: Started) -> None:
    _, kernel = loaded()
    bad, good = KernelArm(kernel), KernelArm(kernel)
    fake.control.dirty = 2
    multiply(fake, bad)
    fake.control.dirty = 0
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):  # as the stand-in answers
        multiply(fake, bad)
    multiply(fake, good)
    assert (int(bad.count_dirty()), int(good.count_dirty())) == (2, 0)


def test_preparing(fake: Started) -> None:
    arm = KernelArm(loaded()[1])
    assert arm.count_dirty() == 0
    arm.prepare(torch.zeros(40, 24, dtype=torch.float16))
    assert arm._workspace is not None
    words = arm._workspace.words
    assert words.numel() * 4 == arm._workspace.room == 3 * 2 * SLICES * PARTIALS
    assert (words == -1).all() and int(arm.count_dirty()) == 0
    assert multiply(fake, arm) == words.data_ptr()
    words[-1] = 0
    assert int(arm.count_dirty()) == 1


class Spoils(KernelArm):
    """Leaves something in a word, which does not trouble it the next time."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        self.prepare(c)
        assert self._workspace is not None
        self._workspace.words.fill_(-1)
        super().__call__(a, b, c)
        self._workspace.words[-1] = 1

    def twin(self) -> KernelArm:
        return Spoils(self.kernel)


@pytest.mark.parametrize(
    "check", [places.check_specials, numeric.check_replay, numeric.check_streams]
)
def test_the_gate_looks_at_the_words(fake: Started, check: Callable[[Checker], None]) -> None:
    entry, kernel = loaded(tile=8)
    good = Checker(entry, KernelArm(kernel), CPU, seed=1)
    check(good)
    assert good.settle().shapes_tested >= 2
    bad = Checker(entry, Spoils(kernel), CPU, seed=1)
    check(bad)
    with pytest.raises(NumericError, match=r": \d workspace words not left absent$"):
        bad.settle()


def test_a_kernel_that_takes_absent_for_a_sum(fake: Started) -> None:
    """Words are a NaN before each launch."""
    entry, kernel = loaded()

    class Hasty(KernelArm):
        def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().__call__(a, b, c)
            assert self._workspace is not None
            c += 0 * self._workspace.words.view(torch.float32)[-1]

    bad = Checker(entry, Hasty(kernel), CPU, seed=2)
    places.check_specials(bad)
    with pytest.raises(NumericError, match="repeat 21x24x200: 504 elements wrong"):
        bad.settle()


@pytest.mark.parametrize("kind", ["screen", "race", "finals", "confirm"])
def test_jobs(machine: SimpleNamespace, kind: str) -> None:
    """Every kind of job measures it; one whose workspace is spoilt fails alone."""
    kernel = stand_in.kernel("tma2_ws_v2")
    other = stand_in.kernel("tma2_ws_v2", "nt", fake_driver.image("kernel ", "tma2_ws_v2", "nt"))
    machine.clock.us |= {kernel.id: 7.0, other.id: 7.0}
    assert words(run(machine, kind, kernel, other)) == [(Status.OK, "")] * 2
    spaces = [one.arm._workspace for one in machine.device._kernels.values()]
    spaces[0].words[0] = 1
    (status, detail), fine = words(run(machine, kind, kernel, other))
    assert status is Status.LAUNCH and "INVALID_VALUE" in detail and fine == (Status.OK, "")


def test_a_kernel_with_an_epilogue_gets_the_bias_of_all_measurements(fake: Started) -> None:
    """Or the one that it is given; so does its twin."""
    image = fake_driver.image("kernel", "ptr_v1_addend", "nt")
    kernel = launcher.load(0, fake_driver.entry("ptr_v1_addend", "nt", cubin=image), image)
    a, b = reference.cancelling(8, 24, 32, "nt", torch.float16)
    given = torch.arange(24).half()
    wanted = bias_of(24, torch.float16, torch.device("cpu"))
    for arm in (KernelArm(kernel, "bias"), KernelArm(kernel, "bias").twin()):
        c = torch.empty(8, 24, dtype=torch.float16)
        arm(a, b, c)
        assert torch.equal(c, (reference.product(a, b) + wanted.double()).half())
        arm(a, b, c, given)
        assert torch.equal(c, (reference.product(a, b) + given.double()).half())
