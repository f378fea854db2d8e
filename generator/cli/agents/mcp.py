"""`generate mcp`: the evaluator as tools of a coding agent."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hgemm_packs.cli.console import UserError
from hgemm_packs.generator.cli.agents.serve import Device, Minute, Seconds, open_service
from hgemm_packs.generator.cli.app import AGENTS, app


@app.command(rich_help_panel=AGENTS)
def mcp(
    folder: Annotated[
        Path | None, typer.Option(help="Jobs and their answers. Default: none are kept.")
    ] = None,
    device: Device = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Speak HTTP on this machine's port, not by pipes."),
    ] = None,
    job_seconds: Seconds = 900.0,
    per_minute: Minute = 600,
) -> None:
    """Evaluate for a coding agent: a server of the Model Context Protocol.

    An agent starts it and speaks through its standard input and output. With --port it serves
    http://127.0.0.1:PORT/mcp, to programs of this machine alone. docs/evaluator.md of the
    repository names its tools.
    """
    try:
        from hgemm_packs.generator.evaluator.served import mcp_door
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise UserError("mcp is missing: pip install 'hgemm-packs[mcp]'") from None
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(open_service(place, device, job_seconds, per_minute))
        server = mcp_door.server(service)
        with contextlib.suppress(KeyboardInterrupt):
            if port is None:
                server.run("stdio")
            else:
                server.run("streamable-http", host="127.0.0.1", port=port)
