"""A row may name two kernels: its own, always launched plainly, and one that is launched dependent
where a capture says that it may be. What that depends on is test_predecessor's."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.pack.manifest import GridRule, KernelEntry
from tests import fake_driver, reference
from tests.fake_driver import Started

OWN, BEHIND = 128, 256  # threads of a block, by which the kernels are told apart


def served(
    fake: Started,
    own: str = "tma2_v1",
    behind: str = "tma2_v1",
    **changes: Any,
) -> KernelEntry:
    """A kernel of each sort; `changes` are of the one for dependent launches."""
    fake.serve(own, block=OWN)
    fake.dependent = lambda problem: True
    return fake.serve_behind(behind, **{"block": BEHIND, **changes})


def launched(fake: Started, m: int = 100, n: int = 72) -> tuple[int, int]:
    """One call, whose values are checked: which kernel it was, and whether launched dependent."""
    a, b = reference.cancelling(m, n, 64, "nn", torch.float16, seed=m)
    launches = fake.control.launches
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.launches == launches + 1
    return int(fake.control.block), int(fake.control.pdl)


PLAINLY, DEPENDENT = (OWN, 0), (BEHIND, 1)


@pytest.mark.parametrize("own", ["ptr_v1", "tma2_v1", "tma3_v1", "tma2_ws_v2"])
@pytest.mark.parametrize("behind", ["ptr_v1", "tma2_v1", "tma3_v1", "tma2_ws_v2"])
def test_each_where_it_belongs(fake: Started, own: str, behind: str) -> None:
    served(fake, own, behind)
    assert launched(fake) == PLAINLY and fake.control.loads == 2
    for number in (7, 8):
        fake.capture(number)
        assert [launched(fake) for _ in range(3)] == [PLAINLY, DEPENDENT, DEPENDENT]
        fake.control.nodes[0] = 1  # a foreign node
        assert [launched(fake), launched(fake)] == [PLAINLY, DEPENDENT]
    fake.capture(0)
    assert [launched(fake) for _ in range(2)] == [PLAINLY] * 2
    assert len(fake.asked) == 1 and fake.control.loads == 2
    assert fake.fallbacks() == {}


def test_a_row_that_names_none(fake: Started) -> None:
    served(fake)
    fake.dependent = lambda problem: problem.m >= 64
    launched(fake, 32)
    assert fake.control.loads == 1
    launched(fake, 64)
    fake.capture(7)
    found = [launched(fake, m) for m in (64, 32, 64, 32)]
    assert found == [PLAINLY, PLAINLY, DEPENDENT, PLAINLY]


def test_each_has_a_grid_of_its_own(fake: Started) -> None:
    """Pairs, and the CTAs that fit, are the dependent kernel's alone."""
    fake.serve("tma2_v1", block=OWN, grid=GridRule(8, 8, True))
    fake.serve_behind("tma2_v1", block=BEHIND, grid=GridRule(16, 8, True))
    fake.dependent = lambda problem: True
    found = []
    for number in (0, 7, 7):
        if number != fake.control.capture_id:
            fake.capture(number)
        launched(fake, 800, 96)
        found.append((fake.control.grid, fake.control.cluster))
    assert found == [(264, 1), (264, 1), (132, 2)]


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_reading_ahead_is_the_dependent_kernels(fake: Started, reads_ahead: bool) -> None:
    fake.serve("tma2_v1", block=OWN, reads_ahead=not reads_ahead)
    fake.serve_behind("tma2_v1", block=BEHIND, reads_ahead=reads_ahead)
    fake.dependent = lambda problem: True
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    eye = torch.eye(64, dtype=torch.float16)
    kept = [fake.matmul(a, b)]
    fake.capture(7)
    found = []
    for left in (a, a, None, a):
        last = kept[-1] if left is None else left
        kept.append(fake.matmul(last, eye))
        reference.assert_exact(kept[-1], last, eye)
        found.append((fake.control.block, fake.control.pdl))
    third = PLAINLY if reads_ahead else DEPENDENT
    assert found == [PLAINLY, DEPENDENT, third, DEPENDENT]


def test_a_capture_that_comes_before_one_of_them_is_loaded(fake: Started) -> None:
    served(fake)
    fake.dependent = lambda problem: problem.m >= 64
    launched(fake, 32)  # loads the row's own
    fake.capture(7)
    a, b = reference.cancelling(64, 32, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"cold_capture": 1} and fake.control.loads == 1
    fake.capture(0)
    assert launched(fake, 64) == PLAINLY
    fake.capture(8)
    assert [launched(fake, 64) for _ in range(2)] == [PLAINLY, DEPENDENT]
    # A problem never called, of kernels that are there: nothing needs loading.
    assert launched(fake, 96) == DEPENDENT
    assert fake.control.loads == 2 and fake.control.unrelaxed_loads == 0


