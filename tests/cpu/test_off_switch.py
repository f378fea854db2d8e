"""The off switch: torch runs every call where HGEMM_PACKS_OFF=1, disable() or disabled() say so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, report, select, settings
from tests import reference
from tests.cpu.test_runtime import operands, run
from tests.fake_driver import Started


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    yield
    hgemm_packs.resume()
    assert settings._blocks == 0


def served(fake: Started) -> str:
    """Who ran a call: "kernel", "off" or "torch"."""
    before = launcher.counters()
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    reference.assert_exact(fake.linear(a, b.t().contiguous()), a, b)
    after = launcher.counters()
    off = after.get("fallback off", 0) - before.get("fallback off", 0)
    hits = after["hits"] - before["hits"]
    return {(2, 0): "kernel", (0, 2): "off"}.get((hits, off), "torch")


def serve(fake: Started) -> None:
    fake.serve("tma3_v1")
    fake.serve("tma3_v1", "nt")


def test_newcomer_01_disable_and_resume(fake: Started) -> None:
    serve(fake)
    assert served(fake) == "kernel"
    hgemm_packs.disable()
    hgemm_packs.disable()
    assert served(fake) == "off"
    hgemm_packs.resume()
    assert served(fake) == "kernel"
    hgemm_packs.resume()
    assert served(fake) == "kernel"


def test_newcomer_01_blocks_nest_and_end_by_exceptions(fake: Started) -> None:
    serve(fake)
    with hgemm_packs.disabled():
        with pytest.raises(KeyError), hgemm_packs.disabled():
            raise KeyError
        assert served(fake) == "off"
        hgemm_packs.resume()  # ends what disable() began, and no block
        assert served(fake) == "off"
        hgemm_packs.disable()
    assert served(fake) == "off"
    hgemm_packs.resume()
    assert served(fake) == "kernel"


def test_newcomer_01_a_block_is_of_all_threads_until_the_last_ends(fake: Started) -> None:
    serve(fake)
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with hgemm_packs.disabled():
            begun.set()
            end.wait()

    other = threading.Thread(target=work)
    with hgemm_packs.disabled():
        other.start()
        begun.wait()
    assert served(fake) == "off"
    end.set()
    other.join()
    assert served(fake) == "kernel"


def test_newcomer_01_off_searches_no_pack_and_strict_raises_nothing(
    bare: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object) -> None:
        raise AssertionError("a pack was searched")

    monkeypatch.setattr(select, "found", searched)
    monkeypatch.setenv("HGEMM_PACKS_OFF", "1")
    monkeypatch.setenv("HGEMM_PACKS_STRICT", "1")
    settings.settings.cache_clear()
    launcher.reset_table()
    assert served(bare) == "off"
    hgemm_packs.resume()  # the environment's word holds
    assert served(bare) == "off"
    a = torch.eye(3).half()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        bare.matmul(a, a[:2])
    monkeypatch.delenv("HGEMM_PACKS_OFF")
    settings.settings.cache_clear()
    launcher.reset_table()


def test_newcomer_01_the_environment_holds_from_the_first_call() -> None:
    script = (
        "import torch\n"
        "from hgemm_packs import counters, matmul\n"
        "a = torch.eye(3).half()\n"
        "print(torch.equal(matmul(a + a, a), a + a), counters())\n"
    )
    said = run(script, HGEMM_PACKS_OFF="1", HGEMM_PACKS_STRICT="1")
    assert said == "True {'hits': 0, 'launches': 0, 'fallbacks': 1, 'fallback off': 1}\n"


def test_newcomer_01_a_block_around_the_first_call() -> None:
    script = (
        "import torch, hgemm_packs\n"
        "a = torch.eye(3).half()\n"
        "with hgemm_packs.disabled():\n"
        "    hgemm_packs.matmul(a, a)\n"
        "hgemm_packs.matmul(a, a)\n"
        "print(hgemm_packs.counters())\n"
    )
    assert "'fallback off': 1, 'fallback device': 1}" in run(script)


def test_newcomer_01_off_without_the_extension(
    monkeypatch: pytest.MonkeyPatch, clean_process: None
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_STRICT", "1")
    settings.settings.cache_clear()
    a = torch.eye(3).half()
    with hgemm_packs.disabled():
        assert torch.equal(hgemm_packs.launcher.torch_state.matmul(a, a), a)


def test_newcomer_01_explain_says_that_kernels_are_off(
    fake: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = operands()
    with hgemm_packs.disabled():
        report.explain(a.float(), b.float())
        assert "off         yes" in report.show_config()
    assert capsys.readouterr().out == (
        "runs on   torch (fallback: off)\n"
        "          no  off: kernels are switched off, by HGEMM_PACKS_OFF=1, disable() or "
        "disabled()\n"
        "without that:\n"
        "runs on   torch (fallback: dtype)\n"
        "          no  dtype: the operands are neither float16 nor bfloat16\n"
    )


def test_newcomer_01_the_command_says_that_kernels_are_off(
    command: Callable[..., tuple[int, str, str]],
    clean_process: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "HGEMM_PACKS_OFF=1 is set: torch runs every call. Without that:\n"
    asked = ("explain", 8, 8, 8, "--device-profile", "NVIDIA H200")
    assert said not in command("list")[1] + command(*asked)[1]
    monkeypatch.setenv("HGEMM_PACKS_OFF", "1")
    settings.settings.cache_clear()
    assert command("list")[1].startswith(said) and command(*asked)[1].startswith(said)
    code, _, err = command("bench")
    assert code == 2 and "HGEMM_PACKS_OFF=1 is set" in err


def test_newcomer_12_the_debug_log_names_what_torch_runs() -> None:
    script = (
        "import torch\n"
        "from hgemm_packs import matmul\n"
        "a = torch.eye(3).half()\n"
        "for _ in range(3): matmul(a, a)\n"
    )
    said = run(script, HGEMM_PACKS_LOG="debug")
    line = "hgemm_packs DEBUG: torch runs a call: device: the operands are not on a CUDA device"
    assert said.count(line) == 1
    assert line not in run(script, HGEMM_PACKS_LOG="info")
