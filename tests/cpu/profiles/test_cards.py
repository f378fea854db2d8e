"""Which profile a GPU is, from what its driver and NVML tell: stand-ins for both."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs import launcher, profiles, select
from hgemm_packs.problem import Problem
from hgemm_packs.profiles import power
from tests import cards, fake_driver, packs, predictions
from tests.cpu.call.served_packs import install, multiply, runnable

CARD = cards.H100
FLAGS = (
    '-DFAKE_NAME="NVIDIA H800"',
    *(f"-DFAKE_SMS={CARD.sm_count}", f"-DFAKE_L2_BYTES={CARD.l2_bytes}"),
    *("-DFAKE_MEMORY_KHZ=2619000", "-DFAKE_MEMORY_BITS=5120"),
)
SURE, UNSURE = Problem(128, 128, 256, "nn", "f16"), Problem(512, 128, 256, "nn", "f16")


@pytest.fixture(scope="session")
def h800_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of an H100 that is sold under another name."""
    return fake_driver.compile_driver(tmp_path_factory.mktemp("h800") / "libfake.so", *FLAGS)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nvml") / "libfake_nvml.so"
    source = Path(fake_driver.__file__).parent / "fake_nvml.c"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-std=c11", "-shared", "-fPIC", str(source), "-o", str(place)]
    subprocess.run(command, check=True)
    return place


class Nvml:
    """The stand-in's NVML: what it answers, and what it was asked."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self.limit_mw = ctypes.c_uint.in_dll(self._library, "fake_limit_mw")
        self.questions = ctypes.c_int.in_dll(self._library, "fake_questions")
        self.bus_id = (ctypes.c_char * 32).in_dll(self._library, "fake_bus_id")
        self.limit_mw.value, self.questions.value = 700_000, 0


@pytest.fixture
def nvml(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    monkeypatch.setattr(power, "LIBRARY", str(nvml_library))
    power.enforced_limit_w.cache_clear()
    yield Nvml(nvml_library)
    power.enforced_limit_w.cache_clear()


@pytest.fixture
def h800(
    clean_process: None, monkeypatch: pytest.MonkeyPatch, h800_library: Path
) -> fake_driver.Started:
    return fake_driver.start(monkeypatch, h800_library)


def write(place: Path, **changes: object) -> Path:
    """The good pack, measured on the H100."""
    kernels = packs.good_kernels(runnable)
    rows = tuple(each._replace(profile=CARD.name) for each in packs.good_rows(kernels))
    known = (cards.profile(CARD)._replace(**changes),)  # type: ignore[arg-type]
    made = packs.write_good(place, runnable, device_profiles=known, table=rows)
    made.close()
    return made.path


def test_the_driver_tells_what_the_rule_wants_to_know(h800: fake_driver.Started) -> None:
    here = launcher.device_info(0)
    assert here.name == "NVIDIA H800" and here.theoretical_mem_bw_gbps == 3352.32
    assert (here.sm_count, here.l2_bytes) == (CARD.sm_count, CARD.l2_bytes)
    assert here.bus_id == "00000000:1b:00.0" and launcher.device_info(1).bus_id[9:11] == "1c"


def test_a_driver_that_does_not_tell_a_bandwidth_serves_all_the_same(
    bare: fake_driver.Started,
) -> None:
    """The stand-in answers so where no memory clock is given to its compiler."""
    assert launcher.device_info(0).theoretical_mem_bw_gbps is None


def test_a_renamed_card_multiplies_by_its_table(
    h800: fake_driver.Started, nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, write(tmp_path / "pack"))
    select.reset()
    for problem in (packs.WIN, packs.WIN_SMALL, packs.CUBLAS, packs.NOISE):
        multiply(h800, problem)
    assert launcher.counters()["hits"] == 2
    assert h800.fallbacks() == {"cublas_measured_better": 1, "not_measured": 1}
    assert (nvml.questions.value, nvml.bus_id.value) == (1, b"00000000:1b:00.0")


@pytest.mark.parametrize("limit_mw", [350_000, 0])
def test_another_or_no_power_limit_leaves_the_table_unused(
    limit_mw: int,
    h800: fake_driver.Started,
    nvml: Nvml,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An H100 under half of its power, and a card of which NVML knows no limit."""
    nvml.limit_mw.value = limit_mw
    install(monkeypatch, write(tmp_path / "pack"))
    select.reset()
    multiply(h800, packs.WIN)
    assert h800.fallbacks() == {"profile": 1}
    (reason,) = select.resolve(packs.WIN, 0).reasons
    why = "a power limit of 350 W, not 700" if limit_mw else "power limit cannot be compared"
    assert why in reason.text


@pytest.mark.parametrize("library", ["libno-such-nvml.so.1", "libc.so.6"])
def test_without_nvml_the_name_decides(
    library: str,
    h800: fake_driver.Started,
    nvml: Nvml,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No library, and one that has no such functions."""
    monkeypatch.setattr(power, "LIBRARY", library)
    path = write(tmp_path / "pack")
    install(monkeypatch, path)
    select.reset()
    multiply(h800, packs.WIN)
    assert h800.fallbacks() == {"profile": 1}
    assert profiles.power_limit_w(launcher.device_info(0)) is None
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace(CARD.name, "NVIDIA H800"))
    select.reset()
    launcher.reset_table()
    multiply(h800, packs.WIN)
    assert launcher.counters()["hits"] == 1


def test_nvml_is_not_asked_where_no_profile_speaks_of_power(
    h800: fake_driver.Started, nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, write(tmp_path / "pack", power_limit_w=None))
    select.reset()
    multiply(h800, packs.WIN)
    assert h800.fallbacks() == {"profile": 1} and nvml.questions.value == 0


def test_nvml_is_let_go_of_where_the_gpu_is_not_known(nvml: Nvml) -> None:
    nvml.limit_mw.value = 0
    assert power.enforced_limit_w("00000000:ff:00.0") is None
    nvml.limit_mw.value = 500_500
    assert power.enforced_limit_w("00000000:ff:00.0") is None, "asked once a process"
    assert power.enforced_limit_w("00000000:fe:00.0") == 500.5


def test_predictions_for_another_card_serve_where_they_are_asked_for(
    h800: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C decides about siblings as Python does, once it was told."""
    monkeypatch.setenv("HGEMM_PACKS_SIBLINGS", "1")
    install(monkeypatch, predictions.write(tmp_path / "predicting", runnable).path)
    select.reset()
    multiply(h800, SURE)
    multiply(h800, UNSURE)
    multiply(h800, packs.WIN)
    assert launcher.counters() == {
        "hits": 2,
        "launches": 2,
        "fallbacks": 1,
        "predicted": 2,
        "fallback not_measured": 1,
    }
    asked: list[int] = []
    real = select.resolve

    def resolve(problem: Problem, *rest: object, **how: bool) -> select.Selection:
        asked.append(problem.m)
        return real(problem, *rest, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(select, "resolve", resolve)
    for m in (120, 520):
        multiply(h800, Problem(m, 128, 256, "nn", "f16"))
    assert asked == [] and launcher.counters()["predicted"] == 3


def test_nothing_is_predicted_for_a_sibling_that_does_not_ask(
    h800: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, predictions.write(tmp_path / "predicting", runnable).path)
    select.reset()
    for problem in (SURE, UNSURE, packs.WIN):
        multiply(h800, problem)
    assert launcher.counters()["hits"] == 0 and h800.fallbacks() == {"profile": 3}
