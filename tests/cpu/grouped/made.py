"""Operands of grouped products, what is right of them, and packs whose rows name such kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.families.base import dims
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, DeviceProfile, GroupedRow, Timing
from tests import fake_driver, packs

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
K, N, GROUPS = 64, 40, 5
SPLITS = {
    "of any size": [3, 4, 11, 12, 30],
    "all in one": [0, 0, 30, 30, 30],
    "all empty": [0, 0, 0, 0, 0],
    "rows left over": [1, 9, 9, 17, 21],
}


def operands(ends: list[int], layout: str = "nt", dtype: str = "bf16", rows: int = 30) -> Operands:
    """Whole numbers, whose sums are exact, and which no two weights share."""
    source = torch.Generator().manual_seed(rows)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randint(-4, 5, sizes, generator=source).to(DTYPES[dtype])

    weights = draw(len(ends), N, K).mT if layout == "nt" else draw(len(ends), K, N)
    return draw(rows, K), weights, torch.tensor(ends, dtype=torch.int32)


def assert_grouped(result: torch.Tensor, x: Operands) -> None:
    """Each group is the float64 product of its own weight, rounded once: in every bit."""
    tokens, weights, offsets = x
    ends = [0, *offsets.tolist()]
    for weight, start, end in zip(weights, ends, ends[1:], strict=False):
        exact = tokens[start:end].double() @ weight.double()
        assert torch.equal(result[start:end], exact.to(tokens.dtype)), (start, end)
    assert result.shape == (tokens.shape[0], weights.shape[2])


def kernel(layout: str, dtype: str, name: str = "grouped", **changes: Any) -> packs.FakeBuilt:
    values: dict[str, Any] = {
        "cubin": fake_driver.image(name, GROUPED_LAYOUT, layout, dtype),
        "cluster": [1, 1, 1],
        "dims": dims(),
        "layout": layout,
        "dtype": dtype,
        "out_dtype": dtype,
    }
    return packs.built(name, GROUPED_LAYOUT, **values | changes)


def row(m: int, own: packs.FakeBuilt | None, lcb: float = 1.1, **changes: Any) -> GroupedRow:
    timing = Timing(10.0, 12.0, 12.0, 1.2, lcb)
    layout, dtype = (own.entry_fields[name] for name in ("layout", "dtype")) if own else ("nt", "")
    values = {"layout": layout, "dtype": dtype or "bf16"} | changes
    own_id = own and own.entry_fields["id"]
    place = (values.pop("layout"), values.pop("dtype"), own_id, "fake", timing, timing)
    return GroupedRow(values.pop("groups", GROUPS), m, N, K, *place, 60, "2026-11-25")


def write(folder: Path, kernels: list[packs.FakeBuilt], rows: list[GroupedRow]) -> Pack:
    device = launcher.device_info(0)
    profile = DeviceProfile(device.name, device.sm_count, device.l2_bytes, 4800.0)
    rows = [each._replace(profile=device.name) for each in rows]
    source = packs.source(
        kernels, [], launcher_abi=6, grouped=tuple(rows), device_profiles=(profile,)
    )
    return write_pack(folder, source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
