"""The census of a kernel's instructions, on cubins compiled here."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.compile.compiler import as_kernel
from hgemm_packs.generator.compile.sass import Mma, SassError, census
from tests.generator import foreign
from tests.generator.kernels import DIRECT, WGMMA


def test_a_wgmma_kernel_is_counted() -> None:
    one = compiler.build_one("sm90_wgmma", {**WGMMA, "dtype": "bf16", "epilogue": "bulk"})
    found = census(one.cubin)
    # Three copies of the loop over four steps of K.
    assert found.mma == (Mma("HGMMA", (64, 64, 16), "f32", "bf16", False, 12),)
    assert found.mma[0].flops == 12 * 2 * 64 * 64 * 16
    # Two copies a stage: the first one, and the loop over the others four times over.
    assert found.count("UTMALDG") == 2 + 4 * 2
    assert found.count("UTMASTG") == 1
    assert found.clocks == []
    assert set(found.banks) == {"0x0"}
    assert {"0x28", "0x198"} < set(found.banks["0x0"])
    assert found.instructions == sum(found.opcodes.values()) > 500


def test_a_warp_level_kernel_is_counted() -> None:
    one = compiler.build_one("sm90_direct", DIRECT)
    found = census(one.cubin)
    assert found.mma == (Mma("HMMA", (16, 8, 16), "f32", "f16", False, 16),)
    assert found.count("LDG") == 16
    assert found.specials["SR_TID.X"] > 0
    facts = found.facts()
    assert facts["sass_hmma_f32"] == 16
    assert facts["sass_hgmma_f32"] == facts["sass_hmma_f16"] == facts["sass_local"] == 0
    assert facts["sass_mma_flops"] == 16 * 2 * 16 * 8 * 16
    assert facts["sass_ldg"] == 16
    assert facts["sass_stg"] == found.count("STG")


def test_facts_without_a_disassembly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: bytes) -> None:
        raise AssertionError("disassembled")

    monkeypatch.setattr(sass, "disassemble", refused)
    one = compiler.build_one("sm90_wgmma", WGMMA)
    kernel = as_kernel(one)
    assert kernel.id == one.entry_fields["id"]
    assert (kernel.fields, kernel.cubin) == (one.entry_fields, one.cubin)
    assert kernel.facts == {
        "registers": one.entry_fields["regs"],
        "static_smem_bytes": 2 * 4 * 8 + 16,  # two barriers a stage, one more, to 16 bytes
        "dynamic_smem_bytes": one.entry_fields["smem_bytes"],
        "local_bytes": 0,
        "cubin_bytes": len(one.cubin),
    }


def test_half_accumulators_and_clocks_are_told_apart() -> None:
    clock = "c[m * ldc] = clock64();"
    found = census(foreign.compile_any(foreign.source("f16", inside=clock)))
    assert {(form.opcode, form.acc, form.element) for form in found.mma} == {("HMMA", "f16", "f16")}
    assert [found.specials[name] for name in found.clocks] == [1]
    assert found.facts()["sass_hmma_f32"] == 0
    assert found.facts()["sass_hmma_f16"] == sum(form.count for form in found.mma) > 0


@pytest.mark.parametrize(
    ("opcode", "form"),
    [
        ("HGMMA.64x128x16.F32", ("HGMMA", (64, 128, 16), "f32", "f16", False)),
        ("HGMMA.64x16x16.F16", ("HGMMA", (64, 16, 16), "f16", "f16", False)),
        ("HGMMA.64x16x8.F32.TF32", ("HGMMA", (64, 16, 8), "f32", "tf32", False)),
        ("HMMA.1688.F32.BF16", ("HMMA", (16, 8, 8), "f32", "bf16", False)),
        ("HMMA.1684.F32.TF32", ("HMMA", (16, 8, 4), "f32", "tf32", False)),
        ("HMMA.SP.16816.F32", ("HMMA", (16, 8, 16), "f32", "f16", True)),
        ("QGMMA.64x16x32.F16.E4M3.E5M2", ("QGMMA", (64, 16, 32), "f16", "f8", False)),
        ("IMMA.16832.S8.S8", ("IMMA", (16, 8, 32), "s32", "", False)),
        ("DMMA.16x8x8", ("DMMA", (16, 8, 8), "f64", "", False)),
        ("HMMA.99999.F32", ("HMMA", None, "f32", "f16", False)),
    ],
)
def test_forms(opcode: str, form: tuple[object, ...]) -> None:
    """As nvdisasm writes them; all but the last seen in cubins of the pinned compiler."""
    found = sass._count([{"opcode": opcode, "operands": "R4, R8, R12, R4"}])
    assert found.mma == (Mma(*form, count=1),)  # type: ignore[arg-type]


def test_words_that_are_no_tensor_work() -> None:
    lines = [
        {"opcode": "HFMA2.MMA", "operands": "R1, -RZ, RZ, 0, 0"},
        {"opcode": "CS2R", "operands": "R4,SRZ"},
        {"opcode": "CS2R", "operands": "R4,SR_CLOCKLO"},
        {"opcode": "S2UR", "operands": "UR6,SR_GLOBALTIMERLO"},
        {"opcode": "LDC.64", "operands": "R2,c[0x4][RZ]"},
        {"opcode": "BAR.SYNC.DEFER_BLOCKING", "operands": "0x0"},
        {"opcode": "NOP"},
    ]
    found = sass._count(lines)
    assert found.mma == ()
    assert found.clocks == ["SR_CLOCKLO", "SR_GLOBALTIMERLO"]
    assert found.specials == {"SRZ": 1, "SR_CLOCKLO": 1, "SR_GLOBALTIMERLO": 1}
    assert found.banks == {"0x4": ("RZ",)}
    assert found.instructions == 7
    assert found.facts()["sass_barriers"] == 1


def test_a_census_is_taken_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = foreign.compile_any(foreign.source())
    taken = []
    real = sass.disassemble

    def counted(data: bytes) -> list[dict[str, object]]:
        taken.append(len(data))
        return real(data)

    monkeypatch.setattr(sass, "disassemble", counted)
    first = census(cubin)
    assert census(cubin) == first
    assert len(taken) == 1
    (kept,) = (cache.parent / "sass").rglob("*.json")
    kept.write_bytes(kept.read_bytes()[:-30])
    assert census(cubin) == first
    assert len(taken) == 2


def test_what_cannot_be_disassembled() -> None:
    with pytest.raises(SassError, match="nvdisasm: "):
        census(b"\x7fELF not a cubin")


def test_another_disassembler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sass.nvdisasm.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "13.5.36")
    with pytest.raises(SassError, match=r"need nvidia-cuda-nvdisasm==13\.5\.37, found 13\.5\.36"):
        sass.nvdisasm()
    monkeypatch.undo()
    monkeypatch.setattr(sass, "_WHEEL", "no-such-wheel")
    with pytest.raises(SassError, match=r"no-such-wheel==13\.5\.37 is not installed"):
        sass.nvdisasm()
