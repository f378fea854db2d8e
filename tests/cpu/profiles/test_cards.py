"""Which profile a GPU is, from what its driver and NVML tell: stand-ins for both."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs import launcher, profiles, select
from hgemm_packs.cli import plan
from hgemm_packs.cli.console import UserError
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.nn import grouped_choice
from hgemm_packs.problem import GroupedProblem, Problem
from hgemm_packs.profiles import power
from hgemm_packs.torch_compile import choice
from tests import cards, fake_driver, packs, predictions
from tests.cpu.call.served_packs import install, multiply, runnable
from tests.cpu.grouped import made

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


@pytest.mark.parametrize(("renamed", "code"), [(True, "kernel"), (False, "profile")])
def test_grouped_products_and_compiled_graphs_ask_by_the_same_rule(
    renamed: bool,
    code: str,
    h800: fake_driver.Started,
    nvml: Nvml,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both looked rows up by the name of the device; an H800 at half of its power is none."""
    nvml.limit_mw.value = 700_000 if renamed else 350_000
    kernel = made.kernel("nt", "bf16")
    rows = [made.row(m, kernel)._replace(profile=CARD.name) for m in (16, 64)]
    source = packs.source(
        *([kernel], []),
        **{"launcher_abi": 6, "grouped": tuple(rows), "device_profiles": (cards.profile(CARD),)},
    )
    grouped = write_pack(tmp_path / "grouped", source, [kernel], generator_info=packs.GENERATOR)  # type: ignore[list-item]
    install(monkeypatch, grouped.path, write(tmp_path / "pack"))
    select.reset()
    problem = GroupedProblem(made.GROUPS, 30, made.N, made.K, "nt", "bf16")
    found = grouped_choice.resolve(problem, launcher.device_info(0))
    assert (found.code, found.row) == (code, rows[1] if renamed else None)
    assert grouped_choice.limits(problem, 0) == ([4, 16, 64] if renamed else [])
    choice._find_measured_m.cache_clear()  # what a GPU is stays the same in a process
    weight = Problem(1, packs.WIN.n, packs.WIN.k, "nn", "f16").key[1:]
    measured = choice._find_measured_m(choice.tables(), weight, launcher.device_info(0))
    assert measured == ((packs.WIN.m,) if renamed else ())


def test_a_plan_is_of_the_profile_that_the_gpu_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_process: None
) -> None:
    install(monkeypatch, write(tmp_path / "pack"))
    select.reset()
    assert plan._figures(cards.RENAMED[0][0]).source == "pack test-pack 1.0.0"
    with pytest.raises(UserError, match="nothing was measured on NVIDIA H20"):
        plan._figures(cards.H20)
