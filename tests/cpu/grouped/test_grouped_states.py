"""grouped_matmul in states of torch and of ours, its self-test, launches, and what explain says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, select, selftest
from hgemm_packs.errors import FallbackError, InvariantError
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, GridRule
from tests import fake_driver
from tests.cpu.call.served_packs import install
from tests.cpu.grouped.made import (
    GROUPS,
    SPLITS,
    K,
    N,
    assert_grouped,
    kernel,
    operands,
    row,
    write,
)
from tests.fake_driver import Started


def test_a_torch_without_the_product_gets_a_loop(
    served: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = operands(SPLITS["rows left over"], rows=33)
    monkeypatch.delattr(torch, "_grouped_mm")
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)

    def missing(*operands: Any, offs: Any) -> None:
        raise NotImplementedError("Could not run 'aten::_grouped_mm'")

    monkeypatch.setattr(torch, "_grouped_mm", missing, raising=False)
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    assert served.fallbacks() == {"not_measured": 2}


def test_switches(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    x = operands(SPLITS["of any size"])
    with hgemm_packs.disabled():
        assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    with torch.autocast("cpu", torch.bfloat16):
        hgemm_packs.grouped_matmul(*x)
    with hgemm_packs.options(batch_invariant=True), pytest.raises(InvariantError) as error:
        hgemm_packs.grouped_matmul(*x)
    assert "no_invariant_kernel" in str(error.value)
    served.extension.set_strict(True)
    with pytest.raises(FallbackError, match="autograd"):
        hgemm_packs.grouped_matmul(x[0].clone().requires_grad_(), *x[1:])
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    counted = {"off": 1, "mode": 1, "no_invariant_kernel": 1, "autograd": 1}
    assert served.fallbacks() == counted and launcher.counters()["hits"] == 1


def test_a_wrong_kernel_is_found_by_the_self_test(
    bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cubin reads weights the other way round than its record says."""
    cubin = fake_driver.image("liar", GROUPED_LAYOUT, "nt", "f16")
    wrong, right = kernel("nt", "bf16", "liar", cubin=cubin), kernel("nt", "bf16", "good")
    write(tmp_path / "wrong", [wrong], [row(32, wrong)]).close()
    write(tmp_path / "right", [right], [row(32, right)]).close()
    monkeypatch.setenv("HGEMM_PACKS_SELFTEST", "1")
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    install(monkeypatch, tmp_path / "wrong", tmp_path / "right")
    select.reset()
    x = operands(SPLITS["of any size"])
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    assert bare.control.loads == 2 and launcher.counters()["hits"] == 3
    (reason,) = selftest.read_quarantine(tmp_path / "cache").values()
    assert reason.startswith("self-test on 30x40x64 in 5 groups nt bf16: ")


def test_a_launch_refuses_what_the_kernel_does_not_take(served: Started) -> None:
    entry = fake_driver.entry(GROUPED_LAYOUT, "nt", "bf16", grid=GridRule(32, 64, True))
    image = fake_driver.image("kernel", GROUPED_LAYOUT, "nt", "bf16")
    own = launcher.load(0, entry, image)
    tokens, weights, offsets = operands(SPLITS["of any size"])
    out = torch.empty((30, N), dtype=torch.bfloat16)
    launcher.launch_grouped(own, tokens, weights, offsets, out)
    assert_grouped(out, (tokens, weights, offsets))
    assert served.control.grid == 5 * 1
    many = torch.zeros((513, N, K), dtype=torch.bfloat16).mT
    ends = torch.zeros(513, dtype=torch.int32)
    for bad, words in (
        ((tokens, weights.contiguous(), offsets, out), "not what this kernel takes"),
        ((tokens, weights, offsets, out[:5]), "not what this kernel takes"),
        ((tokens, weights, offsets, out.t()), "not what this kernel takes"),
        ((tokens, weights, offsets.long(), out), "launch_grouped: mismatch"),
        ((tokens, many, ends, out), "513 groups, of 512 at most"),
    ):
        with pytest.raises(ValueError, match=words):
            launcher.launch_grouped(own, *bad)
    with pytest.raises(ValueError, match="tma2_grouped_v1 is of a grouped product"):
        launcher.launch(own, tokens, weights[0], out)
    plain = fake_driver.image("kernel", "tma2_v1", "nt", "bf16")
    other = launcher.load(0, fake_driver.entry("tma2_v1", "nt", "bf16", plain), plain)
    with pytest.raises(ValueError, match="tma2_v1 is of no grouped product"):
        launcher.launch_grouped(other, tokens, weights, offsets, out)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": (2, 1, 1)},
        {"grid": GridRule(32, 64, False)},
        {"layout": "tn"},
    ],
)
def test_a_record_that_no_grouped_launch_obeys_is_refused(
    served: Started, changes: dict[str, Any]
) -> None:
    values = {"grid": GridRule(32, 64, True)} | changes
    entry = fake_driver.entry(GROUPED_LAYOUT, values.pop("layout", "nt"), "bf16", **values)
    image = fake_driver.image("kernel", GROUPED_LAYOUT, "nt", "bf16")
    with pytest.raises(ValueError, match="a grouped kernel is persistent, of plain maps"):
        launcher.load(0, entry, image)


