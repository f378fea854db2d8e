"""A row's dependent launch is one only where the capture says that the kernel before is ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.manifest import GridRule
from tests import fake_driver, reference
from tests.fake_driver import Started

MEMSET = 1  # a node that launches no kernel


def served(fake: Started, **changes: Any) -> Started:
    fake.serve("tma2_v1", **changes)
    fake.dependent = lambda problem: True
    return fake


def launched(fake: Started, m: int = 100) -> int:
    """One call of matmul; whether it was launched dependent."""
    a, b = reference.cancelling(m, 72, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert not any(fake.fallbacks().values())
    return int(fake.control.pdl)


def loaded(device: int, pdl: bool) -> Any:
    image = fake_driver.image("kernel", "tma2_v1")
    return launcher.load(device, fake_driver.entry("tma2_v1", cubin=image), image, pdl)


def follow(fake: Started, *nodes: int | None) -> None:
    """The next launch waits for these."""
    fake.control.nodes[:] = [*nodes, None, None][:2]
    fake.control.node_count = len(nodes)


def test_eager_calls_are_ordinary_ones(fake: Started) -> None:
    assert [launched(served(fake)) for _ in range(3)] == [0, 0, 0]


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
