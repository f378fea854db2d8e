"""Batched kernels on a GPU: the numeric gate of a few, and batches through the front door, in a
CUDA graph too, by a pack of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, select
from hgemm_packs.generator.compile import candidate, compiler
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.gates import batched
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator.kernels import BATCHED

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)
GENOMES: list[Genome] = [
    {**BATCHED, "tile_m": 8, "tile_n": 64, "consumers": 1, "epilogue": "staged", "ctas_per_sm": 2},
    {**BATCHED, "layout": "nn", "schedule": "pingpong", "tile_m": 128, "epilogue": "bulk"},
    {**BATCHED, "layout": "tn", "dtype": "f16", "tile_m": 96, "cluster_m": 2},
    {**BATCHED, "layout": "tt", "cluster_n": 2, "epilogue": "bulk", "buffers": 2},
    {**BATCHED, "layout": "nn", "computes": "residual", "tile_m": 72, "epilogue": "bulk"},
    {**BATCHED, "dtype": "f16", "computes": "residual", "tile_m": 40},
]
E, M, N, K = 6, 200, 136, 64


@pytest.mark.parametrize("genome", GENOMES, ids=lambda genome: f"{genome['layout']}")
def test_a_kernel_passes_the_gate(genome: Genome) -> None:
    one = compiler.build_one("sm90_batched", genome)
    entry = candidate.entry(one.entry_fields, one.cubin)
    kernel = launcher.load(0, entry, one.cubin)
    result = batched.check(entry, KernelArm(kernel, entry.epilogue), DEVICE, seed=7)
    assert result.shapes_tested > 70 and result.max_rel_err < 2.0**-8


def draw(*sizes: int) -> torch.Tensor:
    source = torch.Generator(DEVICE).manual_seed(sum(sizes))
    return torch.randn(sizes, generator=source, device=DEVICE, dtype=torch.bfloat16)


def assert_near(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    exact = a.double() @ b.double()
    off = (found.double() - exact).abs()
    assert bool((off <= 2.0**-8 * exact.abs() + K * 2.0**-20 * exact.abs().max()).all())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[None]:
    """Rows of E products of one size, packed and in turn, in front of all packs."""
    one = compiler.build_one("sm90_batched", BATCHED)
    device = launcher.device_info(0)
    profile = DeviceProfile(device.name, device.sm_count, device.l2_bytes, 4800.0)
    built = packs.FakeBuilt(one.entry_fields, one.cubin)
    rows = [
        packs.row(Problem(M, N, K, "nt", "bf16", packed=packed, batches=E), built)
        for packed in (True, False)
    ]
    rows = [row._replace(profile=device.name) for row in rows]
    source = packs.source([built], rows, launcher_abi=7, device_profiles=(profile,))
    pack = write_pack(tmp_path / "pack", source, [one], generator_info=packs.GENERATOR)
    select.prefer(pack)
    launcher.reset_table()
    yield
    select.reset()
    launcher.reset_table()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("way", ["packed", "in turn", "one for all"])
def test_batches_through_the_front_door(way: str) -> None:
    a, b = draw(E, M, K), draw(E, N, K).mT
    if way == "in turn":
        a, b = draw(M, E, K).transpose(0, 1), draw(N, E, K).permute(1, 2, 0)
    elif way == "one for all":
        b = draw(1, N, K).mT
    before = launcher.counters()["hits"]
    assert_near(hgemm_packs.matmul(a, b), a, b)
    with hgemm_packs.enabled():
        assert_near(torch.bmm(a, b.expand(E, K, N)), a, b)
    assert launcher.counters()["hits"] == before + 2


@pytest.mark.usefixtures("served")
def test_a_captured_batch_reads_what_is_there_then() -> None:
    a, b, out = draw(E, M, K), draw(E, N, K).mT, draw(E, M, N)
    hgemm_packs.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    before = launcher.counters()["hits"]
    with torch.cuda.graph(graph):
        hgemm_packs.matmul(a, b, out=out)
    assert launcher.counters()["hits"] == before + 1
    a.copy_(draw(E, M, K + 1)[..., :K])
    graph.replay()
    assert_near(out, a, b)
