"""The source document that is committed, and the pack directory made from it and built kernels.

Called by the CLI's build, and by `table`, which makes the source document. How files are written
is `hgemm_packs.pack.writer`. The bytes depend on the arguments alone: no clock, no host, no order
of dictionaries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler, source_folder
from hgemm_packs.generator.compile.compiler import BuildError, Built
from hgemm_packs.pack import (
    grouped,
    manifest_checks,
    manifest_fields,
    prediction_fields,
    predictor,
)
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import (
    PLAIN_ABI,
    SCHEMA,
    Baseline,
    DeviceProfile,
    GeneratorInfo,
    GroupedRow,
    Numerics,
    PackInfo,
    Row,
    Toolchain,
    WinPolicy,
)
from hgemm_packs.pack.predictor import Predictor
from hgemm_packs.pack.strict_json import listing, one_of, record
from hgemm_packs.pack.writer import add_cubin, check_target, in_lines, plain, write, write_folder

SOURCE_SCHEMA = "hgemm-packs/source-1"


@dataclass(frozen=True, slots=True)
class SourceKernel:
    """A kernel to build: the genome makes the cubin, `id` is what its sha256 must be."""

    id: str
    name: str
    family: str
    genome: Mapping[str, int | str | bool]
    numerics: Numerics


@dataclass(frozen=True, slots=True)
class SourceManifest:
    """The committed truth of one device: which kernels, and what was measured with them."""

    pack: PackInfo
    arch: str
    device_profiles: tuple[DeviceProfile, ...]
    min_driver: int
    toolchain: Toolchain
    baseline: Baseline
    policy: WinPolicy
    kernels: tuple[SourceKernel, ...]
    table: tuple[Row, ...]
    schema: str = SOURCE_SCHEMA
    launcher_abi: int = PLAIN_ABI
    grouped: tuple[GroupedRow, ...] = ()
    predictors: tuple[Predictor, ...] = ()


_SOURCE_KERNEL = record(
    SourceKernel,
    id=manifest_fields.SHA256,
    name=manifest_fields.NAME,
    family=manifest_fields.NAME,
    genome=manifest_fields.GENOME,
    numerics=manifest_fields.NUMERICS,
)


def _source(**values: Any) -> SourceManifest:
    source = SourceManifest(**values)
    by_id = manifest_checks.unique_kernels(source.kernels)
    manifest_checks.index_rows(source.table, by_id, source.device_profiles)
    for index, row in enumerate(source.table):
        manifest_checks.check_row(source.launcher_abi, row)
        if row.kernel is not None and not source.policy.clears(row):
            detail = "a row names a kernel whose win is not above the noise floor"
            raise PackError("unproven_win", detail, f"table[{index}]")
    if source.grouped:
        manifest_checks.check_grouped_abi(source.launcher_abi)
        grouped.check_order(source.grouped, source.device_profiles)
    for index, each in enumerate(source.grouped):
        if each.kernel is not None and each.kernel not in by_id:
            raise PackError("unknown_kernel", each.kernel, f"grouped[{index}].kernel")
        if each.kernel is not None and not source.policy.clears(each):
            detail = "a row names a kernel whose win is not above the noise floor"
            raise PackError("unproven_win", detail, f"grouped[{index}]")
    for index, one in enumerate(source.predictors):
        predictor.check_predictor(one)
        missing = {candidate.kernel for candidate in one.candidates} - by_id.keys()
        if missing:
            raise PackError("unknown_kernel", min(missing), f"predictors[{index}]")
    return source


_SOURCE = record(
    _source,
    manifest_fields.OPTIONAL_FIELDS | {"predictors": prediction_fields.PREDICTORS},
    schema=one_of(SOURCE_SCHEMA),
    kernels=listing(_SOURCE_KERNEL, 0, manifest_fields.MAX_KERNELS),
    **manifest_fields.SHARED_FIELDS,
)


def read_source(path: str | os.PathLike[str]) -> SourceManifest:
    """Read and check a source document, a file or a folder. Raises PackError, or OSError when it
    cannot be read."""
    place = Path(path)
    folder = place.is_dir()
    data = in_lines(source_folder.join(place)) if folder else place.read_bytes()
    source: SourceManifest = manifest_checks.read_document(data, SOURCE_SCHEMA, _SOURCE)
    return _sort_source(source) if folder else source


def write_source(path: str | os.PathLike[str], source: SourceManifest) -> None:
    """Write a source document, one kernel and one row a line, after checking it: a file where the
    path ends in .json, else a folder.

    Raises PackError for a document that `read_source` would refuse; the old one then stays.
    """
    document = plain(_sort_source(source))
    if not source.grouped:
        del document["grouped"]
    data = in_lines(document)
    manifest_checks.read_document(data, SOURCE_SCHEMA, _SOURCE)
    target = Path(path)
    if source_folder.is_folder(target):
        source_folder.write(target, source_folder.split(document), write)
        return
    temporary = target.with_name(target.name + ".new")
    write(temporary, data)
    temporary.replace(target)


def write_pack(
    out_dir: str | os.PathLike[str],
    source: SourceManifest,
    built: Iterable[Built],
    *,
    generator_info: GeneratorInfo,
) -> Pack:
    """Assemble the pack of `source` from its built kernels and put it at `out_dir`, replacing a
    pack that is there.

    Raises PackError when the built kernels are not the ones that the source names, or when the
    result is no valid pack; FileExistsError when `out_dir` holds anything but a pack.
    """
    source = _sort_source(source)
    entries, blob = _assemble(source, built)
    names = [*manifest_fields.SHARED_FIELDS, *(["grouped"] if source.grouped else [])]
    shared = {name: getattr(source, name) for name in names}
    document = plain(shared) | {
        "schema": SCHEMA,
        "generator": generator_info._asdict(),
        "kernels": entries,
    }
    if source.predictors:
        document["predictors"] = plain(source.predictors)
    out = Path(out_dir).absolute()
    write_folder(out, document, blob)
    return Pack.open(out)


def build_pack(
    source_path: Path,
    out_dir: Path,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pack:
    """Compile the kernels that a committed manifest names and write their pack to `out_dir`. The
    pack names no commit: whoever rebuilds it, from a checkout or a wheel, gets the same bytes.

    Raises BuildError when a kernel does not compile, spills or is not the one that was measured
    (its id differs), PackError for a damaged manifest, OSError, before anything is compiled, for an
    `out_dir` that cannot be written or holds something else than a pack.
    """
    check_target(out_dir.absolute())
    source = read_source(source_path)
    built = compiler.build(
        ((kernel.family, kernel.genome) for kernel in source.kernels), jobs, progress
    )
    for kernel, one in zip(source.kernels, built, strict=True):
        if isinstance(one, BuildError):
            raise one
        if one.entry_fields["id"] != kernel.id:
            raise BuildError(f"{kernel.name}: built {one.entry_fields['id']}, measured {kernel.id}")
    done = [one for one in built if isinstance(one, Built)]
    return write_pack(out_dir, source, done, generator_info=compiler.released_info())


def with_predictors(source: SourceManifest, predictors: tuple[Predictor, ...]) -> SourceManifest:
    """The same document with these predictors."""
    return replace(source, predictors=predictors)


def _assemble(source: SourceManifest, built: Iterable[Built]) -> tuple[list[dict[str, Any]], bytes]:
    """Manifest entries and blob, in the order of the source."""
    by_id = {each.entry_fields["id"]: each for each in built}
    extra = by_id.keys() - {kernel.id for kernel in source.kernels}
    entries: list[dict[str, Any]] = []
    blob = bytearray()
    for kernel in source.kernels:
        one = by_id.get(kernel.id)
        if one is None:
            got = {by_id[i].entry_fields["name"]: i for i in extra}.get(kernel.name, "nothing")
            raise PackError("not_built", f"{kernel.id} expected, {got} built", kernel.name)
        facts = one.entry_fields
        for name in ("name", "family", "genome"):
            if facts[name] != getattr(kernel, name):
                raise PackError("build_differs", f"{name} is {facts[name]!r}", kernel.name)
        place = add_cubin(blob, one.cubin)
        entries.append(facts | place | {"numerics": kernel.numerics._asdict()})
    if extra:
        raise PackError("not_in_source", f"{len(extra)} built kernels, such as {min(extra)}")
    return entries, bytes(blob)


def _sort_source(source: SourceManifest) -> SourceManifest:
    """Kernels by name, rows by profile and problem: one document has one form."""
    values = {field.name: getattr(source, field.name) for field in fields(source)}
    values["kernels"] = tuple(sorted(source.kernels, key=lambda kernel: kernel.name))
    values["table"] = tuple(sorted(source.table, key=lambda row: (row.profile, row.key)))
    values["grouped"] = tuple(sorted(source.grouped, key=grouped.place))
    values["predictors"] = tuple(sorted(source.predictors, key=lambda each: each.profile))
    return SourceManifest(**values)
