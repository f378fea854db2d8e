"""The MCP door: an agent's tools over the same queue, by the library's own client."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator import schema
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.served.owners import LOCAL
from hgemm_packs.generator.evaluator.served.requests import Limits
from hgemm_packs.generator.evaluator.served.service import Service
from hgemm_packs.problem import Problem
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM, of_case, of_choice
from tests.generator.evaluator.serving import SIM, held

pytest.importorskip("mcp")

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from hgemm_packs.generator.evaluator.served import mcp_door

SIZES = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k}
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(source_chars=1 << 16)
    with Service(tmp_path_factory.mktemp("mcp"), [SIM], limits) as made:
        yield made


def with_client(service: Service, work: Callable[[Client], Any]) -> Any:
    """What `work` returns, a client of a server over the service at hand."""

    async def run() -> Any:
        async with Client(mcp_door.server(service)) as client:
            return await work(client)

    return anyio.run(run)


def call(service: Service, tool: str, arguments: dict[str, Any]) -> tuple[bool, Any]:
    """Whether a tool failed, and what it answered: words where it did."""

    async def work(client: Client) -> tuple[bool, Any]:
        said = await client.call_tool(tool, arguments)
        if said.is_error:
            return True, said.content[0].text  # type: ignore[union-attr]
        return False, said.structured_content

    found: tuple[bool, Any] = with_client(service, work)
    return found


def genome_arguments(at: int) -> dict[str, Any]:
    choice = proposals.choices()[at]
    return {**SIZES, "family": choice.family, "genome": choice.genome}


def test_the_tools_are_listed(service: Service) -> None:
    async def work(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    assert with_client(service, work) == [
        *("evaluate_genome", "evaluate_source", "describe_families", "describe_records"),
        *("problem_facts", "queue"),
    ]


def test_a_genome_is_answered_as_by_the_evaluator(service: Service) -> None:
    failed, answer = call(service, "evaluate_genome", genome_arguments(0))
    expected = Evaluator(SimDevice(3)).evaluate(of_choice(proposals.choices()[0]), PROBLEM)
    assert (failed, answer) == (False, expected.document())


def test_fifty_calls_at_once(service: Service) -> None:
    listed = proposals.choices(50)
    answers: dict[int, Any] = {}

    async def work(client: Client) -> None:
        async def one(at: int) -> None:
            choice = listed[at]
            given = {**SIZES, "family": choice.family, "genome": choice.genome}
            answers[at] = (await client.call_tool("evaluate_genome", given)).structured_content

        async with anyio.create_task_group() as group:
            for at in range(len(listed)):
                group.start_soon(one, at)

    with_client(service, work)
    evaluator = Evaluator(SimDevice(3))
    expected = [evaluator.evaluate(of_choice(each), PROBLEM).document() for each in listed]
    assert [answers[at] for at in range(50)] == expected


def test_source_meets_the_gates(service: Service) -> None:
    for name, status in (("clock_by_a_macro", "STATIC"), ("plain", "UNMEASURED")):
        one = of_case(name)
        given = {"source": one.source, "record": dict(one.record), "name": one.name}
        sizes = {"m": 64, "n": 64, "k": 128, "layout": one.record["layout"]}
        failed, answer = call(service, "evaluate_source", {**given, **sizes})
        assert (failed, answer["status"]) == (False, status)


def test_the_example_of_records_passes(service: Service) -> None:
    _, records = call(service, "describe_records", {})
    assert records == json.loads(json.dumps(schema.records()))
    example = records["example"]
    failed, answer = call(
        service, "evaluate_source", {**example, "m": 64, "n": 64, "k": 128, "layout": "nn"}
    )
    assert (failed, answer["status"]) == (False, "UNMEASURED")


def test_what_is_said_of_families_and_problems(service: Service) -> None:
    _, families = call(service, "describe_families", {})
    assert families == json.loads(json.dumps(schema.families()))
    _, facts = call(service, "problem_facts", SIZES)
    assert facts == schema.problem_facts(PROBLEM)
    _, queue = call(service, "queue", {})
    assert queue == service.status()


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("problem_facts", {"m": 0, "n": 1, "k": 1}, "0 is not in 1..2147483647"),
        ("problem_facts", {"m": 2**30, "n": 8, "k": 8}, "M, N and K are at most 65536 here"),
        ("problem_facts", {**SIZES, "layout": "xx"}, "'xx' is not one of"),
        ("evaluate_genome", {**SIZES, "m": -1, "family": "x", "genome": {}}, "-1 is not in"),
        (
            "evaluate_source",
            {**SIZES, "source": "x" * 70_000, "record": {}},
            "a source of 70000 characters, at most 65536",
        ),
        ("evaluate_genome", {**SIZES, "family": "x"}, "genome"),
        ("evaluate_genome", {**SIZES, "family": "x", "genome": [1]}, "genome"),
        ("no_such_tool", {}, "no_such_tool"),
    ],
)
def test_hostile_calls_are_refused_in_words(
    service: Service, tool: str, arguments: dict[str, Any], words: str
) -> None:
    before = service.last(LOCAL, 1000)
    try:
        failed, said = call(service, tool, arguments)
    except Exception as error:  # a tool that is not there is an error of the protocol
        failed, said = True, _words(error)
    assert failed and words in said
    assert service.last(LOCAL, 1000) == before


def _words(error: BaseException) -> str:
    """The words of an error, of all of a group."""
    return "\n".join([str(error), *map(_words, getattr(error, "exceptions", ()))])


def test_a_call_that_is_given_up_cancels_its_job(service: Service) -> None:
    async def work(client: Client) -> None:
        with anyio.move_on_after(3.0):
            await client.call_tool("evaluate_genome", genome_arguments(1))
        for _ in range(200):
            if service.last(LOCAL, 1)[0]["state"] == "cancelled":
                return
            await anyio.sleep(0.1)

    with held(service):
        with_client(service, work)
        assert service.last(LOCAL, 1)[0]["state"] == "cancelled"
    failed, answer = call(service, "evaluate_genome", genome_arguments(2))
    assert not failed and answer["correct"]


def test_a_killed_process_is_told_and_replaced(service: Service) -> None:
    async def work(client: Client) -> Any:
        async def kill() -> None:
            while service.last(LOCAL, 1)[0]["state"] != "running":
                await anyio.sleep(0.05)
            (pid,) = service.pids()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            return await client.call_tool("evaluate_genome", genome_arguments(3))

    with held(service):
        said = with_client(service, work)
    assert said.is_error and "process_died" in said.content[0].text
    failed, answer = call(service, "evaluate_genome", genome_arguments(3))
    assert not failed and answer["correct"]


def test_the_verb_speaks_through_pipes(tmp_path: Path) -> None:
    made = tmp_path / "made.npz"
    proposals.write_recording(made)
    words = ["-m", "hgemm_packs", "generate", "mcp", "--device", f"replay:{made}"]
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    start = StdioServerParameters(
        command=sys.executable, args=words, env={**os.environ, "PYTHONPATH": path}
    )

    async def run() -> Any:
        async with Client(stdio_client(start)) as client:
            return await client.call_tool("evaluate_genome", genome_arguments(0))

    said = anyio.run(run)
    answer = said.structured_content
    assert (answer["status"], answer["reward"]) == ("OK", 1.0)
    assert answer["times"]["hot"]["us"] == pytest.approx(5.0, rel=4e-4)


def test_other_problems_are_unmeasured_on_a_recording() -> None:
    device, listed = proposals.recorded()
    answer = Evaluator(device).evaluate(of_choice(listed[0]), Problem(64, 512, 1024, "nt", "f16"))
    assert answer.reward == -0.4
