"""From a refusal to a request for repair that names the lines at fault."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.agents.roles.compiler import at_fault, repair_request

from .grounds import attempt

SOURCE = "\n".join(f"line {i}" for i in range(1, 21))
CANDIDATE = {"source": SOURCE, "record": {}, "name": "k"}


def test_the_lines_of_a_diagnostic_stand_there_with_their_neighbours() -> None:
    words = 'k.cu(5): error: identifier "x" is undefined\nk.cu(6): warning: unused'
    assert at_fault(SOURCE, words) == [
        "     3 line 3",
        "     4 line 4",
        ">    5 line 5",
        ">    6 line 6",
        "     7 line 7",
        "     8 line 8",
    ]


@pytest.mark.parametrize("words", ["k.cu(99): error: far away", "no line is named", "(0): error"])
def test_what_names_no_line_of_the_source_gives_none(words: str) -> None:
    assert at_fault(SOURCE, words) == []


def test_a_request_has_words_lines_and_the_refused_candidate() -> None:
    refused = attempt(
        status="BUILD",
        gate="build",
        words="k.cu(2): error: no",
        candidate=CANDIDATE,
        speedup=None,
    )
    found = repair_request(refused)
    assert found is not None and found.candidate == CANDIDATE
    assert [(part.title, part.source) for part in found.parts()] == [
        ("What was refused, and why", "the evaluator's answer"),
        ("The lines at fault", "the compiler's diagnostics"),
    ]
    assert "k.cu(2): error: no" in found.parts()[0].text
    assert found.parts()[1].text.splitlines()[1] == ">    2 line 2"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": "SLOWER"},
        {"status": "HACK", "gate": "plausibility", "speedup": None},
        {"status": "HACK", "gate": "numeric", "speedup": None},
        {"status": "SANITIZER", "gate": "sanitizer", "speedup": None},
        {"status": "UNMEASURED", "gate": "", "speedup": None},
    ],
)
def test_what_passed_or_cheated_is_not_repaired(fields: dict[str, object]) -> None:
    assert repair_request(attempt(**fields)) is None
