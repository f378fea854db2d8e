"""A row's dependent launch is one only where the capture says that the kernel before is ours."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.manifest import GridRule
from tests import fake_driver, reference
from tests.cpu.call.captured import EARLY, MEMSET, follow, launched, loaded, served, zeros
from tests.fake_driver import Started


def test_eager_calls_are_ordinary_ones(fake: Started) -> None:
    assert [launched(served(fake)) for _ in range(3)] == [0, 0, 0]


def test_the_legacy_stream_is_not_asked_for_a_capture(fake: Started) -> None:
    """It can be in none, and asking costs a call of the driver."""
    launched(served(fake))
    for stream, times in ((fake_driver.LEGACY, 0), (0, 1)):
        fake.set_stream(stream)
        asked = fake.control.asked
        assert launched(fake) == 0 and fake.control.asked == asked + times


def test_behind_our_own_kernel_a_capture_is_dependent(fake: Started) -> None:
    launched(served(fake))  # loads
    fake.capture(7)
    assert [launched(fake) for _ in range(3)] == [0, 1, 1]
    fake.capture(0)
    assert launched(fake) == 0


def test_not_behind_what_is_foreign(fake: Started) -> None:
    launched(served(fake))
    fake.capture(7)
    launched(fake)
    own = fake.control.nodes[0]
    for nodes in ([MEMSET], [own + 8], [None], [own, own], []):
        follow(fake, *nodes)
        assert [launched(fake), launched(fake)] == [0, 1]


@pytest.mark.parametrize("pdl", [False, True])
def test_any_kernel_of_ours_on_this_device_will_do(fake: Started, pdl: bool) -> None:
    launched(served(fake))
    fake.capture(7)
    for device in (0, 1):
        loaded(device, pdl)
        follow(fake, fake.control.loaded)
        assert launched(fake) == (device == 0)


@pytest.mark.parametrize("device", [-1, 1])
def test_the_capture_is_asked_for_in_the_tensors_context(fake: Started, device: int) -> None:
    launched(served(fake))
    fake.capture(7)
    fake.set_device(device)
    assert [launched(fake) for _ in range(2)] == [0, 1]
    assert fake.current_device() == device


def test_pairs_are_for_dependent_launches(fake: Started) -> None:
    launched(served(fake, grid=GridRule(64, 32, True)))
    assert (fake.control.grid, fake.control.cluster) == (6, 1)
    fake.capture(7)
    for cluster in (1, 2, 2):
        launched(fake)
        assert (fake.control.grid, fake.control.cluster) == (6, cluster)


def test_this_very_kernel_is_launched_as_it_was_loaded(bare: Started) -> None:
    """launcher.launch is for measuring: nothing decides but the caller."""
    a, b = reference.cancelling(64, 32, 64, "nn", torch.float16)
    for pdl in (False, True):
        kernel = loaded(0, pdl)
        for number in (0, 1):
            bare.capture(number)
            for _ in range(2):
                launcher.launch(kernel, a, b, torch.empty(64, 32, dtype=torch.float16))
                assert bare.control.pdl == pdl
        bare.capture(0)


def test_pairs_are_for_dependent_launches_of_this_very_kernel(bare: Started) -> None:
    kernel = loaded(0, True, grid=GridRule(64, 32, True), reads_ahead=True)
    a, b = reference.cancelling(128, 64, 64, "nn", torch.float16)
    outs = [zeros(128, 64) for _ in range(2)]
    bare.capture(7)
    for out, cluster in zip(outs, (1, 2), strict=True):
        launcher.launch(kernel, a, b, out)
        assert (bare.control.grid, bare.control.cluster) == (4, cluster)


def test_matmul_that_does_not_read_ahead_looks_at_one_node(fake: Started) -> None:
    """Whatever reads ahead before it: it waits for all of it."""
    launched(served(fake))
    ahead = loaded(0, True, **EARLY)
    fake.capture(7)
    fake.control.fail_edges = 1
    launcher.launch(ahead, zeros(64, 64), zeros(64, 32), zeros(64, 32))
    assert launched(fake) == 1
