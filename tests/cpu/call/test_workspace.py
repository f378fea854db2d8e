"""Kernels with partial sums in global memory: whose memory each launch gets, and values with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
import torch

from hgemm_packs import launcher
from tests import reference
from tests.cpu.call.sliced import ctas, load, no_memory, operands, place, served, torch_runs
from tests.fake_driver import SLICES, Started

SLAB_BYTES, UNIT = 32 << 20, 256 << 10


def test_a_stream_has_one_buffer_that_grows(fake: Started) -> None:
    first = place(served(fake))
    assert fake.control.grid == ctas(100, 72) == 2 * 3 * SLICES
    assert place(fake) == place(fake, 64, 32) == first
    larger = place(fake, 500, 320)
    assert fake.control.grid == ctas(500, 320) == 240
    assert larger != first
    assert place(fake) == place(fake, 500, 320) == larger


def test_every_stream_has_its_own(fake: Started) -> None:
    first = place(served(fake))
    found = {first}
    for stream in (1, 2, 1 << 40, (1 << 40) + 1):
        fake.set_stream(stream)
        found.add(place(fake))
        assert place(fake) in found
    assert len(found) == 5
    fake.set_stream(0)
    assert place(fake) == first


def test_streams_without_end(fake: Started) -> None:
    served(fake)
    for stream in range(256):
        fake.set_stream(stream)
        place(fake)
    fake.set_stream(256)
    torch_runs(fake)
    assert fake.fallbacks() == {"workspace": 1}
    fake.set_stream(0)  # the others keep what they have
    place(fake)
    assert fake.fallbacks() == {"workspace": 1} and launcher.counters()["hits"] == 257


def test_a_capture_shares_with_nobody_but_itself(fake: Started) -> None:
    eager = place(served(fake))
    found = {}
    for number in (5, 6):
        fake.capture(number)
        found[number] = place(fake)
        assert place(fake) == found[number]
    fake.set_stream(1)  # another stream of the second capture runs beside the first
    found[7] = place(fake)
    fake.set_stream(0)
    for number in (5, 6):  # two captures at once, turn and turn about
        fake.capture(number)
        assert place(fake) == found[number]
    assert len({eager, *found.values()}) == 4
    start = min(found.values())
    assert sorted(found.values()) == [start, start + UNIT, start + 2 * UNIT]
    fake.capture(0)
    assert place(fake) == eager
    assert launcher.counters()["fallbacks"] == 0


def test_a_capture_on_streams_that_share_a_handle(fake: Started) -> None:
    """The handle of a thread's default stream is the same in every thread."""
    place(served(fake))
    fake.set_stream(2**64 - 1)
    eager = place(fake)
    fake.capture(3)
    torch_runs(fake)
    assert fake.fallbacks() == {"workspace": 1}
    fake.capture(0)
    assert place(fake) == eager


def test_a_capture_whose_problems_grow(fake: Started) -> None:
    place(served(fake))
    fake.capture(3)
    small = place(fake)
    large = place(fake, 500, 320)  # 240 CTAs of 8 KiB
    assert large != small
    assert place(fake, 500, 320) == large and place(fake) in (small, large)
    assert fake.destroy(3) == 2
    fake.capture(4)
    assert place(fake, 500, 320) == min(small, large)  # both are one again


def test_what_a_graph_has_had_the_next_can_have(fake: Started) -> None:
    place(served(fake))
    starts = []
    for number in range(1, 5):
        fake.capture(number)
        starts.append(place(fake))
    assert starts == [starts[0] + i * UNIT for i in range(4)]
    assert fake.destroy(2) == fake.destroy(3) == 1 and fake.destroy(2) == 0
    fake.capture(5)
    assert place(fake) == starts[1]  # first fit
    fake.capture(6)
    assert place(fake, 192, 352) == starts[3] + UNIT  # 99 CTAs take four units, two are free
    assert fake.destroy(5) == 1
    fake.capture(7)
    assert place(fake, 128, 256) == starts[1]  # 48 CTAs, two units


def test_graphs_that_come_and_go(fake: Started) -> None:
    """Each takes 9 MiB of the 32."""
    place(served(fake, workspace_bytes=1 << 20))
    for number in range(1, 201):
        fake.capture(number)
        place(fake, 64, 96)
        if number > 2:
            assert fake.destroy(number - 2) == 1
    assert launcher.counters()["fallbacks"] == 0