def test_explain_says_who_runs_it(served: Started, capsys: pytest.CaptureFixture[str]) -> None:
    x = operands(SPLITS["of any size"])
    hgemm_packs.explain(x[0], x[1], offsets=x[2])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "problem   30x40x64 in 5 groups nt bf16 -> bf16, f32 accumulate"
    assert lines[2:4] == [
        "runs on   grouped_nt_bf16",
        "measured  10.00 us with 32 rows, torch 12.00",
    ]
    hgemm_packs.explain(x[0].float(), x[1].float(), offsets=x[2])
    assert capsys.readouterr().out.splitlines() == [
        "runs on   torch (fallback: dtype)",
        "          no  dtype: the operands are neither float16 nor bfloat16",
    ]
    x = operands([40] * GROUPS, rows=40)
    hgemm_packs.explain(x[0], x[1], offsets=x[2])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "runs on   torch (fallback: not_measured)",
        "          no  not_measured: test-pack 1.0.0: 40x40x64 in 5 groups nt bf16 is near no row "
        "of its weight",
    ]
    assert launcher.counters()["fallbacks"] == 0
    with pytest.raises(ValueError, match="a grouped product has no epilogue"):
        hgemm_packs.explain(*x[:2], bias=x[0][0], offsets=x[2])


@pytest.mark.parametrize("which", ["another", "its C"])
def test_what_follows_a_grouped_launch_knows_what_that_writes(served: Started, which: str) -> None:
    """C and its stride are parameters ahead of the ends of the groups and their number: a kernel
    that reads ahead may only be launched dependent where it does not read that C."""
    record = {"grid": GridRule(32, 64, True)}
    entry = fake_driver.entry(GROUPED_LAYOUT, "nt", "bf16", **record)
    own = launcher.load(0, entry, fake_driver.image("kernel", GROUPED_LAYOUT, "nt", "bf16"))
    plain = fake_driver.image("kernel", "tma2_v1", "nn", "bf16")
    ahead = fake_driver.entry("tma2_v1", "nn", "bf16", plain, reads_ahead=True)
    behind = launcher.load(0, ahead, plain, dependent=True)
    x = operands(SPLITS["of any size"])
    memory = torch.zeros((31, N), dtype=torch.bfloat16)
    c, weight = memory[:30], torch.eye(N, dtype=torch.bfloat16)
    read = memory[30:] if which == "another" else memory[29:30]
    served.capture(1)
    launcher.launch_grouped(own, *x, c)
    out = torch.empty((1, N), dtype=torch.bfloat16)
    launcher.launch(behind, read, weight, out)
    assert torch.equal(out, read) and served.control.pdl == (which == "another")
    served.capture(0)
    assert_grouped(c, x)


def test_a_compiled_graph_has_torchs_own_call(served: Started) -> None:
    x = operands(SPLITS["of any size"])
    compiled = torch.compile(hgemm_packs.grouped_matmul, fullgraph=True, backend="eager")
    assert_grouped(compiled(*x), x)
    assert launcher.counters()["hits"] == 0
