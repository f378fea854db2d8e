"""What a stranger measured: the file of `hgemm-packs contribute`, read as hostile input.

Called by `generate merge`. Of the file only times, problems, versions and ids of kernels are taken;
what a kernel is, and that it computes the right values, the packs here say. Nothing of it is
believed before a sample was measured again (`tables.sample`).
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.pack.local.conditions import UNKNOWN
from hgemm_packs.pack.manifest import Numerics
from hgemm_packs.pack.strict_json import integer, one_of, read_json, record
from hgemm_packs.tuning import contribution, journal
from hgemm_packs.tuning.journal import Measured, Run

MAX_FILE_BYTES, MAX_FACTS_BYTES, MAX_JOBS = 64 << 20, 1 << 16, 1_000_000
_LIMITS = {contribution.FACTS: MAX_FACTS_BYTES, contribution.JOBS: journal.MAX_BYTES}


@dataclass(frozen=True, slots=True)
class Contribution:
    """A GPU model, its conditions and the jobs under these; `sha256` is that of the file."""

    run: Run
    jobs: tuple[Measured, ...]
    sha256: str

    @property
    def kernels(self) -> set[str]:
        """Ids of all kernels that were measured."""
        return {kernel for job in self.jobs for kernel in job.kernels}


def _facts(schema: str, jobs: int, **fields: Any) -> tuple[Run, int]:
    return journal.make_run(**fields), jobs


_FACTS = record(
    _facts,
    journal.RUN_OPTIONAL,
    schema=one_of(contribution.SCHEMA),
    jobs=integer(1, MAX_JOBS),
    **journal.RUN_FIELDS,
)


def read(path: Path) -> Contribution:
    """Read and check a file. Raises PackError, which says what is wrong and where, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise PackError("file_too_large", f"more than {MAX_FILE_BYTES} bytes", str(path))
    try:
        members = _members(data)
        run, count = _FACTS(read_json(members[contribution.FACTS]))
        jobs = []
        lines = members[contribution.JOBS].split(b"\n")
        if lines.pop():
            raise PackError("torn", "the last line does not end", contribution.JOBS)
        for place, line in enumerate(lines):
            try:
                jobs.append(journal.check_job(read_json(line), run))
            except PackError as error:
                raise error.within(f"{contribution.JOBS}[{place}]") from None
        if len(jobs) != count:
            raise PackError("bad_count", f"{len(jobs)} jobs, not {count}", contribution.JOBS)
    except PackError as error:
        raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None
    return Contribution(run, tuple(jobs), hashlib.sha256(data).hexdigest())


def _members(data: bytes) -> dict[str, bytes]:
    """The two members of the zip, never larger than they may be, whatever the zip says of them."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            infos = file.infolist()
            if [each.filename for each in infos] != [*_LIMITS]:
                names = ", ".join(ascii(each.filename[:60]) for each in infos[:4])
                raise PackError("bad_zip", f"the members are {names}, not {', '.join(_LIMITS)}")
            found = {}
            for each in infos:
                if each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise PackError("bad_zip", f"{each.filename} is packed in another way")
                with file.open(each) as member:
                    found[each.filename] = member.read(_LIMITS[each.filename] + 1)
                if len(found[each.filename]) > _LIMITS[each.filename]:
                    limit = f"more than {_LIMITS[each.filename]} bytes"
                    raise PackError("file_too_large", limit, each.filename)
            return found
    except PackError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise PackError("bad_zip", str(error)) from None
    except (
        RuntimeError,
        ValueError,
        OverflowError,
    ) as error:  # a zip of features that are not read
        raise PackError("bad_zip", f"{type(error).__name__}: {error}") from None


def device_of(found: Contribution) -> DeviceFacts:
    """The device as findings have it."""
    run, now = found.run, found.run.conditions
    versions = {"torch": now.torch, "cublas": now.cublas, "driver": now.driver}
    known = {name: version for name, version in versions.items() if version != UNKNOWN}
    facts = run.profile, run.arch, run.sm_count, run.l2_bytes
    return DeviceFacts(
        *facts,
        versions=known,
        peak_gbps=run.gbps,
        theoretical_mem_bw_gbps=run.theoretical_mem_bw_gbps or 0.0,
        power_limit_w=run.power_limit_w or 0.0,
    )


def findings(
    found: Contribution, packs: Sequence[Packed], confirmed: Iterable[Field] = ()
) -> Findings:
    """A contribution as what a run found, with what was measured of it here under the same
    conditions. Kernels and their proofs are those of the packs. Raises PackError for a kernel that
    none of these has, or that does not take its problem."""
    entries = {entry.id: (pack, entry) for pack in packs for entry in pack.entries.values()}
    unknown = found.kernels - entries.keys()
    if unknown:
        names = ", ".join(sorted({f"{each.name} {each.version}" for each in found.run.packs}))
        detail = f"{len(unknown)} of {len(found.kernels)} kernels are of no pack here: give {names}"
        raise PackError("unknown_kernel", detail)
    for job in found.jobs:
        for kernel in job.kernels:
            unfit = entries[kernel][1].admits(job.problem)
            if unfit is not None:
                raise PackError("not_admitted", f"{job.problem}: {unfit.text}")
    fields = [_field(job) for job in found.jobs]
    proofs: Mapping[str, Numerics] = {id_: entries[id_][1].numerics for id_ in found.kernels}
    return Findings(
        device=device_of(found),
        fields=(*(each for each in fields if each.stage != "noise"), *confirmed),
        trials=tuple(each for each in fields if each.stage == "noise"),
        proofs=proofs,
        kernels={id_: entries[id_][0].built_fields(id_) for id_ in found.kernels},
    )


def _field(job: Measured) -> Field:
    samples = {
        protocol: {arm: tuple(times) for arm, times in arms.items()}
        for protocol, arms in job.samples.items()
    }
    statuses = dict.fromkeys(job.kernels, Status.OK)
    return Field(job.problem, job.stage, samples, statuses, job.date, job.evidence)
