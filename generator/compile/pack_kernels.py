"""A pack as measurements want it: its kernels on their way to a device, and which problems it wins.

Used by the benchmarks that measure whole tables. The pack is opened and verified as the runtime
does it; nothing here decides what `matmul` runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hgemm_packs import launcher, profiles
from hgemm_packs.errors import PackError
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.pack.folder import MANIFEST_NAME, Pack
from hgemm_packs.pack.manifest import DeviceProfile, KernelEntry, Row
from hgemm_packs.pack.manifest_reader import Manifest
from hgemm_packs.problem import Problem

#: Fields that a pack gives a kernel, not the compiler.
PLACE = ("offset", "size", "numerics")
#: A problem and the name of a kernel for it, where one is asked for by name.
Asked = tuple[Problem, str | None]


class Packed:
    """The pack in a directory, or one that is open, with the rows of one profile: of the GPU here
    where the pack has it, else of the first. Raises PackError."""

    def __init__(self, place: Path | Pack) -> None:
        self.pack = place if isinstance(place, Pack) else Pack.open(place)
        self.entries = {entry.name: entry for entry in self.pack.manifest.kernels}

    # Who wants kernels alone waits for no torch, and for no second reading of the manifest.
    @cached_property
    def _fields(self) -> dict[str, dict[str, Any]]:
        manifest = (self.pack.path / MANIFEST_NAME).read_bytes()
        if hashlib.sha256(manifest).hexdigest() != self.pack.manifest_sha256:
            raise PackError("manifest_changed", "it is not as it was opened", str(self.pack.path))
        return {kernel["id"]: kernel for kernel in json.loads(manifest)["kernels"]}

    @cached_property
    def profile(self) -> DeviceProfile:
        return _find_profile(self.pack.manifest)

    @cached_property
    def rows(self) -> list[Row]:
        return [row for row in self.pack.manifest.table if row.profile == self.profile.name]

    @cached_property
    def measured(self) -> list[Problem]:
        return [Problem(*row.key) for row in self.rows]

    @cached_property
    def wins(self) -> dict[Problem, str]:
        """The kernels, by name, that the table runs."""
        manifest = self.pack.manifest
        return {
            Problem(*row.key): manifest.by_id[row.kernel].name
            for row in self.rows
            if row.kernel is not None and manifest.policy.clears(row)
        }

    @cached_property
    def dependent(self) -> dict[Problem, str]:
        """The kernels, by name, that the table launches dependently."""
        return {
            Problem(*row.key): self.pack.manifest.by_id[row.dependent].name
            for row in self.rows
            if row.dependent is not None and Problem(*row.key) in self.wins
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a header says about it."""
        info = self.pack.manifest.pack
        return {
            "name": info.name,
            "version": info.version,
            "manifest_sha256": self.pack.manifest_sha256,
            "kernels": len(self.entries),
            "wins": len(self.wins),
        }

    def entry(self, name: str) -> KernelEntry:
        """A kernel by name, id or the beginning of its id. Raises PackError."""
        found = self.entries.get(name)
        same = [e for e in self.entries.values() if e.id.startswith(name)] if not found else []
        if found is None and len(same) != 1:
            raise PackError("unknown_kernel", f"{name!r} names {len(same)} kernels of the pack")
        return found or same[0]

    def kernel(self, name: str) -> CompiledKernel:
        """A kernel to send to a device. Raises PackError."""
        one = self.entry(name)
        return CompiledKernel(self._fields[one.id], bytes(self.pack.image(one)))

    def built(self, name: str) -> CompiledKernel:
        """The same as a compiler hands it over, with what the numeric gate said of it. Raises
        PackError."""
        one = self.kernel(name)
        return CompiledKernel(self.built_fields(one.id), one.cubin, proof=proof(self.entry(name)))

    def built_fields(self, id_: str) -> dict[str, Any]:
        """The fields of a kernel as a compiler hands them over. Raises KeyError."""
        return {key: value for key, value in self._fields[id_].items() if key not in PLACE}

    def list_admitting(self, problem: Problem, tile: int = 0) -> list[str]:
        """Names of the kernels that take `problem` with at least `tile` elements of C a tile."""
        return [
            entry.name
            for entry in self.entries.values()
            if entry.admits(problem) is None and entry.grid.tile_m * entry.grid.tile_n >= tile
        ]

    def choose_kernels(
        self, asked: Iterable[Asked], usual: Mapping[Problem, str]
    ) -> list[tuple[Problem, str]]:
        """Each problem with its kernel: the one asked for, or the `usual`, which is `wins` or
        `behind`. Problems for which there is neither are left out. Raises PackError for a kernel
        that does not take its problem."""
        found = []
        for problem, name in asked:
            chosen = self.entry(name).name if name else usual.get(problem)
            if chosen is None:
                continue
            unfit = self.entries[chosen].admits(problem)
            if unfit is not None:
                raise PackError("unfit_kernel", f"{problem}: {unfit.text}")
            found.append((problem, chosen))
        return found


def proof(entry: KernelEntry) -> Verdict:
    """What a pack says that the numeric gate said of its kernel."""
    seen = entry.numerics
    evidence = {"max_rel_err": seen.max_rel_err, "shapes_tested": seen.shapes_tested}
    return Verdict("numeric", Status.OK, "", evidence)


def _find_profile(manifest: Manifest) -> DeviceProfile:
    import torch  # which help needs not

    here = launcher.device_info(0) if torch.cuda.is_available() else None
    found = here and profiles.match(manifest.device_profiles, here)
    return found or manifest.device_profiles[0]


def parse(values: Sequence[Any]) -> Asked:
    """[m, n, k, layout, dtype] or that and a kernel. Raises ValueError."""
    if len(values) not in (5, 6):
        raise ValueError(f"{list(values)} is not [m, n, k, layout, dtype] or that and a kernel")
    m, n, k, layout, dtype = values[:5]
    return Problem(int(m), int(n), int(k), layout, dtype), (*values, None)[5]


def read(place: str) -> list[Asked]:
    """What to measure: a named list or a .toml as the generator reads them; any other file is JSON
    lines, each as `parse` takes it or an object with "problem" and perhaps "kernel" (so the lines
    of an earlier run will do). Raises PackError, ValueError and OSError."""
    if place in problems.NAMED or place.endswith(".toml"):
        return [(problem, None) for problem in problems.read(place)]
    asked = []
    for line in Path(place).read_text(encoding="utf-8").splitlines():
        value = json.loads(line) if line.strip() else {"header": None}
        if isinstance(value, dict):
            if "problem" not in value:
                continue
            value = [*value["problem"], *([value["kernel"]] if "kernel" in value else [])]
        asked.append(parse(value))
    return asked


def problem_values(problem: Problem) -> list[Any]:
    """The problem as lines have it."""
    return [problem.m, problem.n, problem.k, problem.layout, problem.dtype]