def test_a_slab_that_is_used_up(fake: Started) -> None:
    served(fake, workspace_bytes=1 << 20)
    place(fake, 64, 160)  # 15 MiB
    found = []
    for number in (1, 2):
        fake.capture(number)
        found.append(place(fake, 64, 160))
    fake.capture(3)
    for count in (1, 2):
        torch_runs(fake, 64, 160)
        assert fake.fallbacks() == {"workspace": count}
    assert abs(found[1] - found[0]) == 15 << 20
    fake.capture(0)
    place(fake, 64, 160)  # an eager call makes the next slab
    fake.capture(3)
    assert place(fake, 64, 160) not in found
    assert fake.fallbacks() == {"workspace": 2}


def test_an_eager_call_looks_for_graphs_that_are_gone(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(fake, workspace_bytes=1 << 20)
    place(fake, 64, 160)
    for number in (1, 2):
        fake.capture(number)
        place(fake, 64, 160)
        assert fake.destroy(number) == 1
    fake.capture(0)
    monkeypatch.setattr(torch, "full", no_memory)
    place(fake, 64, 160)  # and makes no slab
    fake.capture(3)
    place(fake, 64, 160)
    assert launcher.counters()["fallbacks"] == 0


def test_a_graph_that_cannot_own_keeps(fake: Started) -> None:
    place(served(fake))
    fake.control.fail_objects = 1
    fake.capture(1)
    first = place(fake)
    assert fake.destroy(1) == 0
    fake.capture(2)
    assert place(fake) == first + UNIT


def test_a_capture_that_takes_no_more(fake: Started) -> None:
    place(served(fake))
    fake.capture(1)
    fake.control.capturing = 2  # invalidated
    torch_runs(fake)
    assert fake.fallbacks() == {"workspace": 1} and fake.destroy(1) == 0


def test_a_kernel_that_is_loaded_can_be_captured_at_once(bare: Started) -> None:
    kernel = load()
    bare.capture(3)
    a, b = operands()
    out = torch.full((100, 72), torch.nan, dtype=torch.float16)
    launcher.launch(kernel, a, b, out)
    reference.assert_exact(out, a, b)
    assert bare.control.unrelaxed_loads == 0 and bare.control.capture_mode == 0
    assert bare.destroy(3) == 1


def test_want_of_memory_is_torchs_for_a_while(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(fake)
    first = place(fake)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "full", no_memory)
        for _ in range(2):
            torch_runs(fake, 500, 320)
    torch_runs(fake, 500, 320)
    assert fake.fallbacks() == {"workspace": 3}
    assert place(fake) == first


def test_defect_10_memory_is_asked_for_again(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem stayed with torch, and captures had no workspace, once an allocation had failed."""
    served(fake)
    asked = []

    def count(*_: object, **__: object) -> None:
        asked.append(0)
        no_memory()

    with monkeypatch.context() as patch:
        patch.setattr(torch, "full", count)
        for _ in range(50):
            torch_runs(fake)
        assert len(asked) == 2  # the slab when the kernel is loaded, the buffer
    for _ in range(200):
        a, b = operands()
        reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.launches > 50
    fake.capture(1)
    place(fake)


def test_defect_10_an_interrupt_is_the_callers(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(fake)
    place(fake)

    def interrupt(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        no_memory()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(torch, "full", interrupt)
        fake.matmul(*operands(500, 320))
    time.sleep(0.5)
    place(fake, 500, 320)
    assert launcher.counters()["fallbacks"] == 0


def test_captures_without_any_memory(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    served(fake)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "full", no_memory)
        torch_runs(fake)  # the kernel is loaded, the slab refused
    fake.capture(1)
    torch_runs(fake, 64, 32)
    assert fake.fallbacks() == {"workspace": 2}


def test_other_kernels_ask_for_nothing(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.serve("tma2_v1")
    monkeypatch.setattr(torch, "full", no_memory)
    for number in (0, 1):
        a, b = operands()
        reference.assert_exact(fake.matmul(a, b), a, b)
        fake.capture(number)
    assert fake.control.parts is None
    assert launcher.counters()["fallbacks"] == 0


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
