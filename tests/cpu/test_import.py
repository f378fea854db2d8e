"""Imports: what they cost, and where torch or C is not there or not as it should be."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hgemm_packs import torch_state
from hgemm_packs.errors import FallbackError
from hgemm_packs.settings import settings
from tests import reference
from tests.cpu.common.scripts import run
from tests.cpu.common.strictly import operands


def test_importing_imports_neither_torch_nor_a_driver() -> None:
    said = run(
        "import sys, hgemm_packs\n"
        "print('torch' in sys.modules, callable(hgemm_packs.matmul))\n"
        "print('libcuda' in open('/proc/self/maps').read())"
    )
    assert said.split() == ["False", "True", "False"]


def test_the_first_call_imports_torch() -> None:
    said = run(
        "from hgemm_packs import matmul, counters\n"
        "import torch\n"
        "a = torch.eye(3).half()\n"
        "print(torch.equal(matmul(a + a, a), a + a), counters()['fallback device'])"
    )
    # A machine without a driver says so after that.
    assert said.split()[:2] == ["True", "1"]


def test_the_log_is_set_up_before_the_first_warning() -> None:
    # The warning of a missing driver came before HGEMM_PACKS_LOG was read: no level silenced it.
    script = "from hgemm_packs import matmul\nimport torch\na = torch.eye(3).half()\nmatmul(a, a)\n"
    no_driver = f"from hgemm_packs import dispatch\ndispatch.start('libnone.so')\n{script}"
    assert run(no_driver, HGEMM_PACKS_LOG="error") == ""
    said = "hgemm_packs WARNING: every matmul goes to torch: libnone.so cannot be opened\n"
    assert run(no_driver, HGEMM_PACKS_LOG="warning") == said


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("yes", False)])
def test_a_switch_that_is_neither_on_nor_off_is_said(
    value: str,
    strict: bool,
    monkeypatch: pytest.MonkeyPatch,
    clean_process: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # HGEMM_PACKS_STRICT=yes was as good as nothing, without a word.
    monkeypatch.setenv("HGEMM_PACKS_STRICT", value)
    assert settings().strict is strict
    words = [f"HGEMM_PACKS_STRICT={value} is neither 0 nor 1; 0 is used"]
    assert caplog.messages == (words if value == "yes" else [])


def test_a_torch_without_the_exchange_api() -> None:
    said = run(
        "import torch\n"
        "del torch.Tensor.__dlpack_c_exchange_api__\n"
        "from hgemm_packs import matmul, counters\n"
        "a = torch.eye(3).half()\n"
        "print(all(torch.equal(matmul(a + a, a), a + a) for _ in range(3)))\n"
        "print(counters()['fallback torch_unsupported'])"
    )
    assert said.count("every matmul goes to torch") == 1
    assert said.split()[:2] == ["True", "3"]


def test_a_torch_that_answers_no_questions() -> None:
    said = run(
        "import torch\n"
        "del torch._C._len_torch_dispatch_stack\n"
        "from hgemm_packs import matmul\n"
        "a = torch.eye(3).half()\n"
        "print(torch.equal(matmul(a + a, a), a + a))"
    )
    assert said.startswith("True") and said.count("_len_torch_dispatch_stack") == 1


def test_no_extension() -> None:
    # What a free-threaded Python or a platform without a wheel sees.
    said = run(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name.endswith('._C') else find(name, *rest)\n"
        "import torch, hgemm_packs\n"
        "from hgemm_packs import launcher\n"
        "a = torch.eye(3).half()\n"
        "print(all(torch.equal(hgemm_packs.matmul(a + a, a), a + a) for _ in range(3)))\n"
        "print(hgemm_packs.counters(), launcher.describe(a, a))\n"
        "try: launcher.device_info(0)\n"
        "except RuntimeError as error: print(error)"
    )
    assert said.startswith("True\n{'hits': 0, 'launches': 0, 'fallbacks': 3} no_extension")
    assert said.count("every matmul goes to torch") == 1
    assert "not built for this Python" in said


def test_defect_20_without_the_extension_only_what_was_given(
    monkeypatch: pytest.MonkeyPatch, clean_process: None
) -> None:
    """out=None was passed on, which a strict __torch_function__ does not know."""
    seen = []

    class Strict(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append((len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    a, b = operands()
    out = torch.zeros(32, 32, dtype=torch.float16)
    reference.assert_exact(
        torch_state.matmul(a.as_subclass(Strict), b).as_subclass(torch.Tensor), a, b
    )
    torch_state.matmul(a.as_subclass(Strict), b, out=out)
    reference.assert_exact(out, a, b)
    assert [x for x in seen if x[0] == 2] == [(2, []), (2, ["out"])]


def test_no_extension_and_strict(
    monkeypatch: pytest.MonkeyPatch, clean_process: None, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = operands()
    with caplog.at_level(logging.CRITICAL):
        reference.assert_exact(torch_state.matmul(a, b), a, b)
        monkeypatch.setenv("HGEMM_PACKS_STRICT", "1")
        settings.cache_clear()
        with pytest.raises(FallbackError, match="no_extension"):
            torch_state.matmul(a, b)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "keys = torch._C._dispatch_keys\n"
            "negative = torch._C.DispatchKey.Negative\n"
            "torch._C._dispatch_keys = lambda tensor: keys(tensor).add(negative)",
            "tensors have other dispatch keys",
        ),
        (
            "from hgemm_packs import tensor_keys\ntensor_keys.TENSOR_BYTES = 40",
            "tensors are laid out in another way",
        ),
    ],
)
def test_a_torch_whose_tensors_are_others(change: str, words: str) -> None:
    said = run(
        f"import torch\n{change}\n"
        "from hgemm_packs import matmul, counters\n"
        "a = torch.eye(3).half()\n"
        "print(all(torch.equal(matmul(a + a, a), a + a) for _ in range(3)))\n"
    )
    assert said.startswith("True") and said.count(words) == 1


def test_defect_09_strict_begins_at_the_first_call() -> None:
    """Other threads' calls went to torch until the thread that starts had read the setting."""
    said = run(
        "import threading, torch\n"
        "from hgemm_packs import errors, matmul, torch_state\n"
        "waits, goes_on = threading.Event(), threading.Event()\n"
        "quiet_threads = torch_state.quiet_threads\n"
        "def slowly(remember):\n"
        "    waits.set(); goes_on.wait(); quiet_threads(remember)\n"
        "torch_state.quiet_threads = slowly\n"
        "a = torch.eye(3).half()\n"
        "def call():\n"
        "    try: matmul(a, a); print('torch')\n"
        "    except errors.FallbackError: print('refused')\n"
        "first = threading.Thread(target=call)\n"
        "first.start(); waits.wait(); call(); goes_on.set(); first.join()\n",
        HGEMM_PACKS_STRICT="1",
    )
    assert said.split()[:2] == ["refused", "refused"] and "torch\n" not in said


def test_defect_12_a_second_instance_is_refused() -> None:
    """It crashed at the first call, and so did `relaxed` where no driver is open."""
    said = run(
        "import importlib, sys, torch\n"
        "from hgemm_packs import matmul\n"
        "a = torch.eye(3).half()\n"
        "matmul(a, a)\n"
        "del sys.modules['hgemm_packs._C']\n"
        "again = importlib.import_module('hgemm_packs._C')\n"
        "calls = [lambda: again.matmul(a, a), lambda: again.matmul()]\n"
        "calls += [lambda: again.relaxed(list), lambda: again.describe(a, a, None, 'none')]\n"
        "calls += [lambda: again.device_info(0), lambda: again.launch(a, a, a, a, None, None)]\n"
        "calls += [again.counters, again.remember_quiet, again.reset_table]\n"
        "for call in calls:\n"
        "    try: print(call())\n"
        "    except (RuntimeError, TypeError) as error: print(error)\n"
        "print(torch.equal(matmul(a + a, a), a + a))\n"
    )
    assert said.count("second instance of hgemm_packs._C") == 2, said
    assert said.count("no driver is open") == 1 and said.splitlines()[9] == "True"
