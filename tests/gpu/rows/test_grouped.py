"""Grouped kernels on a GPU: the numeric gate of a few, and one in a CUDA graph beside torch's."""

from __future__ import annotations

import functools

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile import candidate, compiler
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.gates import grouped
from hgemm_packs.pack.manifest import KernelEntry

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)
GENOMES: list[Genome] = [
    {
        "layout": layout,
        "dtype": dtype,
        "tile_m": tile_m,
        "tile_n": 128,
        "tile_k": 64,
        "stages": 4,
        "consumers": 2,
        "pingpong": in_turn,
        "reallocate": in_turn,
        "ctas_per_sm": 1,
    }
    for layout, dtype, tile_m, in_turn in (
        ("nt", "bf16", 16, False),
        ("nn", "bf16", 128, True),
        ("nn", "f16", 72, False),
    )
]


def build(genome: Genome) -> tuple[KernelEntry, bytes]:
    one = compiler.build_one("sm90_grouped", genome)
    return candidate.entry(one.entry_fields, one.cubin), one.cubin


@pytest.mark.parametrize("genome", GENOMES, ids=lambda genome: f"{genome['tile_m']}")
def test_a_kernel_passes_the_gate(genome: Genome) -> None:
    entry, cubin = build(genome)
    launch = functools.partial(launcher.launch_grouped, launcher.load(0, entry, cubin))
    result = grouped.check(entry, launch, DEVICE, seed=7)
    assert result.shapes_tested > 50 and result.max_rel_err < 2.0**-8


def test_values_are_torchs_but_for_rounding() -> None:
    entry, cubin = build(GENOMES[0])
    kernel = launcher.load(0, entry, cubin)
    source = torch.Generator(DEVICE).manual_seed(1)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=source, device=DEVICE, dtype=torch.bfloat16)

    tokens, weights = draw(300, 1024), draw(16, 768, 1024).mT
    ends = torch.linspace(0, 300, 17, device=DEVICE)[1:].to(torch.int32)
    out = torch.empty((300, 768), device=DEVICE, dtype=torch.bfloat16)
    launcher.launch_grouped(kernel, tokens, weights, ends, out)
    theirs = torch._grouped_mm(tokens, weights, offs=ends).float()
    assert float((out.float() - theirs).abs().max()) <= 2.0**-6 * float(theirs.abs().max())
