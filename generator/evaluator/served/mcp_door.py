"""The evaluator as tools of the Model Context Protocol, for coding agents.

Started by `generate mcp`. The tools ask the same service as the HTTP door, under the same limits;
what they answer is the same JSON. `mcp` is imported here and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from hgemm_packs.generator.evaluator import schema
from hgemm_packs.generator.evaluator.served import requests
from hgemm_packs.generator.evaluator.served.owners import LOCAL, Rates
from hgemm_packs.generator.evaluator.served.requests import Asked, Refusal
from hgemm_packs.generator.evaluator.served.service import Service

LOOK_S = 1.0  # between two looks whether the client has given up
ABOUT = """\
Evaluates CUDA kernels for half-precision matrix products C = A B on sm_90a: every gate of
correctness, then paired timing against torch and cuBLASLt. problem_facts says what bounds a problem
and which kernel families are for it, describe_families how to write a genome, describe_records how
to write free CUDA source. An answer has a status, a reward from -1.5 to 1, times in microseconds,
and words that say what to mend. Only device code is taken."""


class Tools:
    """What an agent may call; a method a tool. Errors are ToolError with a sentence."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rates = Rates(service.limits.per_minute)

    async def evaluate_genome(
        self,
        family: str,
        genome: dict[str, Any],
        m: int,
        n: int,
        k: int,
        layout: str = "nt",
        dtype: str = "f16",
        epilogue: str = "none",
    ) -> dict[str, Any]:
        """Evaluate a family's kernel on one problem. Genes that the problem decides (layout, dtype)
        may be left out; describe_families lists the others with their values."""
        problem = _problem(m, n, k, layout, dtype, epilogue)
        return await self._evaluate(problem, {"family": family, "genome": genome})

    async def evaluate_source(
        self,
        source: str,
        record: dict[str, Any],
        m: int,
        n: int,
        k: int,
        layout: str = "nt",
        dtype: str = "f16",
        epilogue: str = "none",
        name: str = "kernel",
    ) -> dict[str, Any]:
        """Evaluate free CUDA device code with its launch record on one problem. `name` is the
        kernel's symbol unless the record says "symbol"; describe_records lists a record's
        fields."""
        problem = _problem(m, n, k, layout, dtype, epilogue)
        candidate = {"source": source, "record": record, "name": name}
        return await self._evaluate(problem, candidate)

    async def describe_families(self) -> dict[str, Any]:
        """Every kernel family: what it is for, and the JSON schema of its genomes."""
        return schema.families()

    async def describe_records(self) -> dict[str, Any]:
        """The fields of a launch record with their defaults, the parameters that kernels may have,
        the headers that source may include, and a small example that passes."""
        return schema.records()

    async def problem_facts(
        self,
        m: int,
        n: int,
        k: int,
        layout: str = "nt",
        dtype: str = "f16",
        epilogue: str = "none",
    ) -> dict[str, Any]:
        """A problem in figures: its regime, operations, bytes, and the families that are for it."""
        document = _problem(m, n, k, layout, dtype, epilogue)
        try:
            return schema.problem_facts(requests.problem(document, self._service.limits))
        except Refusal as refusal:
            raise ToolError(str(refusal)) from None

    async def queue(self) -> dict[str, Any]:
        """How many evaluations wait and run, and how the devices are."""
        return self._service.status()

    async def _evaluate(
        self, problem: Mapping[str, Any], candidate: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The answer; a client that gives up cancels the job. Raises ToolError."""
        service = self._service
        try:
            asked: Asked = requests.asked(
                {"problem": dict(problem), "candidate": dict(candidate)}, service.limits
            )
            self._rates.take(LOCAL, 1)
            (job,) = await anyio.to_thread.run_sync(service.submit, LOCAL, [asked])
        except Refusal as refusal:
            raise ToolError(str(refusal)) from None
        try:
            while True:
                seen = await anyio.to_thread.run_sync(service.wait, LOCAL, job.id, LOOK_S)
                if seen["answer"] is not None:
                    answer: dict[str, Any] = seen["answer"]
                    return answer
                if seen["error"] is not None:
                    raise ToolError(f"{seen['error']['code']}: {seen['error']['message']}")
                if seen["state"] == "cancelled":
                    raise ToolError("cancelled: the evaluation was ended")
                if service.closed:
                    raise ToolError("closing: the service ends")
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_cancel, service, job.id)
            raise


def _cancel(service: Service, id_: str) -> None:
    with contextlib.suppress(Refusal):  # it was done meanwhile
        service.cancel(LOCAL, id_)


def _problem(m: int, n: int, k: int, layout: str, dtype: str, epilogue: str) -> dict[str, Any]:
    return {"m": m, "n": n, "k": k, "layout": layout, "dtype": dtype, "epilogue": epilogue}


def server(service: Service) -> MCPServer[Any]:
    """An MCP server with the tools of `Tools`; `run` of it takes a transport."""
    made: MCPServer[Any] = MCPServer("hgemm-packs", instructions=ABOUT, log_level="WARNING")
    tools = Tools(service)
    for tool in (
        tools.evaluate_genome,
        tools.evaluate_source,
        tools.describe_families,
        tools.describe_records,
        tools.problem_facts,
        tools.queue,
    ):
        made.add_tool(tool)
    return made
