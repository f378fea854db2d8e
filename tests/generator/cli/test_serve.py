"""The verbs of the evaluator: `eval` on any device, `serve` that is killed and started again, `mcp`
without its library."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator import served as served_doors
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from tests.generator.command import generate
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM, of_choice
from tests.generator.evaluator.serving import SIM, Client

REPOSITORY = Path(__file__).resolve().parents[3]
TOKEN = "a-token-that-is-long-enough"


def choice_text(at: int = 0) -> str:
    return json.dumps(of_choice(proposals.choices()[at]).document())


def test_eval_on_a_simulation_is_the_evaluators_answer() -> None:
    code, out, _ = generate("eval", choice_text(), 64, 512, 512, "--device", SIM, "--json")
    answer = Evaluator(SimDevice(3)).evaluate(of_choice(proposals.choices()[0]), PROBLEM)
    assert json.loads(out) == answer.document()
    assert code == int(not answer.verdict.passed)


def test_eval_on_a_recording_says_it_in_words(tmp_path: Path) -> None:
    made = tmp_path / "made.npz"
    proposals.write_recording(made)
    words = "--device", f"replay:{made}"
    code, out, _ = generate("eval", choice_text(0), 64, 512, 512, *words)
    assert code == 0 and "timing" in out and "It is faster than torch." in out
    code, out, _ = generate("eval", choice_text(2), 64, 512, 512, *words)
    assert code == 1 and "SLOWER" in out and "It is not faster than torch." in out
    code, out, _ = generate("eval", choice_text(4), 64, 512, 512, *words, "--json")
    assert code == 0 and json.loads(out)["status"] == "UNMEASURED"


def test_eval_on_no_device_of_ours() -> None:
    code, out, err = generate("eval", "plain", 64, 64, 64, "--device", "cuda")
    assert (code, out) == (2, "") and "'cuda' is no device: name \"gpu\"" in err
    code, _, err = generate("eval", "plain", 64, 64, 64, "--device", "replay:none.npz")
    assert code == 2 and "none.npz" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "0.0.0.0 can be reached from elsewhere: name a file of tokens"),
        (("--tokens", "none"), "none: No such file or directory"),
        (("--device", "sim:x"), "'sim:x' is no device"),
        (("--device", "replay:none.npz"), "none.npz"),
    ],
)
def test_serve_refuses_what_it_cannot_do(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    device = () if "--device" in words else ("--device", SIM)
    code, _, err = generate("serve", "--port", 0, *device, *words)
    assert code == 2 and said in err


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann {TOKEN}\n", encoding="utf-8")
    tokens.chmod(0o644)
    code, _, err = generate("serve", "--folder", tmp_path / "jobs", "--tokens", tokens)
    assert code == 2 and "others may read it" in err and TOKEN not in err


def test_mcp_without_its_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    door = "hgemm_packs.generator.evaluator.served.mcp_door"
    monkeypatch.delitem(sys.modules, door, raising=False)
    monkeypatch.delattr(served_doors, "mcp_door", raising=False)  # of an earlier test
    for name in {"mcp", *(name for name in sys.modules if name.startswith("mcp."))}:
        monkeypatch.setitem(sys.modules, name, None)
    code, out, err = generate("mcp", "--device", SIM)
    assert (code, out) == (2, "")
    assert err == "hgemm-packs: mcp is missing: pip install 'hgemm-packs[mcp]'\n"


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """The verb in a process of its own, with a token."""
    tokens = folder.parent / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"ann {TOKEN}\n", encoding="utf-8")
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["--folder", str(folder), "--device", SIM, "--port", "0", "--tokens", str(tokens)]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "hgemm_packs", "generate", "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"listening on http://127\.0\.0\.1:(\d+), evaluating on sim:3", line)
        assert found is not None, line
        yield process, Client(("127.0.0.1", int(found[1])), TOKEN)
    finally:
        process.kill()
        process.wait()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def test_a_server_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Finished jobs are answered for, the others are evaluated; and the killed server's processes
    are gone."""
    folder = tmp_path / "jobs"
    given = [of_choice(choice) for choice in proposals.choices(3)]
    places: list[Any] = []
    with served(folder) as (process, client):
        first = client.submit(given[0], wait=60).body
        (worker,) = children(process.pid)
        os.kill(worker, signal.SIGSTOP)
        places += [client.submit(each).headers["Location"] for each in given[1:]]
        process.kill()
        process.wait()
    with served(folder) as (process, client):
        assert client.ask("GET", f"/v1/jobs/{first['id']}").body == first
        seen = [client.ask("GET", f"{place}?wait=60").body for place in places]
        evaluator = Evaluator(SimDevice(3))
        expected = [evaluator.evaluate(each, PROBLEM).document() for each in given[1:]]
        assert [each["answer"] for each in seen] == expected
        assert not Path(f"/proc/{worker}/cmdline").exists() or b"evaluator" not in (
            Path(f"/proc/{worker}/cmdline").read_bytes()
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert TOKEN.encode() not in kept and b"ann" in kept
