"""Exports of a run: its proposals as turns, with what each was worth."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.space import catalogue
from hgemm_packs.generator.core.spec import (
    Choice,
    DeviceFacts,
    Job,
    Proposal,
    Reply,
    Result,
    Status,
    Verdict,
)
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.rl.actions import ActionSpace
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.command import generate

PROBLEM = Problem(256, 256, 256, "nt", "f16")
FACTS = DeviceFacts("H200", "sm_90a", 132, 50 << 20)
TORCH = 4.0
#: Of each choice: us or what was wrong, and the place of its parent.
TRIED: tuple[tuple[float | Status, int | None], ...] = (
    (8.0, None),
    (4.0, None),
    (2.0, 0),
    (7.9, 0),
    (Status.NUMERIC, 0),
    (3.0, 2),
    (Status.HACK, 1),
    (5.0, 6),
)


@pytest.fixture(scope="module")
def tried() -> list[Choice]:
    return [c for c in catalogue("nt", "f16") if c.family == "sm90_wgmma"][::97][: len(TRIED)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tried: list[Choice]) -> Path:
    folder = tmp_path_factory.mktemp("run")
    with Store(folder) as store:
        run, toolchain = store.add_run({}), store.add_toolchain({"nvrtc": "13"})
        for choice, (what, parent) in zip(tried, TRIED, strict=True):
            parents = () if parent is None else (tried[parent].key,)
            store.add_candidate(run, PROBLEM, Proposal(choice, "islands", "mutate", parents))
            kernel = fake_kernel(choice)
            store.add_build(choice, toolchain, kernel)
            status = what if isinstance(what, Status) else Status.OK
            us = what if isinstance(what, float) else 0.5
            samples = {} if status is Status.NUMERIC else {"hot": (us,)}
            screened = Status.OK if status is Status.HACK else status
            store.add_reply(
                run,
                Job("screen", PROBLEM, (kernel,), 0),
                Reply(
                    {kernel.id: Result(screened, samples)},
                    {"torch": {"hot": (TORCH,)}},
                    {},
                    0.1,
                    FACTS,
                ),
            )
            if status is Status.HACK:
                store.add_verdict(
                    kernel.id, Verdict("plausibility", Status.HACK, "too fast"), PROBLEM
                )
    return folder


def exported(run: Path, out: Path, name: str) -> list[dict[str, Any]]:
    answer = generate("export", run, out, "--format", name)
    lines = read_records([out])
    assert (answer.code, answer.err) == (0, "") and f"{len(lines)} lines" in answer.out
    return lines


def test_grpo_has_every_turn_with_its_parts(run: Path, tried: list[Choice], tmp_path: Path) -> None:
    lines = exported(run, tmp_path / "grpo.jsonl", "grpo")
    assert [line["source"] for line in lines] == [choice.key for choice in tried]
    half = -0.4
    assert [line["reward"] for line in lines] == pytest.approx(
        [half, 0.1, 1.0, half, -0.5, 0.1 + math.log2(4 / 3), -1.5, 0.1 + math.log2(0.8)], abs=1e-6
    )
    assert [line["turn"] for line in lines] == [0, 0, 1, 1, 1, 2, 1, 0]
    assert [line["verdict"] for line in lines] == [
        *("OK", "OK", "OK", "OK", "NUMERIC", "OK", "HACK", "OK")
    ]
    assert lines[4]["parts"] == {"refused": -0.5} and lines[4]["us"] is None
    assert lines[2]["parts"] == {"right": 0.1, "speed": 0.9} and lines[2]["speedup"] == 2.0
    assert (lines[2]["parent"], lines[2]["parent_us"]) == (tried[0].key, 8.0)
    assert {line["model"] for line in lines} == {"islands"}
    # the third's return has its child's, the first's the mean of its three children's
    child = lines[5]["reward"]
    third = 1.0 + 0.4 * child
    assert lines[2]["return"] == pytest.approx(third, abs=1e-5)
    assert lines[0]["return"] == pytest.approx(half + 0.4 * (third + half - 0.5) / 3, abs=1e-5)


def test_a_group_is_a_prompt_and_its_advantages_leave_each_out(
    run: Path, tried: list[Choice], tmp_path: Path
) -> None:
    lines = exported(run, tmp_path / "grpo.jsonl", "grpo")
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(line["group"], []).append(line)
    sizes = sorted(len(group) for group in groups.values())
    assert sizes == [1, 1, 3, 3]
    for group in groups.values():
        assert len({json.dumps(line["prompt"]) for line in group}) == 1
        for line in group:
            rest = [other["reward"] for other in group if other is not line]
            mean = sum(rest) / len(rest) if rest else line["reward"]
            assert line["advantage"] == pytest.approx(line["reward"] - mean, abs=1e-5)
    space = ActionSpace(tried)
    prompt = lines[5]["prompt"]
    assert [m["content"] for m in prompt[2:]] == [
        space.text(tried[0]),
        "OK: 0.50 x torch, 8 us",
        space.text(tried[2]),
        "OK: 2.00 x torch, 2 us",
    ]
    assert lines[5]["completion"] == space.text(tried[5])


def test_what_is_quarantined_is_in_no_prompt_and_never_an_example(
    run: Path, tried: list[Choice], tmp_path: Path
) -> None:
    cheat = ActionSpace(tried).text(tried[6])
    lines = exported(run, tmp_path / "grpo.jsonl", "grpo")
    assert [line["completion"] == cheat for line in lines].count(True) == 1
    assert all(cheat not in m["content"] for line in lines for m in line["prompt"])
    for name in ("sft", "pairs"):
        text = (tmp_path / name).with_suffix(".jsonl")
        exported(run, text, name)
        assert json.dumps(cheat)[1:-1] not in text.read_text(encoding="utf-8")


def test_sft_has_first_answers_level_with_torch_and_revisions_that_gain(
    run: Path, tried: list[Choice], tmp_path: Path
) -> None:
    """Not the first (half as fast), the fourth (1% over its parent), the sixth (slower)."""
    lines = exported(run, tmp_path / "sft.jsonl", "sft")
    assert [line["source"] for line in lines] == [tried[1].key, tried[2].key]
    space = ActionSpace(tried)
    assert lines[1]["messages"][-1] == {"role": "assistant", "content": space.text(tried[2])}
    assert len(lines[1]["messages"]) == 5


def test_pairs_have_one_prompt_and_differ_in_reward(
    run: Path, tried: list[Choice], tmp_path: Path
) -> None:
    lines = exported(run, tmp_path / "pairs.jsonl", "pairs")
    place = {choice.key: i for i, choice in enumerate(tried)}
    found = [
        (place[line["source"]], place[line["rejected_source"]], line["margin"]) for line in lines
    ]
    assert found == [
        (1, 0, 0.5),
        (1, 7, pytest.approx(math.log2(1.25), abs=1e-5)),
        (2, 4, 1.5),
        (2, 3, 1.4),
    ]
    assert all(len(line["chosen"]) == len(line["rejected"]) == 1 for line in lines)


def test_exports_of_nothing_and_of_no_store_are_told(tmp_path: Path) -> None:
    with Store(tmp_path / "empty"):
        pass
    answer = generate("export", tmp_path / "empty", tmp_path / "out", "--format", "sft")
    assert answer.code == 1 and "0 lines" in answer.out
    answer = generate("export", tmp_path / "none", tmp_path / "out", "--format", "sft")
    assert (answer.code, answer.out) == (2, "") and "no store at" in answer.err
