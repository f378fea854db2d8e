"""What was measured of kernels' bits is what the batch-invariant mode takes for granted, and its
rule finds fast kernels in recordings that it has not seen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.measure import invariant
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.devices.recording import load
from hgemm_packs.generator.families import FAMILIES, family
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.pack import batch_invariant
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.pack.manifest_fields import KERNEL
from hgemm_packs.problem import Problem

COMMITTED = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"
PROBLEMS = 4 * 4 * 2  # sizes, layouts, types


class Committed:
    """The committed manifest as far as `batch_invariant.rank` reads one; nothing is compiled."""

    def __init__(self, source: SourceManifest) -> None:
        self._source = source
        self.table, self.device_profiles = source.table, source.device_profiles

    @cached_property
    def by_id(self) -> Mapping[str, KernelEntry]:
        return {entry.id: entry for entry in self._entries()}

    @property
    def kernels(self) -> tuple[KernelEntry, ...]:
        return tuple(self.by_id.values())

    def kernel(self, kernel_id: str) -> KernelEntry:
        return self.by_id[kernel_id]

    def _entries(self) -> Iterator[KernelEntry]:
        for kernel in self._source.kernels:
            fields = family(kernel.family).fields(family(kernel.family).whole(kernel.genome))
            built = {"id": kernel.id, "offset": 0, "size": 1, "regs": 1}
            yield KERNEL(fields | built | {"numerics": kernel.numerics._asdict()})


@pytest.fixture(scope="module")
def committed() -> Committed:
    return Committed(read_source(COMMITTED))


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """The last of each kernel and problem, but for torch's."""
    found = {}
    for line in read_records(folders.list_files("bits")):
        if line["kernel"] != "torch":
            found[line["id"], line["layout"], line["dtype"], line["n"], line["k"]] = line
    return list(found.values())


def test_kernels_that_add_in_order_give_the_same_bits(
    committed: Committed, lines: list[dict[str, Any]]
) -> None:
    bits: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    others: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for line in lines:
        problem = line["layout"], line["dtype"], line["n"], line["k"]
        entry = committed.by_id.get(line["id"])
        if "error" in line or entry is None:
            continue
        if not batch_invariant.adds_in_order(entry):
            others[problem].add(line["full"])
            continue
        bits[problem].add(line["full"])
        assert line["rows_move"], entry.name
        assert {line[f"m{m}"] for m in (1, 16, 64, 200)} <= {True, None}, entry.name
    assert len(bits) == PROBLEMS and all(len(each) == 1 for each in bits.values())
    # And others do not: the hash tells orders apart.
    assert all(others[problem] - bits[problem] for problem in bits)


def test_every_kernel_of_the_mode_was_measured(
    committed: Committed, lines: list[dict[str, Any]]
) -> None:
    measured = {line["id"] for line in lines if "error" not in line}
    mode = {each.id for each in committed.kernels if batch_invariant.adds_in_order(each)}
    assert len(mode) > 1000 and mode <= measured


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("n", "k"), [*invariant.LAYERS[:3], (1048, 2888), (64, 8)])
def test_the_committed_table_has_a_kernel_for_every_m(
    committed: Committed, n: int, k: int, dtype: str
) -> None:
    """Of any N and K that are multiples of 8, whatever rows there are."""
    for layout, step in (("nn", 1), ("nt", 1), ("tn", 8), ("tt", 8)):
        for m in (1, 7, 16, 63, 129, 1000, 4096, 50_001):
            problem = Problem(-(-m // step) * step, n, k, layout, dtype)
            ranked = batch_invariant.rank(committed, problem, 132)  # type: ignore[arg-type]
            assert ranked and all(batch_invariant.adds_in_order(each.kernel) for each in ranked)
            assert all(each.kernel.admits(problem) is None for each in ranked)


def test_the_rule_finds_fast_kernels_in_recordings() -> None:
    """Each problem of the recordings without the rows of its own N and K: the kernel that the rule
    chooses among those of the rows nearby, against the fastest of all that were recorded."""
    times: dict[Problem, dict[Any, float]] = {}
    for path in sorted(folders.RESULTS.glob("replay/*.npz")):
        for problem, screen in load(path, any_catalogue=True).items():
            times[problem] = {
                choice: us
                for choice, us in zip(screen.choices, screen.us.tolist(), strict=True)
                if choice.family == "sm90_wgmma" and dict(choice.genome)["split_k"] == 1
                if not dict(choice.genome)["reads_ahead"] and math.isfinite(us)
            }
    records: dict[Any, Any] = {}

    def kernel(choice: Any) -> Any:
        if choice not in records:
            fields = FAMILIES[choice.family].record(choice.genome)
            grid = SimpleNamespace(**fields["grid"])
            records[choice] = SimpleNamespace(
                family=choice.family, grid=grid, cluster=fields["cluster"]
            )
        return records[choice]

    rows = [
        (problem, choice, us)
        for problem, found in times.items()
        for choice, us in sorted(found.items(), key=lambda each: each[1])[:3]
    ]
    ruled, nearest = [], []
    for problem, found in times.items():
        near = sorted(
            (
                row
                for row in rows
                if row[0].key[3:] == problem.key[3:] and row[0].key[1:3] != problem.key[1:3]
                if row[1] in found
            ),
            key=lambda row: batch_invariant.distance(row[0], problem),  # type: ignore[arg-type]
        )[: batch_invariant.NEAREST]
        best = min(found.values())
        estimates = {
            choice: us
            * batch_invariant.estimate_us(kernel(choice), problem, 132)
            / batch_invariant.estimate_us(kernel(choice), there, 132)
            for there, choice, us in reversed(near)
        }
        ruled.append(found[min(estimates, key=lambda choice: estimates[choice])] / best)
        nearest.append(found[near[0][1]] / best)
    assert len(times) == 109
    assert geometric_mean(ruled) < 1.07 and max(ruled) < 1.5
    assert geometric_mean(ruled) < geometric_mean(nearest) - 0.04
