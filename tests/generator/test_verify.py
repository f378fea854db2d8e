"""What a verify run writes down is what a table is made from."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator import verify
from hgemm_packs.generator.gates.numeric import Numeric, NumericError


def test_only_kernels_that_passed_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [SimpleNamespace(name=name, id=name) for name in ("good", "wrong", "damaged")]
    # Launched dependently for one problem of two.
    rows = [SimpleNamespace(kernel=name, pdl=pdl) for name in ("good", "wrong") for pdl in (0, 1)]
    table, ways = [*rows[:3], SimpleNamespace(kernel=None, pdl=False)], {}

    def image(entry: SimpleNamespace) -> bytes:
        if entry.name == "damaged":
            raise PackError("cubin_hash", "differs")
        return b""

    def check(entry: SimpleNamespace, *_: object) -> Numeric:
        if entry.name == "wrong":
            raise NumericError("depth 1x2x3: 4 elements wrong")
        return Numeric(max_rel_err=2e-4, shapes_tested=77)

    def load(index: int, entry: SimpleNamespace, cubin: bytes, pdl: bool) -> SimpleNamespace:
        ways[entry.name] = pdl
        return SimpleNamespace(max_ctas=264)

    device = SimpleNamespace(sm_count=132)
    monkeypatch.setattr(verify.launcher, "device_info", lambda index: device)
    monkeypatch.setattr(verify.launcher, "load", load)
    monkeypatch.setattr(verify.report, "runtime_versions", lambda index: {"driver": "580.1"})
    monkeypatch.setattr(verify.numeric, "check", check)
    pack = SimpleNamespace(manifest=SimpleNamespace(kernels=entries, table=table), image=image)

    assert verify.write_facts(pack, tmp_path / "facts.json") == 2  # type: ignore[arg-type]
    assert ways == {"good": True, "wrong": False}
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["driver"] == "580.1"
    seen = [(n["name"], n["max_rel_err"], n["shapes_tested"]) for n in facts["numerics"]]
    assert seen == [("good", 2e-4, 77)]
    words = {n["name"]: n["detail"] for n in facts["failed"]}
    assert "4 elements wrong" in words["wrong"] and "cubin_hash" in words["damaged"]
