"""Programmatic dependent launch: what every thread of a kernel does before the grid ahead of it has
ended, read off its instructions. No run can show it: a grid ahead is nearly always early enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, grid_wait
from hgemm_packs.generator.compile.sass import census
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.gates import binary
from tests.generator import foreign
from tests.generator.kernels import BASES, DIRECT, GEMV, SPLITK, WGMMA, sources_at

JOBS: list[tuple[str, Genome]] = [
    *BASES.items(),
    # Loads to registers, not by the copy engine.
    ("sm90_gemv", {**GEMV, "stages": 1, "ahead": False, "cluster_k": 2}),
    ("sm90_direct", {**DIRECT, "layout": "nn", "exact": True, "cluster_k": 2}),
    ("sm90_direct", {**DIRECT, "exact": True, "fixed_k": 256}),
    ("sm90_splitk", {**SPLITK, "slices": 1}),
    ("sm90_wgmma", {**WGMMA, "epilogue": "bulk", "cluster_m": 2}),
]


@pytest.mark.parametrize(("family", "genome"), JOBS)
def test_nothing_before_the_grid_ahead_has_ended(family: str, genome: Genome) -> None:
    found = census(compiler.build_one(family, genome).cubin)
    assert found.early == found.unwaited == () and found.count("ACQBULK") > 0


def test_a_kernel_that_reads_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sources_at(tmp_path / "kernels", monkeypatch)
    source = folder / "sm90" / "direct.cuh"
    text = source.read_text()
    wait, later = "  wait_for_upstream();\n  allow_dependents();\n", "  const TileMeeting meeting{"
    assert wait in text and later in text
    source.write_text(text.replace(wait, "").replace(later, wait + later))
    one = compiler.build_one("sm90_direct", DIRECT)
    verdict = binary.check(one.entry_fields, one.cubin)
    assert verdict.status is Status.BINARY
    assert verdict.detail == "upstream: LDG before the grid ahead has ended"


def test_no_operand_is_loaded_as_if_it_never_changed() -> None:
    """ptxas may move ld.global.nc to before the wait: in which kernels, chance decides."""
    sources = [*compiler.sources_dir().rglob("*.cuh")]
    assert len(sources) > 10
    assert [x.name for x in sources if re.search(r"ld\.global\S*\.nc\b|__ldg", x.read_text())] == []


def test_a_foreign_kernel_need_not_wait_unless_it_has_to_do_with_dependent_launch() -> None:
    """No table can launch it so. The corpus has those that do some of it, and are refused."""
    cubin = foreign.compile_any(foreign.source())
    assert set(census(cubin).early) == {"EXIT", "LDG", "STG"}
    assert binary.check(foreign.fields(), cubin).status is Status.OK


def listing(text: str) -> list[dict[str, Any]]:
    """Instructions as the disassembler gives them, one a line: [@PREDICATE] OPCODE [OPERANDS]; a
    dot before those that it does not mark as control flow."""
    found: list[dict[str, Any]] = []
    for line in text.split("\n"):
        words = line.split()
        one: dict[str, Any] = {"predicate": words.pop(0)} if words[0].startswith("@") else {}
        one |= {"opcode": words[0].lstrip("."), "operands": " ".join(words[1:])}
        plain = words[0].startswith(".")
        found.append(one if plain else {**one, "other-attributes": {"control-flow": "True"}})
    return found


@pytest.mark.parametrize(
    ("text", "early", "unwaited"),
    [
        ("ACQBULK\nPREEXIT\n.LDG.E R0\nEXIT", "", ""),
        ("PREEXIT\nACQBULK\nEXIT", "PREEXIT", "PREEXIT"),
        # A wait of some threads is none.
        ("@P0 ACQBULK\n.STG.E R0\nEXIT", "", "EXIT STG"),
        ("@P0 BRA 0x20\nACQBULK\nPREEXIT\nEXIT", "", "EXIT PREEXIT"),
        # Where the wait stands in the text does not matter.
        ("BRA 0x30\n.STG.E R0\nEXIT\nACQBULK\nBRA 0x10", "EXIT STG", ""),
        ("@P0 BRA 0x30\n.UTMALDG.2D UR4\nEXIT\nACQBULK\n.STG R0\nEXIT", "EXIT UTMALDG", "same"),
        ("@P0 BRA 0x30\nACQBULK\nEXIT\n.STG.E R0\nEXIT", "", "EXIT STG"),
        ("@PT BRA 0x20\n.STG.E R0\nACQBULK\nEXIT", "STG", ""),
        ("BRA UP0,0x20\n.STG.E R0\nACQBULK\nEXIT", "STG", "STG"),
        ("BRA.DIV UR4,0x30\nACQBULK\nEXIT\nPREEXIT\nACQBULK", "", "PREEXIT"),
        ("@P0 EXIT\nACQBULK\nEXIT", "EXIT", "EXIT"),
        # Threads that met go on where the last BSSY of their barrier said.
        ("BSSY B0,0x30\n@P0 BRA 0x20\nBSYNC B0\nACQBULK\n.STG.E R0\nEXIT", "", ""),
        ("BSSY B0,0x40\nBSYNC B0\nACQBULK\nEXIT\n.STG.E R0\nACQBULK", "", "STG"),
        ("BSSY B0,0x50\nBSSY B0,0x40\nBSYNC B0\nACQBULK\nACQBULK\n.STG.E R0", "", ""),
        # Nobody knows where these lead.
        ("BRX R4,-0xd0\nACQBULK\n.STG.E R0\nEXIT", "", "EXIT STG"),
        ("CALL.REL.NOINC $k$f\nACQBULK\n.STG.E R0\nEXIT", "", "EXIT STG"),
        ("BSYNC B0\nACQBULK\n.STG.E R0\nEXIT", "", "EXIT STG"),
        # Not a jump, though it looks like one.
        ("NANOSLEEP 0x20\nACQBULK\n.STG.E R0\nEXIT", "", ""),
        (".LDG.E R0\n.IADD3 R1,R1,0x10", "LDG", "LDG"),
        # A line that is fetched into L1 stays there; what empties L1 fetches none.
        (".CCTL.E.PF1 [R2]\nACQBULK\nEXIT", "CCTL", "CCTL"),
        (".CCTL.IVALL\nACQBULK\nEXIT", "", ""),
    ],
)
def test_what_a_thread_can_come_to(text: str, early: str, unwaited: str) -> None:
    lines = listing(text)
    assert grid_wait.find_early(lines) == set(early.split())
    assert grid_wait.find_unwaited(lines) == set(
        (early if unwaited == "same" else unwaited).split()
    )
