"""The command line in this process, with a simulated GPU where one is asked for."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hgemm_packs import cli
from hgemm_packs.generator import report
from hgemm_packs.generator.cli import remeasure, search
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Device, Status, Verdict
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem

SHAPES = ((128, 512, 512), (256, 1024, 512), (256, 1024, 4096))
PROBLEMS = [Problem(*shape, "nt", "f16") for shape in SHAPES]


class Answer(NamedTuple):
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


class Builder:
    """Compiles nothing."""

    workers = 0
    toolchain: Mapping[str, Any] = {"sources": "none"}

    def build(self, wanted: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        return {choice: fake_kernel(choice) for choice in wanted}

    def begin(self, choices: Sequence[Choice]) -> None: ...

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return {one.id: Verdict("binary", Status.OK) for one in kernels}

    def close(self) -> None: ...


def listed(path: Path, problems: Sequence[Problem]) -> Path:
    """A file of shapes."""
    text = (f"[[problem]]\nm = {p.m}\nn = {p.n}\nk = {p.k}\n" for p in problems)
    path.write_text("\n".join(text), encoding="utf-8")
    return path


def generate(*arguments: object) -> Answer:
    """`hgemm-packs generate ...` on this machine, as if it had no GPU."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr("torch.cuda.is_available", lambda: False)
        patch.setattr("torch.cuda.device_count", lambda: 0)
        patch.setattr(search.gpus, "count", lambda: 0)
        patch.setattr(sys, "argv", ["hgemm-packs", "generate", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def machine() -> SimDevice:
    """One on which some kernels fail, and some beat the library."""
    return SimDevice(1, Faults(launch=0.05, numeric=0.05), Noise(0.001, 0.0))


def simulated(*arguments: object, device: Device | None = None, drawn: bool = False) -> Answer:
    """`generate` with a simulated GPU and nothing compiled; a page only if `drawn`, for its plots
    take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "open_evaluator", lambda *_: Inline(device or machine()))
        for verb in (search, remeasure):
            patch.setattr(verb, "ProcessBuilder", lambda jobs: Builder())
        patch.setattr(search, "gpus_here", lambda asked: 1)
        patch.setattr(search, "run_sanitizer", lambda count, kernels, ahead: ())
        if not drawn:
            patch.setattr(report, "page", lambda document: "")
        return generate(*arguments)
