"""The source document that is committed."""

from __future__ import annotations

from pathlib import Path

from hgemm_packs.generator.compile.pack_writer import read_source

COMMITTED = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"


def test_every_committed_kernel_is_proven_and_in_use() -> None:
    source = read_source(COMMITTED)
    bound = {"f16": 2.0**-11, "bf16": 2.0**-8}  # what rounding alone may cost
    for kernel in source.kernels:
        assert kernel.numerics.shapes_tested >= 10, kernel.name
        assert kernel.numerics.max_rel_err < bound[str(kernel.genome["dtype"])], kernel.name
    used = {id_ for row in source.table for id_ in (row.kernel, row.dependent)}
    assert used - {None} == {k.id for k in source.kernels}
