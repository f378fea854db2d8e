"""A workspace of a launch alone, grids whose CTAs wait for each other, what is refused."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import dispatch, launcher
from hgemm_packs.pack.manifest import GridRule
from hgemm_packs.workspace import Workspace, make_absent
from tests import fake_driver, reference
from tests.cpu.call.sliced import TILE, ctas, load, no_memory, operands, place, served, torch_runs
from tests.fake_driver import PARTIALS, SLICES, Started


def test_a_workspace_of_ones_own(bare: Started) -> None:
    kernel = load()
    size = kernel.workspace(100, 72)
    assert size == ctas(100, 72) * PARTIALS
    words = make_absent(size, torch.device("cpu"))
    assert words.tolist() == [-1] * (size // 4)
    a, b = operands()
    for number in (0, 1):
        bare.capture(number)
        out = torch.full((100, 72), torch.nan, dtype=torch.float16)
        launcher.launch(kernel, a, b, out, Workspace(words))
        reference.assert_exact(out, a, b)
        assert bare.control.parts == words.data_ptr() and (words == -1).all()
    assert bare.destroy(1) == 0
    with pytest.raises(ValueError, match=f"a workspace of {size - 4} bytes, not {size}$"):
        launcher.launch(kernel, a, b, out, Workspace(words[1:]))
    crooked = Workspace(make_absent(size + 4, torch.device("cpu"))[1:])
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        launcher.launch(kernel, a, b, out, crooked)
    assert bare.control.launches == 2


def test_defect_19_numbers_beyond_the_integers(bare: Started) -> None:
    """They wrapped around: a workspace of -1 bytes was taken, and grids had any number of CTAs."""
    kernel = load(grid=GridRule(1, 1, False, SLICES))
    most = 2**31 - 1
    with pytest.raises(ValueError, match="CTAs that wait for each other"):
        kernel.workspace(most, most)
    for m, n in ((most + 1, 8), (8, 1 << 62), (0, 8), (8, -8)):
        with pytest.raises(ValueError, match=f"no {m}x{n} product"):
            kernel.workspace(m, n)
    a, b = operands(8, 8)
    words = Workspace(make_absent(64 * SLICES * PARTIALS, torch.device("cpu")))
    words.where = (words.where[0], -1)
    with pytest.raises(ValueError, match="a workspace of -1 bytes"):
        launcher.launch(kernel, a, b, torch.zeros(8, 8, dtype=torch.float16), words)
    assert bare.control.launches == 0


def test_words_that_are_not_absent(bare: Started) -> None:
    """The stand-in tells, so that tests that pass say that nobody left any."""
    kernel = load()
    a, b = operands()
    words = make_absent(kernel.workspace(100, 72), torch.device("cpu"))
    words[5] = 0
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        launcher.launch(kernel, a, b, torch.zeros(100, 72, dtype=torch.float16), Workspace(words))


def test_no_workspace_for_a_launch(bare: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load()
    a, b = operands()
    out = torch.zeros(100, 72, dtype=torch.float16)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "full", no_memory)
        with pytest.raises(RuntimeError, match="no workspace"):
            launcher.launch(kernel, a, b, out)
    assert bare.control.launches == 0


def test_ctas_that_wait_for_each_other(fake: Started) -> None:
    fake.control.clusters = 9
    found = []
    for cluster in (1, 2):
        launcher.reset_table()
        dispatch._loaded.clear()
        served(fake, cluster=(1, 1, cluster))
        place(fake, 64, 96)
        found.append((fake.control.cooperative, fake.control.cluster, fake.control.grid))
    assert found == [(1, 1, 9), (1, 2, 18)]


def test_a_grid_that_the_device_does_not_run_at_once(fake: Started) -> None:
    fake.control.clusters = 9
    served(fake, cluster=(1, 1, 2))
    place(fake, 64, 96)
    torch_runs(fake, 65, 96)
    assert fake.fallbacks() == {"refused": 1}


def test_a_grid_that_would_wait_for_ever(bare: Started) -> None:
    bare.control.clusters = 9
    kernel = load(cluster=(1, 1, 2))
    a, b = operands(65, 96)
    out = torch.zeros(65, 96, dtype=torch.float16)
    with pytest.raises(ValueError, match="36 CTAs that wait for each other, the device runs 18"):
        launcher.launch(kernel, a, b, out)
    with pytest.raises(ValueError, match="36 CTAs that wait for each other, the device runs 18"):
        kernel.workspace(65, 96)
    assert bare.control.launches == 0 and kernel.max_ctas == 18


def test_both_attributes_reach_the_driver(fake: Started) -> None:
    """Who waits for its own grid may start before the grid ahead has ended."""
    found = []
    for params, pdl in (("tma2_ws_v2", True), ("tma2_ws_v2", False), ("tma2_v1", True)):
        launcher.reset_table()
        dispatch._loaded.clear()
        fake.serve(params, cluster=(1, 1, 2))
        fake.dependent = lambda problem, pdl=pdl: pdl  # type: ignore[misc]
        a, b = operands(64, 96)
        fake.capture(0)
        reference.assert_exact(fake.matmul(a, b), a, b)  # loads
        fake.capture(1)
        for _ in range(2):  # the second follows the first
            reference.assert_exact(fake.matmul(a, b), a, b)
        found.append((fake.control.cooperative, fake.control.pdl, fake.control.cluster))
    assert found == [(1, 1, 2), (1, 0, 2), (0, 1, 2)]


@pytest.mark.parametrize(
    ("grid", "cooperative"),
    [
        (GridRule(*TILE, False), True),
        (GridRule(*TILE, True), True),
        (GridRule(*TILE, True, SLICES), True),
        (GridRule(*TILE, False, SLICES), False),
    ],
    ids=["one slice", "one slice, persistent", "persistent", "not cooperative"],
)
def test_a_workspace_of_no_use(bare: Started, grid: GridRule, cooperative: bool) -> None:
    with pytest.raises(ValueError, match=f"tma2_ws_v2: {grid.slices} slices, {PARTIALS} bytes"):
        load(grid=grid, cooperative=cooperative)


def test_waiting_for_nobody(bare: Started) -> None:
    image = fake_driver.image("kernel", "tma2_v1")
    with pytest.raises(ValueError, match="tma2_v1: 1 slices, 0 bytes of workspace, cooperative"):
        launcher.load(0, fake_driver.entry("tma2_v1", cubin=image, cooperative=True), image)
