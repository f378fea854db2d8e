"""A pack with more kernels than its table names: each passed the gate, and builds as it did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceKernel
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.tables.proven import add_proven
from hgemm_packs.pack.manifest import PARAM_LAYOUTS, Numerics
from tests import packs
from tests.generator.found import PROOF, found

LAYOUT = next(iter(PARAM_LAYOUTS))


def genome(layout: str = "nn", dtype: str = "f16", **more: str) -> dict[str, Any]:
    return {"layout": layout, "dtype": dtype, **more}


def fields(id_: str, layout: str = "nn", dtype: str = "f16", **changes: Any) -> dict[str, Any]:
    known = {"id": id_, "name": f"k_{id_}", "family": "sm90_test", "epilogue": "none"}
    known |= {"layout": layout, "dtype": dtype, "genome": genome(layout, dtype)}
    return known | changes


def test_what_passed_the_gate_joins_the_kernels_of_the_table() -> None:
    own, other = packs.built("own", LAYOUT), packs.built("other", LAYOUT)
    rows = (packs.row(packs.WIN, own), packs.row(packs.WIN_SMALL, other)._replace(dtype="bf16"))
    ids = [own.entry_fields["id"], other.entry_fields["id"]]
    kernels = tuple(
        SourceKernel(id_, f"k{i}", "sm90_test", genome(dtype=dtype), packs.NUMERICS)
        for i, (id_, dtype) in enumerate(zip(ids, ("f16", "bf16"), strict=True))
    )
    known = replace(packs.source([own, other], []), kernels=kernels, table=rows)
    listed = {
        each["id"]: each
        for each in (
            fields(ids[0], name="again"),
            fields("a"),
            fields("b", dtype="bf16"),
            fields("c", layout="nt"),
            fields("refused"),
            fields("changed"),
            fields("also", epilogue="bias"),
        )
    }
    seen = found(
        kernels=listed,
        proofs=dict.fromkeys(listed, PROOF),
        refused={"refused": Status.NUMERIC},
    )
    asked: list[set[str]] = []

    def usable(offered: Any) -> set[str]:
        asked.append(set(offered))
        return set(offered) - {"changed"}

    made = add_proven(known, seen, usable, ["nn"], ["f16"])
    assert asked == [{"a", "changed"}], "what the table has is not built to be looked at"
    assert {k.id: k.name for k in made.kernels} == {ids[0]: "k0", "a": "k_a"}
    (fresh,) = [k for k in made.kernels if k.id == "a"]
    assert fresh.numerics == Numerics("float64", 0.000212346, 12)
    assert made.table == rows[:1]
    whole = add_proven(known, seen, usable)
    assert {k.id for k in whole.kernels} == {*ids, "a", "b", "c"} and whole.table == rows
