"""What a good manifest becomes, and what a kernel admits."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack import manifest_reader
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import DimRange, GridRule, Timing, WinPolicy
from hgemm_packs.problem import Problem
from tests import packs, shapes


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return packs.write_good(tmp_path / "good")


def test_every_field_arrives(pack: Pack, tmp_path: Path) -> None:
    m = pack.manifest
    document = json.loads((tmp_path / "good" / "manifest.json").read_text())
    raw = document["kernels"][1]
    entry = m.kernels[1]
    assert (m.schema, m.launcher_abi, m.arch, m.min_driver) == (
        "hgemm-packs/2",
        4,
        "sm_90a",
        13000,
    )
    assert m.toolchain.flags == ("-std=c++17",)
    assert m.device_profiles[0].mem_bw_gbps == 4800.0
    assert m.policy == WinPolicy(0.02, "both lower bounds above one plus the noise floor")
    for name in ("id", "name", "symbol", "family", "genome", "offset", "size", "param_layout"):
        assert getattr(entry, name) == raw[name]
    assert entry.param_sizes == (128, 128, 8, 4, 4, 4, 4)
    assert entry.cluster == (2, 1, 1)
    assert entry.grid == GridRule(128, 64, True)
    assert (entry.m, entry.n, entry.k) == (DimRange(8, 16384, 8),) * 3
    assert entry.align == (16, 16, 16)
    assert [spec.operand for spec in entry.tma] == ["a", "b"]
    assert (entry.tma[0].box, entry.tma[1].box) == ((64, 128), (64, 64))
    assert (entry.tma[0].swizzle, entry.tma[1].l2_promotion) == (128, 256)
    assert entry.numerics.shapes_tested == 40
    assert entry.grid.slices == 1 and entry.workspace_bytes == 0 and not entry.cooperative


def test_a_workspace_arrives(tmp_path: Path) -> None:
    kernel = packs.built("k_ws", "tma2_ws_v2")
    rows = [packs.row(packs.WIN, kernel)]
    source = packs.source([kernel], rows)
    pack = write_pack(tmp_path / "ws", source, [kernel], generator_info=packs.GENERATOR)
    (entry,) = pack.manifest.kernels
    pack.close()
    assert entry.param_sizes == (128, 128, 8, 8, 4, 4, 4, 4)
    assert (entry.grid, entry.workspace_bytes) == (GridRule(128, 64, False, 4), 16384)
    assert entry.cooperative
    assert [spec.operand for spec in entry.tma] == ["a", "b"]


def test_reading_ahead_arrives(tmp_path: Path) -> None:
    kernels = [packs.built("k", "tma2_v1"), packs.built("l", "tma2_v1", reads_ahead=True)]
    source = packs.source(kernels, [])
    pack = write_pack(tmp_path / "pack", source, kernels, generator_info=packs.GENERATOR)
    assert [entry.reads_ahead for entry in pack.manifest.kernels] == [False, True]
    assert (tmp_path / "pack" / "manifest.json").read_text().count("reads_ahead") == 1


def test_rows_are_found_by_profile_and_problem(pack: Pack) -> None:
    m = pack.manifest
    row = m.rows["NVIDIA H200", packs.WIN.key]
    assert row.kernel == m.kernels[1].id
    assert row.hot == Timing(10.0, 11.5, 11.2, 1.12, 1.08)
    assert m.rows["NVIDIA H200", packs.CUBLAS.key].kernel is None
    assert ("NVIDIA H200", packs.NOISE.key) not in m.rows
    assert ("NVIDIA H100", packs.WIN.key) not in m.rows
    assert set(m.table) == set(m.rows.values())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ""),
        ({"layout": "nt"}, "layout"),
        ({"dtype": "bf16", "out_dtype": "bf16"}, "dtype"),
        ({"out_dtype": "bf16"}, "out_dtype"),
        ({"m": 7}, "dims"),
        ({"m": 12}, "dims"),
        ({"n": 16392}, "dims"),
        ({"k": 0}, "dims"),
        ({"base": (8, 8, 8)}, "unaligned"),
    ],
)
def test_a_kernel_admits_a_problem_or_says_why_not(
    pack: Pack, changes: dict[str, Any], code: str
) -> None:
    values = {"m": 64, "n": 64, "k": 64, "layout": "nn", "dtype": "f16"} | changes
    reason = pack.manifest.kernels[0].admits(Problem(**values))
    assert (reason.code if reason else "") == code


@pytest.mark.parametrize(
    ("layout", "operand", "outer"),
    [
        *(("nn", "a", "m"), ("nt", "a", "m"), ("tn", "a", "k"), ("tt", "a", "k")),
        *(("nn", "b", "k"), ("tn", "b", "k"), ("nt", "b", "n"), ("tt", "b", "n")),
        *(("nn", "c", "m"), ("tt", "c", "m")),
    ],
)
def test_grouped_rows_need_the_operands_outer_size_in_steps_of_32(
    layout: str, operand: str, outer: str, tmp_path: Path
) -> None:
    """The map splits that dimension by 32: any other size would leave rows out."""
    maps = [
        packs.TENSOR_MAPS[name] | {"box": [32, 64], "row_group": 32 * (name == operand)}
        for name in "abc"
    ]

    def write(step: dict[str, int]) -> Pack:
        dims = {d: {"min": 32, "max": 64, "multiple_of": step.get(d, 8)} for d in "mnk"}
        kernel = packs.built("k", "tma3_v1", layout=layout, tma=maps, dims=dims)
        return packs.write_pack(
            tmp_path / "pack", packs.source([kernel], []), [kernel], generator_info=packs.GENERATOR
        )

    assert write({outer: 32}).manifest.kernels[0].tma["abc".index(operand)].row_group == 32
    with pytest.raises(PackError, match=r"bad_tma at kernels\[0\].tma"):
        write({"m": 32, "n": 32, "k": 32} | {outer: 16})


@pytest.mark.parametrize(
    ("size", "admitted"), [(8, True), (16, True), (24, True), (0, False), (12, False), (32, False)]
)
def test_range(size: int, admitted: bool) -> None:
    assert DimRange(8, 24, 8).admits(size) is admitted


@pytest.mark.parametrize(
    ("hot", "cold", "clears"),
    [(1.03, 1.03, True), (1.02, 1.5, False), (1.5, 1.02, False), (0.9, 1.5, False)],
)
def test_policy_needs_both_bounds_above_the_floor(hot: float, cold: float, clears: bool) -> None:
    row = packs.row(packs.WIN, None)
    row = row._replace(hot=row.hot._replace(lcb=hot), cold=row.cold._replace(lcb=cold))
    assert WinPolicy(0.02, "both").clears(row) is clears


def test_an_error_says_where(tmp_path: Path) -> None:
    packs.write_good(tmp_path / "good").close()
    data = (tmp_path / "good" / "manifest.json").read_bytes()
    spoiled = data.replace(b'"swizzle":128', b'"swizzle":127', 1)
    with pytest.raises(PackError) as caught:
        manifest_reader.parse(spoiled).check()
    assert caught.value.where == "kernels[1].tma[0].swizzle"
    assert str(caught.value) == (
        "bad_value at kernels[1].tma[0].swizzle: 127 is not one of 0, 32, 64, 128"
    )


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """100 kernels, 6 MB of cubins, and a row for each of the grid's shapes."""
    kernels = [packs.built(f"k{i}", "tma3_v1", size=60_000) for i in range(100)]
    rows = [packs.row(Problem(*shape, "nn", "f16"), kernels[0]) for shape in shapes.grid()]
    source = packs.source(kernels, rows)
    packs.write_pack(tmp_path / "large", source, kernels, generator_info=packs.GENERATOR).close()
    return tmp_path / "large"


