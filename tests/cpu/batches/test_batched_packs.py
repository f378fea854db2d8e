"""Batches by kernels of packs: which rows speak of which calls, the self-test, what explain says,
and launches behind a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import dispatch, launcher, report, select, selftest, torch_state
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.families.base import dims
from hgemm_packs.pack.manifest import OF_BATCH, DeviceProfile, Row, TensorMapSpec
from hgemm_packs.problem import Problem
from tests import fake_driver, packs
from tests.cpu.batches.made import E, K, M, N, assert_batch, operands, whole
from tests.cpu.call.served_packs import install
from tests.fake_driver import Started

PRODUCT = OF_BATCH["tma2_v1"]
PACKED = Problem(M, N, K, "nt", "f16", batches=E)
STRIDED = replace(PACKED, packed=False)
WAY = "packed by column"


def kernel(name: str, param_layout: str = PRODUCT, **changes: Any) -> packs.FakeBuilt:
    epilogue = "residual" if param_layout.endswith("_addend") else "none"
    cubin = fake_driver.image(name, param_layout, "nt", "f16", epilogue=epilogue)
    record = {"cluster": [1, 1, 1], "dims": dims(), "layout": "nt", "epilogue": epilogue}
    return packs.built(name, param_layout, **{"cubin": cubin} | record | changes)


def row(problem: Problem, own: packs.FakeBuilt | None, **changes: Any) -> Row:
    return packs.row(problem, own, **changes)


def serve(patch: pytest.MonkeyPatch, folder: Path, *rows: tuple[Problem, Any]) -> None:
    """A pack of these rows on this device, in front of those that are there."""
    device = launcher.device_info(0)
    profile = DeviceProfile(device.name, device.sm_count, device.l2_bytes, 4800.0)
    kernels = {each.entry_fields["id"]: each for _, each in rows if each is not None}
    table = [row(problem, own)._replace(profile=device.name) for problem, own in rows]
    made = [*kernels.values()]
    source = packs.source(made, table, launcher_abi=7, device_profiles=(profile,))
    write_pack(folder, source, made, generator_info=packs.GENERATOR).close()  # type: ignore[arg-type]
    install(patch, folder)
    select.reset()


def test_a_row_speaks_of_its_batch_alone(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, tmp_path / "pack", (PACKED, kernel("packed")))
    for e, hits in ((E, 1), (E + 1, 1), (E, 2)):
        a, b = operands("packed", WAY, e=e)
        assert_batch(bare.matmul(a, b), a, b)
        assert launcher.counters()["hits"] == hits
    a, b = operands("in turn", WAY)
    bare.matmul(a, b)
    bare.matmul(a[0], b[0])
    assert bare.fallbacks() == {"not_measured": 1, "strided": 2}


def test_a_row_of_operands_in_turn_speaks_of_all_that_are_not_packed(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, tmp_path / "pack", (STRIDED, kernel("strided")), (PACKED, None))
    for turn, way in enumerate(("in turn", "apart", "with gaps")):
        a, b = operands(way, WAY)
        assert_batch(bare.matmul(a, b), a, b)
        assert launcher.counters()["hits"] == turn + 1
    a, b = operands("packed", WAY)
    bare.matmul(a, b)
    assert bare.fallbacks() == {"cublas_measured_better": 1}


def test_a_sum_has_a_row_of_its_own(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adding = kernel("adding", OF_BATCH["tma3_v1_addend"])
    serve(monkeypatch, tmp_path / "pack", (replace(PACKED, epilogue="residual"), adding))
    a, b = operands("packed", WAY)
    x = whole(E, M, N, seed=4)
    with hgemm_packs.enabled():
        assert_batch(torch.baddbmm(x, a, b), a, b, x)
        assert launcher.counters()["hits"] == 1
        torch.bmm(a, b)
    assert bare.fallbacks() == {"not_measured": 1}
    hgemm_packs.restore_torch()


def test_a_stream_of_batches_asks_python_of_few(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Attention that reads what it has said multiplies another K at every token, once in each
    layer: C knows which batches have rows, and a new one costs a lookup."""
    serve(monkeypatch, tmp_path / "pack", (PACKED, kernel("packed")))
    asked: list[Any] = []
    monkeypatch.setattr(
        select, "resolve", lambda *x, real=select.resolve, **y: asked.append(x) or real(*x, **y)
    )
    x, y = whole(2, 1, 8 * 300), whole(2, 8, 8 * 300)
    for k in range(8, 8 * 300, 8):
        bare.matmul(x[..., :k].contiguous(), y[..., :k].contiguous().mT)
    assert len(asked) < 40
    a, b = operands("packed", WAY)
    assert_batch(bare.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 1


def test_a_wrong_kernel_is_found_by_the_self_test(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cubin reads B the other way round than its record says: of square ones of one batch."""
    square = Problem(K, K, K, "nt", "f16", batches=E)
    liar = fake_driver.image("liar", PRODUCT, "nn", "f16")
    monkeypatch.setenv("HGEMM_PACKS_SELFTEST", "1")
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    serve(monkeypatch, tmp_path / "pack", (square, kernel("liar", cubin=liar)))
    a, b = whole(E, K, K), whole(E, K, K, seed=1).mT
    assert_batch(bare.matmul(a, b), a, b)
    assert bare.fallbacks() == {"quarantined": 1}
    (reason,) = selftest.read_quarantine(tmp_path / "cache").values()
    assert reason.startswith(f"self-test on {E} of {K}x{K}x{K} nt f16: ")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("adds", [False, True])
def test_a_right_kernel_passes_the_self_test(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool, adds: bool
) -> None:
    problem = replace(PACKED, packed=packed, epilogue="residual" if adds else "none")
    own = kernel("right", OF_BATCH["tma2_v1_addend"] if adds else PRODUCT)
    monkeypatch.setenv("HGEMM_PACKS_SELFTEST", "1")
    serve(monkeypatch, tmp_path / "pack", (problem, own))
    a, b = operands("packed" if packed else "in turn", WAY)
    x = whole(E, M, N, seed=4)
    with hgemm_packs.enabled():
        found = torch.baddbmm(x, a, b) if adds else torch.bmm(a, b)
    assert_batch(found, a, b, x if adds else None)
    assert launcher.counters()["hits"] == 1
    hgemm_packs.restore_torch()


def test_explain_says_who_runs_it(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, tmp_path / "pack", (PACKED, kernel("packed")))
    a, b = operands("packed", WAY)
    assert launcher.describe(a, b) == PACKED
    lines = report.explain_problem(PACKED).splitlines()
    assert lines[0] == f"problem   {E} of {M}x{N}x{K} nt f16 -> f16, f32 accumulate"
    assert lines[2] == "runs on   packed"
    assert "compiled  torch.compile calls torch's bmm, to which enable() gives the kernel" in lines
    said = report.explain_problem(replace(PACKED, batches=4))
    assert f"4 of {M}x{N}x{K} nt f16 is not in the table" in said
    assert f"no M was measured with N = {N}, K = {K}" in said
    assert launcher.counters()["fallbacks"] == 0


def test_a_batch_of_any_size_leaves_gradients_to_torch(bare: Started) -> None:
    """Of one product as large a kernel's gradients would pay; explain says so of none of these."""
    a, b = torch.empty(8, 1, 4096).half().requires_grad_(), torch.empty(8, 4096, 4096).half()
    assert torch_state.state(a, b) == "autograd"
    assert torch_state.state(a.expand(8, 4096, 4096), b[0]) is None
    with torch.no_grad():
        assert torch_state.state(a, b) is None


RECORDS: list[dict[str, Any]] = [
    {"cluster": (1, 1, 2)},
    {"grid": fake_driver.GridRule(64, 32, False)},
    {"reads_ahead": True},
    {"tma": tuple(TensorMapSpec(x, (64, 64), 128, 32, 128) for x in "ab")},
]


@pytest.mark.parametrize("changes", RECORDS)
def test_a_record_that_no_batched_launch_obeys_is_refused(
    bare: Started, changes: dict[str, Any]
) -> None:
    image = fake_driver.image("kernel", PRODUCT)
    with pytest.raises(ValueError, match="a batched kernel is persistent"):
        launcher.load(0, fake_driver.entry(PRODUCT, cubin=image, **changes), image)


@pytest.mark.parametrize("param_layout", [*OF_BATCH.values()])
@pytest.mark.parametrize("which", ["another", "its last C"])
def test_what_follows_a_batch_knows_what_that_writes(
    bare: Started, param_layout: str, which: str
) -> None:
    """All of its matrices, and not the first alone: a kernel that reads ahead may only be launched
    dependent where it reads none of them."""
    image = fake_driver.image("kernel", param_layout)
    own = launcher.load(0, fake_driver.entry(param_layout, cubin=image), image)
    plain = fake_driver.image("kernel", "tma2_v1")
    ahead = fake_driver.entry("tma2_v1", cubin=plain, reads_ahead=True)
    behind = launcher.load(0, ahead, plain, dependent=True)
    a, b = operands()
    memory = torch.zeros(E + 1, M, N).half()
    read = memory[E] if which == "another" else memory[E - 1]
    added = whole(E, M, N, seed=4) if param_layout.endswith("_addend") else None
    bare.capture(1)
    launcher.launch(own, a, b, memory[:E], addend=added)
    out = torch.empty(M, N).half()
    launcher.launch(behind, read, torch.eye(N).half(), out)
    assert torch.equal(out, read) and bare.control.pdl == (which == "another")
    bare.capture(0)
    assert_batch(memory[:E], a, b, added)


def test_a_launch_refuses_what_is_no_batch_and_a_batch_elsewhere(bare: Started) -> None:
    image = fake_driver.image("kernel", PRODUCT)
    own = launcher.load(0, fake_driver.entry(PRODUCT, cubin=image), image)
    a, b = operands()
    out = torch.empty(E, M, N).half()
    with pytest.raises(ValueError, match="a must be a 3-D tensor of the kernel's dtype"):
        launcher.launch(own, a[0], b[0], out[0])
    with pytest.raises(ValueError, match="A is not aligned to 16 bytes"):
        apart = a.new_zeros(E * (M * K + 4)).as_strided(a.shape, (M * K + 4, K, 1))
        launcher.launch(own, apart, b, out)
    plain = fake_driver.image("kernel", "tma2_v1")
    other = launcher.load(0, fake_driver.entry("tma2_v1", cubin=plain), plain)
    with pytest.raises(ValueError, match="a must be a 2-D tensor of the kernel's dtype"):
        launcher.launch(other, a, b, out)


def test_nothing_is_predicted_of_a_batch(
    bare: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, tmp_path / "pack", (PACKED, kernel("packed")))
    monkeypatch.setattr(select, "_predict", None)
    a, b = operands("packed", WAY, e=3)
    assert_batch(bare.matmul(a, b), a, b)
    assert bare.fallbacks() == {"not_measured": 1}
    assert dispatch._loaded == {}
