"""Random problems by random kernels: what is drawn, what is caught, and what a summary counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gates import random_problems
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.devices import drawn, gated
from hgemm_packs.generator.gates.checker import NumericError
from hgemm_packs.generator.workers import evaluators
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import lead_of
from hgemm_packs.problem import ALIGNED, LAYOUTS, Problem, alignments_of
from tests.generator import stand_in

CPU = torch.device("cpu")


# --- what is drawn --------------------------------------------------------------------------------


def test_a_seed_draws_the_same_problems_of_every_sort() -> None:
    some = list(islice(random_problems.draw_problems(3), 600))
    assert some == list(islice(random_problems.draw_problems(3), 600))
    assert some != list(islice(random_problems.draw_problems(4), 600))
    odd = [p for p in some if p.n % 8 or p.k % 8]
    assert len(odd) == 200 and {p.layout for p in odd} == set(LAYOUTS) == {p.layout for p in some}
    # A few addresses drawn off 16 bytes are at multiples of 16.
    assert sum(p.base == ALIGNED and not p.packed for p in some) in range(200, 207)
    assert 60 <= sum(p.base != ALIGNED for p in some) <= 100
    assert {p.dtype for p in some} == {"f16", "bf16"}
    assert all(2.0 * p.m * p.n * p.k <= random_problems.MOST_FLOP for p in some)
    assert min(p.m for p in some) == 1 and max(p.m for p in some) > 8192


# --- one launch -----------------------------------------------------------------------------------


def record(problem: Problem) -> Any:
    """A kernel that takes any problem of this layout, type and epilogue."""
    one = stand_in.kernel("ptr_v1", problem.layout, dtype=problem.dtype)
    fields = {**one.fields, "out_dtype": problem.dtype, "epilogue": problem.epilogue}
    return entry(fields, one.cubin)


def right(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    c.copy_(a.double() @ b.double())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("base", "packed"), [(ALIGNED, True), (ALIGNED, False), ((2, 8, 4), False)]
)
def test_operands_lie_as_the_problem_says(layout: str, base: Any, packed: bool) -> None:
    problem = Problem(24, 40, 56, layout, "bf16", base=base, packed=packed)
    seen: list[Any] = []

    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        for each, place in ((a, 0), (b, 1), (c, 2)):
            stored = each.t() if place < 2 and layout[place] == "t" else each
            assert stored.stride(1) == 1
            lead = stored.stride(0)
            if place < 2:
                assert lead == lead_of(stored.shape[1], base[place], packed)
            had = [16]
            while (each.data_ptr() % had[-1]) or (2 * lead % had[-1]):
                had.append(had[-1] // 2)
            seen.append(had[-1])
        assert torch.isnan(c).all()
        right(a, b, c)

    passed = drawn.check(record(problem), launch, problem, CPU, 1)
    assert tuple(seen) == alignments_of(problem, base)
    assert passed.shapes_tested == 1 and 0.0 < passed.max_rel_err < 0.004


def unstrided(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Takes rows for packed."""
    right(torch.as_strided(a, a.shape, (a.shape[1], 1)), b, c)


def behind(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Writes a row too many."""
    right(a, b, c)
    below = c.storage_offset() + c.shape[0] * c.stride(0)
    torch.as_strided(c, (1, c.shape[1]), c.stride(), below).zero_()


def short(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Leaves the last column."""
    right(a, b[:, :-1], c[:, :-1])


def off(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Forgets the last product of each sum."""
    right(a[:, :-1], b[:-1], c)


def writes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Changes an operand."""
    right(a, b, c)
    b[0, 0] = 3.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (unstrided, "drawn 24x40x56: .* elements wrong or unwritten"),
        (behind, "drawn 24x40x56: 40 guards touched$"),
        (short, "drawn 24x40x56: 24 elements wrong or unwritten"),
        (off, "drawn 24x40x56: .*relative error"),
        (writes, "drawn 24x40x56: 1 input elements changed$"),
    ],
)
def test_a_wrong_launch_is_caught(wrong: Callable[..., None], words: str) -> None:
    problem = Problem(24, 40, 56, "nn", "f16", packed=False)
    with pytest.raises(NumericError, match=words):
        drawn.check(record(problem), wrong, problem, CPU, 1)


# --- a run ----------------------------------------------------------------------------------------

NAMES = [one.fields["name"] for one in stand_in.GOOD]


@pytest.fixture
def pack(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Three kernels of the stand-in driver, nt and f16. `bad` are the names of those that add 1 to
    an element."""
    kernels = {one.fields["name"]: one for one in stand_in.GOOD}
    made = SimpleNamespace(
        entries={name: entry(one.fields, one.cubin) for name, one in kernels.items()},
        kernel=kernels.__getitem__,
        facts={"name": "made"},
        bad=set(),
        launched=[],
    )
    assert len(made.entries) == 3
    names = {one.id: name for name, one in kernels.items()}
    check = drawn.Drawn._check

    def checked(self: Any, record: Any, kernel: Any, job: Any) -> Any:
        def planted(handle: Any, epilogue: str) -> Any:
            arm = KernelArm(handle, epilogue)

            def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
                made.launched.append(names[record.id])
                arm(a, b, c)
                if names[record.id] in made.bad:
                    c[-1, -1] += 1

            return launch

        monkeypatch.setattr(drawn, "KernelArm", planted)
        return check(self, record, kernel, job)

    monkeypatch.setattr(drawn.Drawn, "_check", checked)
    monkeypatch.setattr(drawn.Drawn, "_place", CPU)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(random_problems, "Packed", lambda folder: made)
    monkeypatch.setattr(random_problems, "admits", lambda choice, problem: True)
    monkeypatch.setattr(random_problems.draw, "LARGEST", 64)  # the stand-in computes slowly
    monkeypatch.setattr(evaluators, "Local", lambda make, count, **_: Inline(make(0)))
    return made


def test_a_planted_wrong_kernel_is_caught(
    pack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_problems, "OUT", tmp_path / "random_problems.json")
    out = tmp_path / "o.jsonl"
    words = ["run", "pack", str(out), "--seed", "5", "--count", "30", "--commit", "c"]
    pack.bad.add(NAMES[1])
    assert random_problems.main(words) == 1
    launched = Counter(pack.launched)
    assert launched.keys() == set(NAMES) and launched.total() == 30
    assert random_problems.main(words) == 1 and len(pack.launched) == 30, "nothing ran again"
    assert random_problems.main(["summary", str(out)]) == 1
    found = json.loads((tmp_path / "random_problems.json").read_text())
    assert (found["seed"], found["problems"], found["left"]) == (5, 30, 0)
    assert found["wrong"] == launched[NAMES[1]] and found["right"] == 30 - found["wrong"]
    assert {each["kernel"] for each in found["failed"]} == {NAMES[1]}
    assert all("1 elements wrong" in each["detail"] for each in found["failed"])
    assert found["kernels"] == 2 and sum(found["by"]["way"].values()) == found["right"]
    assert found["by"]["way"].keys() == set(gated.WAYS)
    assert 0.0 < found["max_rel_err"] < 0.001


def test_a_run_that_was_stopped_is_not_whole(pack: SimpleNamespace, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    words = ["run", "pack", str(out), "--seed", "5", "--count", "12", "--commit", "c"]
    assert random_problems.main([*words, "--deadline", "0"]) == 1 and not pack.launched
    assert random_problems.main(words) == 0 and len(pack.launched) == 12
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(x["number"] for x in lines if "number" in x) == list(range(12))
