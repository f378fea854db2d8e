"""Real kernels on real devices: the pack on HGEMM_PACKS_PATH, its wins on this device profile.

A missing pack is a failure, not a skip: a GPU run that tests nothing must not look green.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hgemm_packs import launcher, profiles, select
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import ALIGNED, Problem
from hgemm_packs.settings import settings
from tests import reference

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def _is_of_tensors(p: Problem) -> bool:
    """Whether tensors of `exact` and `normal` come to this problem: packed and aligned, and of the
    two layouts of a vector the first."""
    (m, n, k), (a, b) = (p.m, p.n, p.k), p.layout
    vector = (a == "t" and min(m, k) == 1) or (b == "t" and min(k, n) == 1)
    return p.packed and p.base == ALIGNED and not vector


class Wins:
    """Problems that a kernel of the pack under test runs on this device, smallest first: plain
    products, or those `with_epilogue`; no batches."""

    def __init__(self, with_epilogue: bool = False) -> None:
        here = launcher.device_info(0)
        self.kernels: dict[Problem, str] = {}
        for manifest, profile in profiles.find_measured(select.find_packs().packs, here):
            for row in manifest.table:
                one = row.batches == 1
                clears = one and row.kernel is not None and manifest.policy.clears(row)
                wanted = (row.epilogue != "none") is with_epilogue
                problem = Problem(*row.key)
                known = wanted and row.profile == profile.name and _is_of_tensors(problem)
                if clears and known:
                    self.kernels[problem] = manifest.by_id[row.kernel].name
        assert self.kernels, f"HGEMM_PACKS_PATH names no pack with a win on {here}"
        self.problems = sorted(self.kernels, key=lambda p: p.m * p.n * p.k)

    def of_each_kernel(self) -> list[Problem]:
        """The smallest problem of every kernel."""
        return list({self.kernels[p]: p for p in reversed(self.problems)}.values())

    def of_each_named(self) -> list[tuple[Problem, Pack, KernelEntry]]:
        """Every kernel that a win names, its own or that for dependent launches, with the smallest
        problem that names it."""
        found = {}
        for problem in reversed(self.problems):
            choice = select.resolve(problem, 0)
            for entry in (choice.kernel, choice.dependent):
                if choice.pack is not None and entry is not None:
                    found[entry.id] = (problem, choice.pack, entry)
        return list(found.values())

    def of_each_pair(self) -> list[tuple[Problem, Pack, KernelEntry, KernelEntry]]:
        """The smallest problem of every two kernels, perhaps one and the same, that a row names."""
        found = {}
        for problem in reversed(self.problems):
            choice = select.resolve(problem, 0)
            if choice.pack is None or choice.kernel is None or choice.dependent is None:
                continue
            ids = choice.kernel.id, choice.dependent.id
            found[ids] = (problem, choice.pack, choice.kernel, choice.dependent)
        return list(found.values())

    def some(self, count: int, **fields: str) -> list[Problem]:
        """The smallest problems of `count` different kernels, whose fields have these values."""
        fits = [
            p
            for p in self.of_each_kernel()
            if all(getattr(p, name) == value for name, value in fields.items())
        ]
        chosen = sorted(fits, key=lambda p: p.m * p.n * p.k)[:count]
        assert len(chosen) == count, f"the pack has {len(chosen)} such kernels, not {count}"
        return chosen


@pytest.fixture(scope="session")
def wins() -> Wins:
    return Wins()


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """Tests compare counters: each starts from what it finds, in a table of its own."""
    launcher.reset_table()
    yield
    torch.cuda.synchronize()


@pytest.fixture
def unpredicted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch runs every problem without a row."""

    def read_again() -> None:
        settings.cache_clear()
        select.reset()
        launcher.reset_table()

    with monkeypatch.context() as patched:
        patched.setenv("HGEMM_PACKS_PREDICT", "0")
        read_again()
        yield
    read_again()


class Counts:
    """How the counters moved since this was made."""

    def __init__(self) -> None:
        self._start = launcher.counters()

    def moved(self) -> dict[str, int]:
        now = launcher.counters()
        return {k: n - self._start.get(k, 0) for k, n in now.items() if n > self._start.get(k, 0)}

    def only_hits(self, count: int) -> None:
        assert self.moved() == {"hits": count, "launches": count}


def exact(p: Problem, device: str = "cuda", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(p.m, p.n, p.k, p.layout, DTYPES[p.dtype], device=device, seed=seed)


def normal(p: Problem, device: str = "cuda", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.normal(p.m, p.n, p.k, p.layout, DTYPES[p.dtype], device=device, seed=seed)
