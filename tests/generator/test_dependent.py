"""Dependent launch is switched on by measurements alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator import build, packer
from hgemm_packs.generator.dependent import faster, launched
from hgemm_packs.generator.families import FAMILIES

HOT = {"plain": [2.0, 2.1, 2.0], "pdl": [1.5, 1.5, 1.6]}
LEVEL = {"plain": [2.0, 2.0, 2.0], "pdl": [2.0, 2.0, 2.0]}
SLOWER = {"plain": [2.0, 2.0, 2.0], "pdl": [2.1, 2.1, 2.1]}


def line(kernel: str, **times: Any) -> dict[str, Any]:
    return {"kernel": kernel, "problem": [64, 64, 64, "nn", "f16"], **times}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([line("a", hot=HOT, cold=LEVEL)], {"a"}),
        ([line("a", hot=HOT)], {"a"}),
        ([line("a", hot=HOT, cold=SLOWER)], set()),
        ([line("a", hot=HOT), line("a", hot=SLOWER)], set()),
        ([line("a", hot=HOT), line("a", hot=LEVEL), line("b", hot=HOT)], {"a", "b"}),
        ([line("a", hot=LEVEL)], set()),
        ([line("a", hot=HOT, wrong=["hot: other bits"])], set()),
        ([line("a")], set()),
    ],
    ids=["gain", "no cold", "cold loss", "one loss", "two", "level", "wrong", "no times"],
)
def test_a_kernel_gains_and_never_loses(lines: list[dict[str, Any]], names: set[str]) -> None:
    assert faster(lines) == names


def source(tmp_path: Path) -> packer.SourceManifest:
    """The committed document, of three kernels launched plainly, the last of them cooperative."""
    committed = packer.read_source(
        Path(__file__).resolve().parents[2] / "manifests" / "sm_90a" / "h200.json"
    )
    together = next(
        k for k in committed.kernels if FAMILIES[k.family].record(dict(k.genome)).get("cooperative")
    )
    alone = [k for k in committed.kernels if k.family == "sm90_oneshot"][:2]
    kernels = tuple(replace(k, pdl=False) for k in (*alone, together))
    return replace(committed, kernels=kernels, table=())


def test_the_document_keeps_the_mark(tmp_path: Path) -> None:
    before = source(tmp_path)
    first, second, together = before.kernels
    after = launched(before, [line(first.name, hot=HOT), line(together.name, hot=HOT)])
    assert [k.pdl for k in after.kernels] == [True, False, True]
    packer.write_source(tmp_path / "s.json", after)
    text = (tmp_path / "s.json").read_text(encoding="ascii")
    assert text.count('"pdl":') == 2
    read = {k.name: k.pdl for k in packer.read_source(tmp_path / "s.json").kernels}
    assert read == {first.name: True, second.name: False, together.name: True}


def test_a_pack_launches_as_its_source_says(tmp_path: Path) -> None:
    before = source(tmp_path)
    _, plain, together = before.kernels
    some = replace(before, kernels=(replace(together, pdl=True), plain))
    built = build.build([(k.family, dict(k.genome)) for k in some.kernels], 1)
    info = packer.GeneratorInfo("0", "0" * 40, False)
    pack = packer.write_pack(tmp_path / "pack", some, built, generator_info=info)
    flags = {entry.name: (entry.cooperative, entry.pdl) for entry in pack.manifest.kernels}
    assert flags == {together.name: (True, True), plain.name: (False, False)}