def test_a_quarantined_one_is_none(fake: Started) -> None:
    kernel = served(fake)
    select.quarantine(kernel, "made up")
    launched(fake)
    fake.capture(7)
    assert [launched(fake) for _ in range(2)] == [PLAINLY] * 2
    assert fake.control.loads == 1


def test_one_that_does_not_load_is_none(fake: Started, caplog: pytest.LogCaptureFixture) -> None:
    kernel = served(fake, cubin=fake_driver.image("behind", "tma2_v1", sizes=[8] * 7))
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        for m in (100, 64):
            assert launched(fake, m) == PLAINLY
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(f"kernel {kernel.name} is not used behind our own kernels: ")
    fake.capture(7)
    assert [launched(fake) for _ in range(2)] == [PLAINLY] * 2
    assert select.exclusion_reason(kernel) is None
    assert fake.fallbacks() == {}


def test_the_rows_own_that_does_not_load_dependent(
    fake: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver places no pair of its CTAs, which it is launched in where it is dependent."""
    fake.serve("tma2_v1", block=OWN, grid=GridRule(64, 32, True))
    fake.dependent = lambda problem: True
    fake.control.clusters = 0
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        assert launched(fake) == PLAINLY
    (record,) = caplog.records
    assert "behind our own kernels: no block of this kernel fits" in record.getMessage()
    fake.capture(7)
    assert [launched(fake) for _ in range(2)] == [PLAINLY] * 2
    assert fake.fallbacks() == {}


def test_without_the_rows_own_there_is_none(
    fake: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """One of another kind that loads does not stand in for it."""
    fake.serve("tma2_v1", cubin=fake_driver.image("kernel", "tma2_v1", sizes=[8] * 7))
    fake.serve_behind("tma2_v1", block=BEHIND)
    fake.dependent = lambda problem: True
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1} and len(caplog.records) == 1
    assert fake.control.launches == 0


def test_a_grid_that_only_the_rows_own_can_run(fake: Started) -> None:
    fake.control.clusters = 9
    served(fake, behind="tma2_ws_v2", cluster=(1, 1, 2))
    for m, second in ((64, DEPENDENT), (65, PLAINLY)):
        fake.capture(0)
        launched(fake, m, 96)
        fake.capture(7)
        assert [launched(fake, m, 96) for _ in range(2)] == [PLAINLY, second]
    assert fake.fallbacks() == {}


def test_a_workspace_for_the_dependent_one_alone(fake: Started) -> None:
    """Eager calls take none, and see to it that captures have some; one that has none is served
    by the row's own."""
    served(fake, behind="tma2_ws_v2", workspace_bytes=1 << 20)
    assert launched(fake, 64, 160) == PLAINLY and fake.control.parts is None
    regions = []

    def captured(number: int) -> list[tuple[int, int]]:
        fake.capture(number)
        found = [launched(fake, 64, 160) for _ in range(3)]
        regions.append(fake.control.parts)
        return found

    for number in (1, 2):  # 15 MiB each
        assert captured(number) == [PLAINLY, DEPENDENT, DEPENDENT]
    assert captured(3) == [PLAINLY] * 3
    assert regions[0] and regions[1] and regions[2] is None
    fake.capture(0)
    fake.set_device(1)
    assert launched(fake, 64, 160) == PLAINLY  # makes the next slab
    assert fake.current_device() == 1
    assert captured(5) == [PLAINLY, DEPENDENT, DEPENDENT]
    assert len({*regions} - {None}) == 3
    assert launcher.counters()["fallbacks"] == 0


def test_a_workspace_for_the_rows_own_alone(fake: Started) -> None:
    served(fake, own="tma2_ws_v2")
    assert launched(fake) == PLAINLY
    eager = fake.control.parts
    assert eager
    fake.capture(1)
    found = []
    for _ in range(3):
        found.append((launched(fake), bool(fake.control.parts), fake.control.parts == eager))
    nothing = (DEPENDENT, False, False)
    assert found == [(PLAINLY, True, False), nothing, nothing]
    assert fake.destroy(1) == 1
    fake.capture(0)
    assert launched(fake) == PLAINLY and fake.control.parts == eager


def test_workspaces_of_two_sizes_in_one_capture(fake: Started) -> None:
    """The region of the larger serves both, once it is there."""
    served(fake, own="tma2_ws_v2", behind="tma2_ws_v2", workspace_bytes=1 << 18)
    launched(fake)
    fake.capture(1)
    small = (launched(fake), fake.control.parts)
    large = (launched(fake), fake.control.parts)
    assert (small[0], large[0]) == (PLAINLY, DEPENDENT) and small[1] != large[1]
    fake.control.nodes[0] = 1
    assert launched(fake) == PLAINLY and fake.control.parts in (small[1], large[1])
    assert fake.destroy(1) == 2 and fake.fallbacks() == {}
