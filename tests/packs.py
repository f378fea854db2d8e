"""Small valid packs with made-up cubins, for every test that needs one on disk.

`write_good` goes through the generator's packer, so a good pack here is good by the writer's rules
and by the reader's. Its cubins are noise unless a test makes them for the stand-in driver.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceKernel, SourceManifest, write_pack
from hgemm_packs.generator.devices import fake
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import (
    MAPPED,
    PARAM_LAYOUTS,
    WITH_WORKSPACE,
    Baseline,
    DeviceProfile,
    GeneratorInfo,
    Numerics,
    PackInfo,
    Row,
    Timing,
    Toolchain,
    WinPolicy,
)
from hgemm_packs.problem import DeviceInfo, Problem

H200 = DeviceInfo("NVIDIA H200", "sm_90a", 132, 62914560, 13000)
HEADER_BYTES = len(fake.fake_cubin(b""))
GENERATOR = GeneratorInfo("0.1.0", "0" * 40, False)
NUMERICS = Numerics("float64", 2.5e-4, 40)
TENSOR_MAPS = {
    "a": {"operand": "a", "box": [64, 128], "swizzle": 128, "row_group": 0, "l2_promotion": 128},
    "b": {"operand": "b", "box": [64, 64], "swizzle": 128, "row_group": 0, "l2_promotion": 256},
    "c": {"operand": "c", "box": [32, 16], "swizzle": 64, "row_group": 0, "l2_promotion": 0},
}
#: Problems of the good pack: two wins, one that cuBLAS keeps, one whose bound is in the noise.
WIN = Problem(256, 512, 1024, "nn", "f16")
WIN_SMALL = Problem(64, 64, 128, "nn", "f16")
CUBLAS = Problem(512, 512, 512, "nn", "f16")
NOISE = Problem(128, 128, 128, "nn", "f16")


@dataclass(frozen=True)
class FakeBuilt:
    """The shape of generator.build.Built."""

    entry_fields: dict[str, Any]
    cubin: bytes


def fake_cubin(name: str, size: int) -> bytes:
    """A cubin whose code is noise, the same in every run and alike in no two kernels."""
    return fake.fake_cubin(hashlib.shake_256(name.encode()).digest(size - HEADER_BYTES))


def built(name: str, param_layout: str, *, size: int = 1000, **changes: Any) -> FakeBuilt:
    """A kernel as the build hands it over; `changes` replace fields of its launch record."""
    cubin = changes.pop("cubin", None) or fake_cubin(name, size)
    span = {"min": 8, "max": 16384, "multiple_of": 8}
    has_workspace = param_layout in WITH_WORKSPACE
    grid = {"tile_m": 128, "tile_n": 64, "persistent": not has_workspace}
    fields: dict[str, Any] = {
        "id": hashlib.sha256(cubin).hexdigest(),
        "name": name,
        "symbol": name,
        "family": "sm90_test",
        "genome": {"tile_m": 128, "layout": "nn", "persistent": True},
        "param_layout": param_layout,
        "param_sizes": list(PARAM_LAYOUTS[param_layout]),
        "block": 384,
        "cluster": [2, 1, 1],
        "grid": grid | ({"slices": 4} if has_workspace else {}),
        "smem_bytes": 98304,
        "regs": 168,
        "tma": [TENSOR_MAPS[operand] for operand in MAPPED[param_layout]],
        "workspace_bytes": 16384 if has_workspace else 0,
        "align": {"a": 16, "b": 16, "c": 16},
        "dims": {"m": dict(span), "n": dict(span), "k": dict(span)},
        "dtype": "f16",
        "out_dtype": "f16",
        "acc": "f32",
        "layout": "nn",
        "epilogue": "none",
        "deterministic": True,
    }
    if has_workspace:
        fields["cooperative"] = True
    return FakeBuilt(fields | changes, cubin)


def row(
    problem: Problem,
    kernel: FakeBuilt | None,
    *,
    lcb: float = 1.08,
    dependent: FakeBuilt | None = None,
) -> Row:
    """A measured row of `problem` on the H200."""
    timing = Timing(10.0, 11.5, 11.2, max(lcb, 1.12), lcb)
    own, behind = (each and each.entry_fields["id"] for each in (kernel, dependent))
    measured = Row(*problem.key[:8], own, H200.name, timing, timing, 60, "2026-11-20", behind)
    return measured._replace(base=problem.base, packed=problem.packed, batches=problem.batches)


def source(kernels: list[FakeBuilt], rows: list[Row], **changes: Any) -> SourceManifest:
    """The source document of the given kernels and rows."""
    values: dict[str, Any] = {
        "pack": PackInfo("test-pack", "1.0.0", "Apache-2.0", "2026-11-20T00:00:00Z"),
        "arch": "sm_90a",
        "device_profiles": (DeviceProfile(H200.name, H200.sm_count, H200.l2_bytes, 4800.0),),
        "min_driver": 13000,
        "toolchain": Toolchain("13.0.88", "1.2.2", ("-std=c++17",)),
        "baseline": Baseline("2.11.0+cu130", "13.1.0", "580.159", "paired graph replays"),
        "policy": WinPolicy(0.02, "both lower bounds above one plus the noise floor"),
        "kernels": tuple(
            SourceKernel(f["id"], f["name"], f["family"], f["genome"], NUMERICS)
            for f in (kernel.entry_fields for kernel in kernels)
        ),
        "table": tuple(rows),
    }
    return SourceManifest(**values | changes)


#: Makes a cubin from a kernel's name and parameter layout; the size is filled up with zeros.
CubinMaker = Callable[[str, str], bytes]

_GOOD = (("k_direct", "ptr_v1", 700), ("k_tma2", "tma2_v1", 1300), ("k_tma3", "tma3_v1", 900))


def good_kernels(make: CubinMaker | None = None, arch: str = "sm_90a") -> list[FakeBuilt]:
    """One kernel of each parameter layout, none of a size that needs no padding."""

    def cubin(name: str, layout: str, size: int) -> bytes:
        made = make(name, layout) if make else fake_cubin(name, size)
        return fake.fake_cubin(made[HEADER_BYTES:], arch).ljust(size, b"\0")

    return [built(name, layout, cubin=cubin(name, layout, size)) for name, layout, size in _GOOD]


def good_rows(kernels: list[FakeBuilt]) -> list[Row]:
    return [row(WIN, kernels[1]), row(WIN_SMALL, kernels[0]), row(CUBLAS, None)]


def write_good(directory: Path, make: CubinMaker | None = None, **changes: Any) -> Pack:
    """Write the good pack; `changes` replace fields of its source document."""
    kernels = good_kernels(make, changes.get("arch", "sm_90a"))
    return write_pack(
        directory,
        source(kernels, good_rows(kernels), **changes),
        kernels,  # type: ignore[arg-type]
        generator_info=GENERATOR,
    )
