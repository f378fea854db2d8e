"""Mutants on a GPU: every stage stood in for, and the comparison bit by bit on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.generator.gates import sweep
from hgemm_packs.generator.redteam.mutation import compare, judge, on_gpu, run
from hgemm_packs.generator.run import evaluate
from tests.generator.redteam.cheats import honest, made_up, truncates_output
from tests.generator.redteam.killed_mutants import SEED, Judges

#: What a GPU makes of mutants by their numbers; others pass all and do the same bit by bit.
BEHAVIOUR = {
    **{1: "numeric", 3: "isolation", 5: "sanitizer", 7: "differs", 9: "no memory"},
    13: "state",
}


class FakeWorker:
    def __init__(self) -> None:
        self.alive = True

    def close(self) -> None:
        self.alive = False

    def call(self, function: Any, one: Any, other: Any, *rest: Any, timeout_s: float) -> Any:
        assert (function, timeout_s) == (compare.on_device, on_gpu.COMPARE_S)
        assert one.fields["name"] == "honest"
        number = int(other.fields["name"])
        return ["large 1x8x8: bits differ"] if BEHAVIOUR.get(number) == "differs" else []


class FakeSpares:
    """Processes that nobody starts."""

    def __init__(self, device: int) -> None:
        assert device == 2

    def __enter__(self) -> FakeSpares:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def lend(self) -> Iterator[FakeWorker]:
        yield FakeWorker()


def numeric(
    worker: FakeWorker, kernel: CompiledKernel, device: int, limit_s: float, further: Any
) -> Verdict:
    assert (device, limit_s) == (2, on_gpu.GATE_S)
    assert further == {"planned": [[33, 8, 8]]}, "problems that the size gate asks for"
    does = BEHAVIOUR.get(int(kernel.fields["name"]), "")
    if does == "no memory":
        raise RuntimeError("out of memory")
    if does in ("numeric", "isolation"):
        worker.close()
        return Verdict(does, Status.NUMERIC, "wrong")
    return Verdict("numeric", Status.OK)


def state(worker: FakeWorker, kernel: CompiledKernel, device: int, limit_s: float) -> Verdict:
    assert (worker.alive, device, limit_s) == (True, 2, on_gpu.GATE_S), "the numeric gate passed it"
    if BEHAVIOUR.get(int(kernel.fields["name"])) == "state":
        return Verdict("state", Status.NUMERIC, "an old product")
    return Verdict("state", Status.OK)


def sanitize(groups: Any, seats: list[None]) -> Iterator[tuple[int, list[Verdict]]]:
    for place, [(name, _)] in enumerate(groups):
        bad = BEHAVIOUR.get(int(name)) == "sanitizer"
        said = (Status.SANITIZER, "hazard") if bad else (Status.OK, "")
        yield place, [Verdict("sanitizer", *said)]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for all that runs kernels."""

    def kernels(seed: int, one: judge.Line) -> tuple[CompiledKernel, CompiledKernel]:
        assert seed == SEED
        return CompiledKernel({"name": "honest"}, b""), CompiledKernel(
            {"name": str(one["number"])}, b""
        )

    monkeypatch.setattr(run, "Worker", Judges)
    monkeypatch.setattr(on_gpu, "kernels", kernels)
    monkeypatch.setattr(on_gpu, "Spares", FakeSpares)
    monkeypatch.setattr(on_gpu, "entry", lambda fields, cubin: fields["name"])
    monkeypatch.setattr(evaluate, "numeric_gate", numeric)
    monkeypatch.setattr(evaluate, "state_gate", state)
    monkeypatch.setattr(sweep, "check_groups", sanitize)


def test_a_gpu_decides_what_the_cpu_did_not(
    gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "mutants.jsonl"
    run.run(run.Plan(SEED, 10, lines, 2))
    found = run.run(run.Plan(SEED, 14, lines, 2, device=2))
    ends = {n: (each["outcome"], each["gate"], each["detail"]) for n, each in found.items()}
    for number, end in {
        1: ("caught", "numeric", "wrong"),
        3: ("caught", "isolation", "wrong"),
        5: ("caught", "sanitizer", "hazard"),
        7: ("slipped", "", "large 1x8x8: bits differ"),
        9: ("undecided", "", ""),
        11: ("unseen", "", ""),
        13: ("caught", "state", "an old product"),
    }.items():
        assert ends[number] == end
    assert found[1]["operator"] == "operator 1", "a decided line has all of the first one"
    monkeypatch.delitem(BEHAVIOUR, 9)
    again = run.run(run.Plan(SEED, 14, lines, 2, device=2))
    assert again[9]["outcome"] == "unseen", "what was left is decided by the next call"
    assert {n: e for n, e in again.items() if n != 9} == {n: e for n, e in found.items() if n != 9}


def test_a_mutant_is_compared_bit_by_bit() -> None:
    """Truncation differs from rounding in some element of each product, an error in the order of
    sums in none of what is exact."""
    place = torch.device("cpu")
    assert compare.differences(made_up(), honest, honest, place, 1, count=9) == []
    found = compare.differences(made_up(), honest, truncates_output, place, 1, count=9)
    assert len(found) >= 5
    assert all(text.endswith("bits differ") for text in found)

    def refuses(*arguments: torch.Tensor) -> None:
        raise ValueError("outside dims")

    found = compare.differences(made_up(), honest, refuses, place, 1, count=2)
    assert [text.split(": ")[1] for text in found] == ["outside dims", "outside dims"]


def test_values_are_of_their_kind() -> None:
    generator = torch.Generator().manual_seed(1)
    found = {kind: compare.values(kind, 200, 256, generator) for kind in compare.KINDS}
    assert found["constant"].unique().tolist() == [1.5]
    assert found["outliers"].abs().max() > 1e4
    assert found["specials"].isnan().any() and found["specials"].isinf().any()
    assert found["tiny"].abs().max() < 2.0**-11
    assert not found["zero blocks"][:, :64].any() and found["zero blocks"][:, 64:128].all()
    assert found["normal"].isfinite().all()