def test_a_large_pack_gives_its_first_kernel_fast_and_stays_small(large: Path) -> None:
    """The promise is 60 ms for the first product of a process (benchmarks/host/load_cost.py) and 25
    MB of memory. Calls are counted, because machines are shared."""
    problem = Problem(*list(shapes.grid())[500], "nn", "f16")
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def first() -> Pack:
        pack = Pack.open(large)
        row = pack.manifest.row("NVIDIA H200", problem.key)
        assert row is not None and row.kernel is not None
        assert len(pack.image(pack.manifest.kernel(row.kernel))) == 60_000
        return pack

    before = sys.getprofile()
    sys.setprofile(count)
    first().close()
    sys.setprofile(before)
    tracemalloc.start()
    pack = first()
    idle, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = (large / "manifest.json").stat().st_size
    assert calls < 1200  # 696; all of it are 96,000
    assert idle < size + 1e5 and peak < size + 4e5, f"{idle} idle, {peak} at most, of {size}"
    pack.close()


def test_every_row_is_found_alone_as_in_the_whole(large: Path) -> None:
    alone, whole = Pack.open(large), Pack.open_verified(large)
    table = whole.manifest.table
    assert len(table) == 1000 and set(table) == set(whole.manifest.rows.values())
    for row in table:
        assert alone.manifest.row(row.profile, row.key) == row
        for beside in (row._replace(m=row.m + 1), row._replace(k=row.k - 1), row._replace(n=1)):
            there = whole.manifest.rows.get((row.profile, beside.key))
            assert alone.manifest.row(row.profile, beside.key) == there
    assert "table" not in vars(alone.manifest)
    assert alone.manifest.row("NVIDIA H100", table[0].key) is None
    for entry in whole.manifest.kernels:
        assert alone.manifest.kernel(entry.id) == entry
        assert whole.manifest.kernel(entry.id) is entry
    assert [alone.manifest.kernel(entry.id) for entry in alone.manifest.kernels] == list(
        alone.manifest.kernels
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_short_tables(count: int, tmp_path: Path) -> None:
    problems = [Problem(8 * size, 64, 64, "nn", "f16") for size in range(1, 6)]
    rows = [packs.row(problem, None) for problem in problems[:count]]
    pack = packs.write_pack(
        tmp_path / "pack", packs.source([], rows), [], generator_info=packs.GENERATOR
    )
    found = [pack.manifest.row("NVIDIA H200", problem.key) for problem in problems]
    assert [row for row in found if row] == rows == list(pack.manifest.table)
    assert found[count:] == [None] * (5 - count)
    assert pack.manifest.kernels == ()
    with pytest.raises(PackError, match="unknown_kernel"):
        pack.manifest.kernel("0" * 64)


def test_a_gene_that_is_called_id_is_no_id(tmp_path: Path) -> None:
    """A kernel is found by the text of its id, which a gene may hold as well."""
    kernels = [packs.built("b", "tma2_v1"), packs.built("c", "tma2_v1")]
    ids = [kernel.entry_fields["id"] for kernel in kernels]
    decoy = packs.built("a", "tma2_v1", genome={"id": ids[1]})
    rows = [packs.row(packs.WIN, kernels[1], dependent=kernels[0])]
    every = [decoy, *kernels]
    source = packs.source(every, rows)
    pack = packs.write_pack(tmp_path / "pack", source, every, generator_info=packs.GENERATOR)
    row = pack.manifest.row("NVIDIA H200", packs.WIN.key)
    assert row is not None and (row.kernel, row.dependent) == (ids[1], ids[0])
    assert [pack.manifest.kernel(each).name for each in ids] == ["b", "c"]
