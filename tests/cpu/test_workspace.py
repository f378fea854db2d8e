"""Kernels with partial sums in global memory: whose memory each launch gets, and values with it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.manifest import GridRule
from hgemm_packs.workspace import Workspace
from tests import fake_driver, reference
from tests.fake_driver import PARTIALS, SLICES, Started

TILE = (64, 32)
SLAB_BYTES = 4 << 20


def operands(m: int = 100, n: int = 72) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(m, n, 64, "nn", torch.float16, seed=m)


def ctas(m: int, n: int) -> int:
    return -(-m // TILE[0]) * -(-n // TILE[1]) * SLICES


def places(fake: Started, m: int = 100, n: int = 72) -> tuple[int, int]:
    """Counters and partial sums of a call, whose values are checked."""
    a, b = operands(m, n)
    reference.assert_exact(fake.matmul(a, b), a, b)
    return fake.control.counters, fake.control.partials


def capture(fake: Started, number: int) -> None:
    """From now on the stream is under this capture, or under none with 0."""
    fake.control.capturing, fake.control.capture_id = int(number > 0), number


def served(fake: Started, **changes: Any) -> Started:
    fake.serve("tma2_ws_v1", **changes)
    return fake


def test_a_stream_has_one_buffer_that_grows(fake: Started) -> None:
    first = places(served(fake))
    assert fake.control.grid == ctas(100, 72) == 2 * 3 * SLICES
    assert first[1] - first[0] == 1024  # counters, then partial sums, both aligned
    assert places(fake) == places(fake, 64, 32) == first
    larger = places(fake, 1000, 512)
    assert fake.control.grid == ctas(1000, 512) > 256
    assert larger != first and larger[1] - larger[0] == 3072
    assert places(fake) == places(fake, 1000, 512) == larger


def test_every_stream_has_its_own(fake: Started) -> None:
    first = places(served(fake))
    found = {first}
    for stream in (1, 2, 1 << 40, (1 << 40) + 1):
        fake.set_stream(stream)
        found.add(places(fake))
        assert places(fake) in found
    assert len(found) == len({counters for counters, _ in found}) == 5
    fake.set_stream(0)
    assert places(fake) == first


def test_streams_without_end(fake: Started) -> None:
    served(fake)
    for stream in range(256):
        fake.set_stream(stream)
        places(fake)
    fake.set_stream(256)
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"workspace": 1}
    fake.set_stream(0)  # the others keep what they have
    places(fake)
    assert fake.fallbacks() == {"workspace": 1} and launcher.counters()["hits"] == 257


def test_a_capture_shares_with_nobody_but_itself(fake: Started) -> None:
    eager = places(served(fake))
    found = {0: eager[0]}
    for number in (5, 6):
        capture(fake, number)
        (counters, partials), again = places(fake), places(fake)
        assert again[0] == counters and eager[1] != partials
        found[number] = counters
    fake.set_stream(1)  # another stream of the second capture runs beside the first
    found[7] = places(fake)[0]
    assert len(set(found.values())) == 4
    slab = min(found[number] for number in (5, 6, 7))
    assert all(slab <= found[number] < slab + SLAB_BYTES for number in (5, 6, 7))
    capture(fake, 0)
    fake.set_stream(0)
    assert places(fake) == eager
    assert launcher.counters()["fallbacks"] == 0


def test_a_kernel_that_is_loaded_can_be_captured_at_once(bare: Started) -> None:
    kernel = load()
    capture(bare, 3)
    a, b = operands()
    out = torch.full((100, 72), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)
    assert bare.control.unrelaxed_loads == 0 and bare.control.capture_mode == 0


def test_a_slab_that_is_used_up(fake: Started) -> None:
    served(fake, grid=GridRule(1, 1, False, 64), workspace_bytes=16, cluster=(1, 1, 1))
    a, b = operands(64, 64)  # 64 x 64 x 64 counters: 1 MiB
    reference.assert_exact(fake.matmul(a, b), a, b)
    found = set()
    for number in range(1, 5):
        capture(fake, number)
        found.add(places(fake, 64, 64)[0])
    assert len(found) == 4 and launcher.counters()["fallbacks"] == 0
    capture(fake, 5)
    for count in (1, 2):
        reference.assert_exact(fake.matmul(a, b), a, b)
        assert fake.fallbacks() == {"workspace": count}
    capture(fake, 0)
    places(fake, 64, 64)  # an eager call makes the next slab
    capture(fake, 6)
    assert places(fake, 64, 64)[0] not in found
    assert fake.fallbacks() == {"workspace": 2}


def no_memory(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("made up")


def test_want_of_memory_is_torchs_from_then_on(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(fake)
    first = places(fake)
    a, b = operands(1000, 512)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", no_memory)
        for _ in range(2):
            reference.assert_exact(fake.matmul(a, b), a, b)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"workspace": 3}
    assert places(fake) == first


def test_want_of_memory_under_capture_is_forgotten(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    places(served(fake))
    capture(fake, 1)
    a, b = operands()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", no_memory)
        reference.assert_exact(fake.matmul(a, b), a, b)
    places(fake)
    assert fake.fallbacks() == {"workspace": 1} and launcher.counters()["hits"] == 2


def test_other_kernels_ask_for_nothing(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.serve("tma2_v1")
    monkeypatch.setattr(torch, "empty", no_memory)
    for number in (0, 1):
        a, b = operands()
        reference.assert_exact(fake.matmul(a, b), a, b)
        capture(fake, number)
    assert (fake.control.counters, fake.control.partials) == (None, None)
    assert launcher.counters()["fallbacks"] == 0


def load(**changes: Any) -> Any:
    image = fake_driver.image("kernel", "tma2_ws_v1")
    return launcher.load(0, fake_driver.entry("tma2_ws_v1", cubin=image, **changes), image)


def test_a_workspace_of_ones_own(bare: Started) -> None:
    kernel = load()
    count, size = kernel.workspace(100, 72)
    assert (count, size) == (ctas(100, 72), ctas(100, 72) * PARTIALS)
    counters, partials = torch.zeros(count, dtype=torch.int32), torch.zeros(size // 4)
    a, b = operands()
    for number in (0, 1):
        capture(bare, number)
        out = torch.full((100, 72), torch.nan, dtype=torch.float16)
        launcher.launch(kernel, a, b, out, Workspace(counters, partials))
        reference.assert_exact(out, a, b)
        used = bare.control.counters, bare.control.partials
        assert used == (counters.data_ptr(), partials.data_ptr())
    for small in (Workspace(counters[1:], partials), Workspace(counters, partials[1:])):
        with pytest.raises(ValueError, match=f"{count} CTAs of {PARTIALS}"):
            launcher.launch(kernel, a, b, out, small)
    crooked = Workspace(counters, torch.zeros(size // 4 + 1)[1:])
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        launcher.launch(kernel, a, b, out, crooked)
    assert bare.control.launches == 2


def test_no_workspace_for_a_launch(bare: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load()
    a, b = operands()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", no_memory)
        with pytest.raises(RuntimeError, match="no workspace"):
            launcher.launch(kernel, a, b, torch.zeros(100, 72, dtype=torch.float16))
    assert bare.control.launches == 0


def test_ctas_that_wait_for_each_other(fake: Started) -> None:
    fake.control.clusters = 9
    found = []
    for cluster, cooperative in ((1, True), (2, True), (2, False)):
        launcher.reset_table()
        launcher._loaded.clear()
        served(fake, cooperative=cooperative, cluster=(1, 1, cluster))
        places(fake, 64, 96)
        found.append((fake.control.cooperative, fake.control.cluster, fake.control.grid))
    assert found == [(1, 1, 9), (1, 2, 18), (0, 2, 18)]
    places(fake, 65, 96)  # more than the device runs at once: nobody waits


def test_a_grid_that_the_device_does_not_run_at_once(fake: Started) -> None:
    fake.control.clusters = 9
    served(fake, cooperative=True, cluster=(1, 1, 2))
    places(fake, 64, 96)
    a, b = operands(65, 96)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.launches == 1 and fake.fallbacks() == {"refused": 1}


def test_a_grid_that_would_wait_for_ever(bare: Started) -> None:
    bare.control.clusters = 9
    kernel = load(cooperative=True, cluster=(1, 1, 2))
    a, b = operands(65, 96)
    out = torch.zeros(65, 96, dtype=torch.float16)
    with pytest.raises(ValueError, match="36 CTAs that wait for each other, the device runs 18"):
        launcher.launch(kernel, a, b, out)
    assert bare.control.launches == 0 and kernel.max_ctas == 18


def test_both_attributes_reach_the_driver(fake: Started) -> None:
    """Who waits for its own grid may start before the grid ahead has ended."""
    found = []
    for cooperative, pdl in ((True, True), (True, False), (False, True)):
        launcher.reset_table()
        launcher._loaded.clear()
        served(fake, cooperative=cooperative, pdl=pdl, cluster=(1, 1, 2))
        places(fake, 64, 96)
        found.append((fake.control.cooperative, fake.control.pdl, fake.control.cluster))
    assert found == [(1, 1, 2), (1, 0, 2), (0, 1, 2)]


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize(
    "grid",
    [GridRule(*TILE, False), GridRule(*TILE, True), GridRule(*TILE, True, SLICES)],
    ids=["one slice", "one slice, persistent", "persistent"],
)
def test_partial_sums_of_no_use(bare: Started, grid: GridRule, cooperative: bool) -> None:
    with pytest.raises(ValueError, match=f"tma2_ws_v1: {grid.slices} slices, {PARTIALS} bytes"):
        load(grid=grid, cooperative=cooperative)


def test_partial_sums_beyond_any_use(bare: Started) -> None:
    kernel = load(grid=GridRule(1, 1, False, 64), workspace_bytes=1 << 20)
    a, b = operands(64, 64)
    with pytest.raises(ValueError, match="262144 CTAs of 1048576 bytes"):
        launcher.launch(kernel, a, b, torch.zeros(64, 64, dtype=torch.float16))
    with pytest.raises(ValueError, match="262144 CTAs of 1048576 bytes"):
        kernel.workspace(64, 64)


def test_threads_whose_buffers_grow(fake: Started) -> None:
    served(fake)
    failures: list[BaseException] = []

    def work(stream: int) -> None:
        try:
            fake.set_device(0)
            fake.set_stream(stream)
            for i in range(60):
                a, b = operands(8 * (i + stream), 32)
                reference.assert_exact(fake.matmul(a, b), a, b)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in (1, 2, 3)]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert not failures
    assert launcher.counters() == {"hits": 180, "launches": 180, "fallbacks": 0}
