"""`generate serve`: the evaluator over HTTP, until it is told to end."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from hgemm_packs.cli.console import UserError, console
from hgemm_packs.generator.cli.app import AGENTS, app
from hgemm_packs.generator.evaluator import DEVICES

Device = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help=f"{DEVICES} Repeatable, for several at a time. Default: every GPU here, else none.",
    ),
]
Seconds = Annotated[
    float, typer.Option(min=1.0, help="Wall time of one evaluation, compilation included.")
]
Minute = Annotated[int, typer.Option(min=1, help="Candidates that one token may hand in a minute.")]


@app.command(rich_help_panel=AGENTS)
def serve(
    folder: Annotated[
        Path, typer.Option(help="Jobs and their answers. A server goes on from its folder.")
    ] = Path("evaluator-jobs"),
    device: Device = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others than this machine's want --tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8347,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines of NAME TOKEN, for its owner alone.")
    ] = None,
    job_seconds: Seconds = 900.0,
    per_minute: Minute = 600,
) -> None:
    """Evaluate for others over HTTP: submit, poll, stream, cancel.

    POST /v1/jobs takes {"problem": {"m": ..., "n": ..., "k": ...}, "candidate": {...}}, where a
    candidate is {"family": ..., "genome": {...}} or {"source": ..., "record": {...}}. Ctrl-C ends
    the server; what is not finished is evaluated when it is started again.
    docs/evaluator.md of the repository has every page, status and reward.
    """
    from hgemm_packs.generator.evaluator.served.http_door import Server
    from hgemm_packs.generator.evaluator.served.owners import Owners

    try:
        owners = Owners.of_file(tokens) if tokens else Owners()
    except OSError as error:
        raise UserError(f"{tokens}: {error.strerror}") from None
    with open_service(folder, device, job_seconds, per_minute) as service:
        try:
            server = Server(host, port, service, owners)
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        with server:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
            names = ", ".join(each["device"] for each in service.status()["devices"])
            console().print(f"listening on {server.url}, evaluating on {names}, jobs in {folder}")
            server.serve_forever(poll_interval=0.2)


def open_service(
    folder: Path, devices: list[str] | None, job_seconds: float, per_minute: int
) -> Any:
    """The service of a door. Raises UserError for a device that cannot be opened."""
    from hgemm_packs.generator.evaluator.served.process import CannotStart
    from hgemm_packs.generator.evaluator.served.requests import Limits
    from hgemm_packs.generator.evaluator.served.service import Service

    limits = Limits(job_s=job_seconds, per_minute=per_minute)
    try:
        return Service(folder, devices or _here(), limits)
    except CannotStart as error:
        raise UserError(str(error)) from None


def _here() -> list[str]:
    """Every GPU of this machine; none is a device as well."""
    import torch

    return [f"gpu:{index}" for index in range(torch.cuda.device_count())] or ["none"]
