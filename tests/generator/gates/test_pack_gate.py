"""What a verify run writes down is what a table is made from."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hgemm_packs.errors import PackError
from hgemm_packs.generator.gates import pack_gate
from hgemm_packs.generator.gates.numeric import Numeric, NumericError
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import GridRule


def test_only_kernels_that_passed_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("good", "wrong", "damaged", "behind", "late", "spare", "groups", "batches", "keeps")
    entries = [
        SimpleNamespace(
            name=name,
            id=name,
            epilogue="none",
            grid=GridRule(64, 64, False),
            is_grouped=name == "groups",
            is_batched=name == "batches",
        )
        for name in names
    ]
    named = {"good": "good", "wrong": None, "damaged": "behind", "late": "late", None: None}
    table = [SimpleNamespace(kernel=own, dependent=other) for own, other in named.items()]
    ways: list[tuple[str, bool]] = []

    def image(entry: SimpleNamespace) -> bytes:
        if entry.name == "damaged":
            raise PackError("cubin_hash", "differs")
        return b""

    def check(entry: SimpleNamespace, arm: KernelArm, *_: object) -> Numeric:
        pdl: bool = arm.kernel.pdl  # type: ignore[attr-defined]
        if entry.name == "wrong" or (entry.name, pdl) == ("late", True):
            raise NumericError("depth 1x2x3: 4 elements wrong")
        return Numeric(max_rel_err=3e-4 if pdl else 2e-4, shapes_tested=77)

    def keep(entry: SimpleNamespace, *_: object) -> None:
        if entry.name == "keeps":
            raise NumericError("in a row: 4 elements differ")

    def load(index: int, entry: SimpleNamespace, cubin: bytes, pdl: bool) -> SimpleNamespace:
        ways.append((entry.name, pdl))
        return SimpleNamespace(max_ctas=264, pdl=pdl, workspace_bytes=0)

    device = SimpleNamespace(sm_count=132)
    monkeypatch.setattr(pack_gate.launcher, "device_info", lambda index: device)
    monkeypatch.setattr(pack_gate.launcher, "load", load)
    monkeypatch.setattr(pack_gate.report, "runtime_versions", lambda index: {"driver": "580.1"})
    monkeypatch.setattr(pack_gate.numeric, "check", check)
    monkeypatch.setattr(pack_gate.state, "check_kernel", keep)
    groups = Numeric(max_rel_err=4e-4, shapes_tested=66)
    monkeypatch.setattr(pack_gate.grouped, "check", lambda *_: groups)
    batches = Numeric(max_rel_err=5e-4, shapes_tested=89)
    monkeypatch.setattr(pack_gate.batched, "check", lambda *_: batches)
    pack = SimpleNamespace(manifest=SimpleNamespace(kernels=entries, table=table), image=image)

    monkeypatch.setattr(pack_gate, "verify_classes", lambda *_: ["good: large 9x8x8: wrong"])
    assert pack_gate.write_facts(pack, tmp_path / "facts.json") == 5  # type: ignore[arg-type]
    # A kernel is launched in each way that a row names it.
    both = [(name, pdl) for name in ("good", "late") for pdl in (False, True)]
    assert sorted(ways) == sorted(
        [
            *both,
            ("wrong", False),
            ("behind", True),
            *((name, False) for name in ("spare", "groups", "batches", "keeps")),
        ]
    )
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["driver"] == "580.1"
    assert facts["failed_large"] == ["good: large 9x8x8: wrong"]
    seen = [(n["name"], n["max_rel_err"], n["shapes_tested"]) for n in facts["numerics"]]
    assert seen == [
        ("good", 3e-4, 77),
        ("behind", 3e-4, 77),
        ("spare", 2e-4, 77),
        ("groups", 4e-4, 66),
        ("batches", 5e-4, 89),
    ]
    words = {n["name"]: n["detail"] for n in facts["failed"]}
    assert set(words) == {"wrong", "damaged", "late", "keeps"}
    assert words["keeps"] == "in a row: 4 elements differ"
    assert "4 elements wrong" in words["wrong"] and "cubin_hash" in words["damaged"]
    assert "4 elements wrong" in words["late"]


@pytest.mark.parametrize("name", ["numeric", "batched", "grouped"])
@pytest.mark.parametrize(
    ("persistent", "cooperative", "cluster", "counts"),
    [
        (True, False, (1, 1, 1), [7, 113]),
        (True, False, (4, 2, 1), [16, 113]),
        (True, True, (1, 1, 1), []),
        (False, False, (1, 1, 1), []),
    ],
)
def test_a_persistent_kernel_is_run_within_fewer_ctas(
    name: str,
    persistent: bool,
    cooperative: bool,
    cluster: tuple[int, int, int],
    counts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every card that a kernel met ran as many of its CTAs at once."""

    def of(ctas: int) -> SimpleNamespace:
        return SimpleNamespace(max_ctas=ctas, within=of)

    entry = SimpleNamespace(
        epilogue="none",
        grid=GridRule(64, 64, persistent),
        cluster=cluster,
        cooperative=cooperative,
        is_grouped=name == "grouped",
        is_batched=name == "batched",
    )
    given: list[object] = []
    monkeypatch.setattr(getattr(pack_gate, name), "check", lambda *all: given.extend(all))
    pack_gate.check(entry, of(132), torch.device("cpu"), 132, 7)  # type: ignore[arg-type]
    *_, fewer = given
    assert isinstance(fewer, list)
    kernels = [each.args[0] if name == "grouped" else each.kernel for each in fewer]
    assert [each.max_ctas for each in kernels] == counts
