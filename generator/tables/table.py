"""From what was measured to a selection table and its source manifest, for any device.

Called by the CLI with a store or an export. A row names a kernel only where the confirmation of a
kernel that passed the numeric gate clears the noise floor; nothing is compiled here.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from hgemm_packs.generator.compile import candidate, compiler
from hgemm_packs.generator.compile.pack_writer import SourceKernel, SourceManifest
from hgemm_packs.generator.core.spec import TOLERANCES
from hgemm_packs.generator.families import Genome, makes
from hgemm_packs.generator.gates.plausibility import compulsory_bytes
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.tables.judge import Contender, Listed
from hgemm_packs.generator.tables.prune import Pruned, prune
from hgemm_packs.pack import batch_invariant, manifest_checks
from hgemm_packs.pack.manifest import (
    Baseline,
    DeviceProfile,
    Numerics,
    PackInfo,
    Row,
    Toolchain,
    WinPolicy,
)
from hgemm_packs.problem import Problem
from hgemm_packs.profiles import names

VERSIONS = ("torch", "cublas", "driver")
#: Which kernels, with their manifest fields by id, may be named by a table.
Usable = Callable[[Mapping[str, Mapping[str, Any]]], set[str]]
#: What compiles (family, genome) pairs: `build.build`.
Compile = Callable[[Sequence[tuple[str, Genome]]], Sequence[compiler.Built | compiler.BuildError]]
PROTOCOL = "CUDA-graph replay, hot and cold, interleaved, N(0,1), fp32 accumulate"


def winners(listed: Listed, keep: float = 1.0) -> tuple[dict[Problem, Contender], Pruned]:
    """The proven kernel of each problem that has one, after pruning to `keep` of the log gain.

    Choices go by the finals, figures come from the confirmation: choosing flatters no figure.
    """
    proven = {p: [c for c in each if c.proven] for p, each in listed.items()}
    pruned = prune({p: {c.kernel: c.gain for c in each} for p, each in proven.items()}, keep)
    kept = set(pruned.kernels)
    chosen = {p: next((c for c in each if c.kernel in kept), None) for p, each in proven.items()}
    return {p: c for p, c in chosen.items() if c is not None}, pruned


def source(found: Findings, keep: float = 1.0) -> SourceManifest:
    """The source manifest of the device: a row for every problem with finals, its winner or cuBLAS.

    Raises ValueError without noise records or without finals.
    """
    listed, floor = judge_findings(found)
    won, _ = winners(listed, keep)
    return make_source(found, listed, won, floor, {c.kernel for c in won.values()})


class Rebuilt(NamedTuple):
    """A table of kernels that still build; the contenders that it was chosen among, with the
    others not proven any more; and the names of those others."""

    source: SourceManifest
    listed: Listed
    gone: list[str]


def rebuild(
    found: Findings, keep: float, usable: Usable, ranked: Callable[[Listed], Listed] = dict
) -> Rebuilt:
    """`source` of the kernels alone that are `usable`, as `make_usable` tells: sources may have
    moved on since a run, and a table names nothing that cannot be built. A problem that loses its
    kernel so gets its next. `rank_sustained` may order contenders anew. Raises what `source`
    does."""
    as_found, floor = judge_findings(found)
    listed = ranked(as_found)
    built: set[str] = set()
    gone: dict[str, str] = {}
    while True:
        left = {
            problem: [replace(c, proven=c.proven and c.kernel not in gone) for c in each]
            for problem, each in listed.items()
        }
        won, _ = winners(left, keep)
        fresh = {c.kernel: found.kernels[c.kernel] for c in won.values() if c.kernel not in built}
        built |= usable(fresh)
        lost = {id_: str(fields["name"]) for id_, fields in fresh.items() if id_ not in built}
        if not lost:
            chosen = {c.kernel for c in won.values()}
            document = make_source(found, left, won, floor, chosen)
            return Rebuilt(document, left, sorted(gone.values()))
        gone |= lost


def candidates(
    found: Findings,
    usable: Usable,
    chosen: Callable[[Problem, list[Contender]], list[Contender]],
) -> tuple[SourceManifest, dict[Problem, list[Contender]]]:
    """A source manifest, unpruned, of what `chosen` takes of each problem's contenders, as far as
    it is `usable`, and what that is; the first of a problem is its row's own, and must be proven.
    Raises ValueError where nothing is left, and what `source` does."""
    listed, floor = judge_findings(found)
    taken = {problem: chosen(problem, list(each)) for problem, each in listed.items()}
    ids = {c.kernel for each in taken.values() for c in each}
    built = usable({id_: found.kernels[id_] for id_ in ids})
    left = {p: [c for c in each if c.kernel in built] for p, each in taken.items()}
    left = {p: each for p, each in left.items() if each and each[0].proven}
    if not left:
        raise ValueError("no confirmed win is a candidate")
    best = {problem: each[0] for problem, each in left.items()}
    return make_source(found, left, best, floor, built), left


def make_usable(compile: Compile) -> Usable:
    """What is usable where kernels must be built again: those that `compile` makes as they were."""

    def usable(kernels: Mapping[str, Mapping[str, Any]]) -> set[str]:
        jobs = [
            (fields["family"], fields["genome"])
            for _, fields in sorted(kernels.items())
            if makes(fields["family"], fields["genome"])
        ]
        done = [one for one in compile(jobs) if isinstance(one, compiler.Built)]
        return kernels.keys() & {one.entry_fields["id"] for one in done}

    return usable


def restrict_usable(ids: Container[str], usable: Usable) -> Usable:
    """Of these kernels alone what is `usable`; the others are not even asked of."""
    return lambda kernels: usable({id_: each for id_, each in kernels.items() if id_ in ids})


def restrict_to_bits(measured: Container[str], usable: Usable) -> Usable:
    """Of kernels that add K up in order, which the batch-invariant mode takes for alike, those
    alone whose bits were `measured`; all others as they are `usable`."""

    def is_known(id_: str, fields: Mapping[str, Any]) -> bool:
        in_order = batch_invariant.adds_in_order(candidate.described(fields))
        return id_ in measured or not in_order

    return lambda kernels: usable({i: each for i, each in kernels.items() if is_known(i, each)})


def judge_findings(found: Findings) -> tuple[dict[Problem, list[Contender]], float]:
    """`contenders` of all findings, and the lowest noise floor that any of them was held against.
    Raises what `source` does."""
    kinds = judge.floors(found)
    listed = judge.contenders(found, kinds)
    if not listed:
        raise ValueError(f"no kernel reached the finals on {found.device.name}")
    return listed, min(kinds.values())


def make_source(
    found: Findings,
    listed: Listed,
    won: Mapping[Problem, Contender],
    floor: float,
    ids: Iterable[str],
) -> SourceManifest:
    """The source manifest with a row for each of `listed` and the kernels of `ids`."""
    rows = [
        _make_row(won[problem]) if problem in won else _cublas_row(found, each[0])
        for problem, each in listed.items()
    ]
    versions = dict.fromkeys(VERSIONS, "unknown") | dict(found.device.versions)
    kernels = [source_kernel(found, id_) for id_ in sorted(ids)]
    date = max(each.date for each in rows)
    device, name = profile(found), names.of_machine(found.device.name)
    return document(found.device.arch, device, versions, floor, kernels, rows, date, name)


def document(
    arch: str,
    device: DeviceProfile,
    versions: Mapping[str, str],
    floor: float,
    kernels: Sequence[SourceKernel],
    rows: Sequence[Row],
    date: str,
    name: str,
) -> SourceManifest:
    """The source manifest of these rows; `versions` are those of VERSIONS that measured them."""
    return SourceManifest(
        pack=PackInfo(name, "0.1.0", "Apache-2.0", f"{date}T00:00:00Z"),
        arch=arch,
        device_profiles=(device,),
        min_driver=compiler.MIN_DRIVER,
        toolchain=Toolchain(
            compiler.NVRTC_PIN, importlib.metadata.version("cuda-core"), compiler.FLAGS
        ),
        baseline=Baseline(versions["torch"], versions["cublas"], versions["driver"], PROTOCOL),
        policy=WinPolicy(floor, judge.RULE),
        kernels=tuple(kernels),
        table=tuple(rows),
        launcher_abi=manifest_checks.abi_of(rows),
    )


def _make_row(won: Contender) -> Row:
    """The row of a proven kernel, made of its confirmation."""
    assert won.row is not None, f"{won.kernel} is proven without a confirmation"
    return won.row


def _cublas_row(found: Findings, best: Contender) -> Row:
    figures = best.row or judge.row(best.field, best.kernel, found.device.name)
    return figures._replace(kernel=None)


def source_kernel(found: Findings, kernel: str) -> SourceKernel:
    """A proven kernel as a source manifest has it."""
    f, seen = found.kernels[kernel], found.proofs[kernel]
    numerics = Numerics(seen.reference, round(seen.max_rel_err, 9), seen.shapes_tested)
    return SourceKernel(f["id"], f["name"], f["family"], f["genome"], numerics)


def profile(found: Findings) -> DeviceProfile:
    """The device as a manifest names it. Its bandwidth is that of the best copy, or where that was
    not measured, of the best product with cold caches; beside it stands what the driver says."""
    device = found.device
    gbps = device.peak_gbps or max(
        compulsory_bytes(each.problem) / median(us) / 1e3
        for each in found.fields
        for us in each.samples["cold"].values()
    )
    return DeviceProfile(
        *(device.name, device.sm_count, device.l2_bytes, round(gbps, 1)),
        *(round(getattr(device, name), 1) or None for name in TOLERANCES),
    )
