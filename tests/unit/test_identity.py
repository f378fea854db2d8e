"""Two kernels are one if they are one cubin that is launched alike, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from hgemm_packs.pack import identity
from hgemm_packs.pack.manifest import DimRange, GridRule, KernelEntry, Numerics, TensorMapSpec

A_MAP = TensorMapSpec("a", (64, 128), 128, 0, 128)
KERNEL = KernelEntry(
    **{"id": "a" * 64, "name": "k", "symbol": "k", "family": "f", "genome": {"tile_m": 64}},
    **{"offset": 0, "size": 9, "param_layout": "tma2_v1", "param_sizes": (128, 128), "block": 128},
    **{"cluster": (1, 1, 1), "grid": GridRule(64, 32, False), "smem_bytes": 1024, "regs": 64},
    **{"tma": (A_MAP,), "workspace_bytes": 0, "align": (16, 16, 16)},
    **{"m": DimRange(1, 64, 1), "n": DimRange(8, 64, 8), "k": DimRange(8, 96, 8), "dtype": "f16"},
    **{"out_dtype": "f16", "acc": "f32", "layout": "nn", "epilogue": "none"},
    **{"deterministic": True, "numerics": Numerics("float64", 1e-3, 1)},
)
#: What changes a launch; each alone makes another kernel.
LAUNCHED: list[dict[str, Any]] = [
    {"id": "b" * 64},
    {"symbol": "other"},
    {"param_layout": "tma3_v1"},
    {"param_sizes": (128, 64)},
    {"tma": ()},
    *({"tma": (A_MAP._replace(**x),)} for x in ({"box": (32, 128)}, {"swizzle": 64})),
    *({"tma": (A_MAP._replace(**{x: 64}),)} for x in ("row_group", "l2_promotion")),
    {"block": 256},
    {"cluster": (2, 1, 1)},
    *({"grid": GridRule(*x)} for x in ((32, 32, False), (64, 64, False), (64, 32, True))),
    {"grid": GridRule(64, 32, False, 2)},
    {"cooperative": True},
    {"reads_ahead": True},
    {"triggers_early": True},
    {"smem_bytes": 2048},
    {"workspace_bytes": 16},
    {"layout": "nt"},
    {"dtype": "bf16"},
    *({"epilogue": name} for name in ("bias", "residual", "gated_silu")),
    {"align": (16, 16, 8)},
    *({x: DimRange(8, 32, 8)} for x in ("m", "n", "k")),
]
#: What does not.
SAID = {
    **{"name": "other", "family": "g", "genome": {}, "offset": 256, "size": 8, "regs": 32},
    **{"deterministic": False, "numerics": Numerics("float64", 1e-4, 2), "out_dtype": "bf16"},
    **{"acc": "f16"},
}


def test_every_part_of_the_launch_counts() -> None:
    kernels = [KERNEL, *(KERNEL._replace(**changes) for changes in LAUNCHED)]
    assert len({identity.identity(kernel) for kernel in kernels}) == len(kernels)


def test_what_is_said_of_a_kernel_does_not_count() -> None:
    other = KERNEL._replace(**SAID)
    assert other != KERNEL and identity.identity(other) == identity.identity(KERNEL)


def test_every_field_is_one_or_the_other() -> None:
    """A new field of a kernel has to be put into one of the lists above."""
    fields = set(KernelEntry._fields)
    assert fields == {name for changes in LAUNCHED for name in changes} | set(SAID)


def test_the_launchers_rules_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity.identity(KERNEL)
    monkeypatch.setattr(identity, "LAUNCH_RULES", identity.LAUNCH_RULES + 1)
    assert identity.identity(KERNEL._replace()) != before  # an entry is asked about once


def test_it_is_the_same_in_every_process_and_version() -> None:
    """What is kept by it lies on disk. A change here belongs to one of LAUNCH_RULES."""
    known = "4df968a8cd16883d478a8bc2f1859c79fb0331c37cd771401d56f1a8a60a590c"
    assert identity.identity(KERNEL) == known
