"""`hgemm-packs generate --epilogue`: problems, kernels and packs of one, on a simulated GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.cli.search import select_problems
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from tests.generator.command import PROBLEMS, listed, simulated

NT = Problem(16, 256, 512, "nt", "f16")


@pytest.mark.parametrize("epilogue", ["residual", "gated_silu"])
def test_a_search_ends_in_a_pack_of_that_epilogue(tmp_path: Path, epilogue: str) -> None:
    shapes = listed(tmp_path / "shapes.toml", PROBLEMS[:2])
    run = tmp_path / "run"
    code, _, err = simulated(
        *("--shapes", shapes, "--epilogue", epilogue, "--layouts", "nt", "--dtypes", "f16"),
        *("--run", run, "--budget", "20s"),
    )
    assert (code, err) == (0, "")
    source = read_source(run / "source.json")
    assert source.launcher_abi == 5
    assert {row.key for row in source.table} == {
        replace(problem, epilogue=epilogue).key for problem in PROBLEMS[:2]
    }
    kernels = Pack.open(run / "pack").manifest.kernels
    assert kernels and {kernel.epilogue for kernel in kernels} == {epilogue}
    assert all(
        kernel.param_layout.endswith("_addend") == (epilogue == "residual") for kernel in kernels
    )


def test_problems_that_no_gated_kernel_takes_are_left_out(tmp_path: Path) -> None:
    """C's rows of N / 2 would not begin at a multiple of 16 bytes."""

    def chosen(sizes: list[int], epilogue: str) -> list[int]:
        shapes = listed(tmp_path / "shapes.toml", [replace(NT, n=n) for n in sizes])
        found = select_problems([str(shapes)], (), ["nt"], ["f16"], (), 1, epilogue)
        assert all(problem.epilogue == epilogue for problem in found)
        return [problem.n for problem in found]

    assert chosen([256, 264, 272], "gated_silu") == [256, 272]
    assert chosen([256, 264, 272], "residual") == [256, 264, 272]
    with pytest.raises(ValueError, match="no gated_silu kernel takes any of these problems"):
        chosen([264], "gated_silu")
