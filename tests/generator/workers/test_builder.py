"""The build service: kernels and refusals in parallel; a compiler that dies costs one kernel."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.redteam.mutation import bases
from hgemm_packs.generator.workers import builder
from hgemm_packs.generator.workers.builder import ProcessBuilder
from tests.generator.store.sample_store import choices

GOOD, OTHER, DEADLY = choices(3)
INVALID = Choice.of(GOOD.family, {**GOOD.genome, "unroll": 999})
_real = builder.make


def deadly(choice: Choice) -> CompiledKernel | Verdict:
    """`make` with a compiler that dies of one choice."""
    if choice == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return _real(choice)


def test_kernels_and_refusals() -> None:
    with ProcessBuilder(1) as service:
        found = service.build([GOOD, INVALID])
    kernel, refused = found[GOOD], found[INVALID]
    expected = compiler.as_kernel(compiler.build_one(GOOD.family, GOOD.genome))
    assert isinstance(kernel, CompiledKernel) and isinstance(refused, Verdict)
    assert (kernel.cubin, kernel.fields, kernel.facts) == (
        expected.cubin,
        expected.fields,
        expected.facts,
    )
    assert refused.status is Status.PARSE and "unroll=999" in refused.detail


def test_what_was_begun_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for its device has its first choices compiled; each is then there."""
    sent: list[Choice] = []
    submit = ProcessBuilder._submit

    def count(self: ProcessBuilder, choice: Choice) -> object:
        before = self._pending.get(choice)
        future = submit(self, choice)
        sent.extend([choice] if future is not before else [])
        return future

    monkeypatch.setattr(ProcessBuilder, "_submit", count)
    with ProcessBuilder(1) as service:
        service.begin([GOOD, INVALID])
        found = service.build([INVALID, GOOD])
    kernel, refused = found[GOOD], found[INVALID]
    assert sent == [GOOD, INVALID]
    assert isinstance(kernel, CompiledKernel) and kernel.fields["genome"] == GOOD.genome
    assert isinstance(refused, Verdict) and refused.status is Status.PARSE


def test_what_the_gate_refuses_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Verdict("binary", Status.BINARY, "fp16 accumulator")
    monkeypatch.setattr(builder.binary, "check_image", lambda fields, cubin: refusal)
    assert builder.make(GOOD) is refusal


def test_the_whole_gate_judges_finalists() -> None:
    """A tile that no CTA's registers could hold is found out by counting the SASS's products."""
    built = builder.make(GOOD)
    assert isinstance(built, CompiledKernel)
    grid = {"tile_m": 4096, "tile_n": 4096, "persistent": False}
    lied = replace(built, fields={**built.fields, "family": "foreign", "grid": grid})
    with ProcessBuilder(1) as service:
        assert service.inspect([built])[built.id].passed
        assert service.inspect([lied])[built.id].status is Status.BINARY


@pytest.mark.parametrize("name", ["sm90_batched", "sm90_grouped"])
def test_finalists_of_several_products_pass(name: str) -> None:
    """All were refused: the size gate names problems for them, which are not of their gate."""
    kernel = builder.make(bases.draw(1, 0, name).choice)
    assert isinstance(kernel, CompiledKernel)
    verdict = builder.inspect(kernel)
    assert verdict.passed, verdict.detail


def test_a_dead_compiler_costs_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others that were with it are built after all, and so is what comes later. When it was
    the last to be built, the whole run ended: the gate had no process for its finalists."""
    monkeypatch.setattr(builder, "make", deadly)
    with ProcessBuilder(1) as service:
        found = service.build([GOOD, DEADLY, OTHER])
        good = found[GOOD]
        assert isinstance(good, CompiledKernel) and service.inspect([good])[good.id].passed
        again = service.build([OTHER])
    verdict = found[DEADLY]
    assert isinstance(verdict, Verdict) and verdict.status is Status.BUILD
    assert DEADLY.name in verdict.detail and "died" in verdict.detail
    for choice in (GOOD, OTHER):
        assert found[choice].fields["genome"] == choice.genome  # type: ignore[union-attr]
    assert again[OTHER].cubin == found[OTHER].cubin  # type: ignore[union-attr]


def test_the_toolchain_names_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = builder.toolchain()
    assert before == builder.toolchain() and before["nvrtc"] == compiler.NVRTC_PIN
    edited = functools.cache(lambda stem: f"// {stem}, edited")
    monkeypatch.setattr(compiler, "expand_source", edited)
    assert builder.toolchain()["sources"] != before["sources"]


PARENT = """
import multiprocessing, sys
from hgemm_packs.generator.workers.builder import ProcessBuilder
from tests.generator.store.sample_store import choices
if __name__ == "__main__":
    service = ProcessBuilder(1)
    service.build(choices(1))
    print(multiprocessing.active_children()[0].pid, flush=True)
    sys.stdin.read()
"""


def test_compilers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    timer = threading.Timer(60, parent.kill)
    timer.start()
    assert parent.stdout is not None and parent.stdin is not None
    child = Path(f"/proc/{int(parent.stdout.readline())}")
    timer.cancel()
    assert child.exists()
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    until = time.monotonic() + 10
    while child.exists() and " Z " not in (child / "stat").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
