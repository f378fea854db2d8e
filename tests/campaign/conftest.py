"""The launcher on the stand-in driver, with a kernel for every problem of a pack or for none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hgemm_packs import torch_state
from tests.cpu.conftest import bare, driver_library, fake
from tests.fake_driver import Started

# Before it is imported, so that what differs is shown.
pytest.register_assert_rewrite("tests.campaign.sides")

from .sides import serve_all  # noqa: E402

__all__ = ["bare", "driver_library", "fake", "one_thread", "ours"]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Products this small wait for torch's other threads longer than they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["served", "recorded", "not served"])
def ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Started:
    """Whether torch's state or the table sends a call to torch must make no difference, nor may it
    where gradients are recorded as products of ours."""
    if request.param == "recorded":
        monkeypatch.setattr(torch_state, "LEAST_RECORDED", 0.0)
    fake: Started = request.getfixturevalue("fake")
    if request.param != "not served":
        serve_all(fake)
    return fake
