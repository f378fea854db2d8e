"""What made a new user of the command line stumble, line by line of the review of November."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.cli import build as build_verb
from hgemm_packs.cli import plan as plan_verb
from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.errors import of_path
from hgemm_packs.pack.receipts import Receipt
from hgemm_packs.problem import LAYOUTS, Problem
from tests import packs
from tests.cpu.test_cli import fake_builder
from tests.fake_driver import Started

pytestmark = pytest.mark.usefixtures("clean_process")

Run = Callable[..., tuple[int, str, str]]
H200 = ("--device-profile", "NVIDIA H200")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("COLUMNS", "80")
    return command


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of a layer of Llama 3.1 8B: won at 64 tokens, measured at 128."""
    layer = packs.built("k_layer", "tma2_v1", layout="nt")
    rows = [
        packs.row(Problem(64, 4096, 4096, "nt", "f16"), layer),
        packs.row(Problem(128, 4096, 4096, "nt", "f16"), None),
    ]
    source = packs.source([layer], rows)
    made = packs.write_pack(tmp_path / "pack", source, [layer], generator_info=packs.GENERATOR)  # type: ignore[list-item]
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.path))
    return made.path


def test_newcomer_02_explain_names_the_nearest_measured_m(run: Run, pack: Path) -> None:
    def nearest(m: int) -> str:
        out = run("explain", m, 4096, 4096, *H200)[1]
        assert "fallback: not_measured" in out
        return out.splitlines()[-1]

    won = "M = 64 was measured, and runs on a kernel, 1.120x torch hot"
    lost = "M = 128 was measured, and runs on torch"
    assert nearest(65) == f"nearest   {won}; {lost}"
    assert nearest(8) == f"nearest   {won}"
    assert nearest(4096) == f"nearest   {lost}"
    out = run("explain", 64, 4096, 8192, *H200)[1]
    assert out.splitlines()[-1] == "nearest   no M was measured with N = 4096, K = 8192"
    assert "nearest" not in run("explain", 64, 4096, 4096, *H200)[1]


CONFIG = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32001,
    "torch_dtype": "float16",
    "rope_theta": 1e4,
}


def cells(out: str, names: str) -> list[str]:
    line = next(line for line in out.splitlines() if line.strip().startswith(names))
    return line.split()[-(len(line.split()) - len(names.split()) - 3) :]


def test_newcomer_02_plan_of_a_config(run: Run, pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    missing = tmp_path / "missing.toml"
    code, out, _ = run("plan", folder, "--m", "64,65,128", "--out", missing)
    assert code == 0
    assert "f16 on NVIDIA H200, from pack test-pack 1.0.0" in out and "my-model" in out
    assert cells(out, "q o") == ["1.12", "-", "."]
    assert cells(out, "k v") == ["-", "-", "-"]
    assert cells(out, "lm_head") == ["x", "x", "x"]
    words = " ".join(out.split())
    assert "3 problems have an N or K that is no multiple of 8" in words
    assert "M that were measured for some of these: 64, 128" in words
    assert "16 problems were not measured" in words and "1 min of one GPU" in words
    assert f"hgemm-packs generate --shapes {missing} --budget 1m" in words
    from hgemm_packs.tuning import shapes

    written = list(shapes.read(missing).problems())
    assert len(written) == 16 and Problem(65, 4096, 4096, "nt", "f16") in written
    assert Problem(64, 4096, 4096, "nt", "f16") not in written


def test_newcomer_02_plan_weighs_a_block_by_its_products(
    run: Run, pack: Path, tmp_path: Path
) -> None:
    file = tmp_path / "one.toml"
    file.write_text('m = [64]\n[[layer]]\nname = "up"\nn = 4096\nk = 4096\n')
    out = run("plan", file)[1]
    assert "block take torch 11.5 us, with kernels 10.0 us: 1.150x" in out
    assert "every problem was measured" in out
    # As many tokens as were never measured have no sum.
    assert "block take" not in run("plan", file, "--m", "65")[1]


def test_newcomer_02_plan_by_name_needs_no_pack(run: Run) -> None:
    code, out, _ = run("plan", "llama 3.1 8B", "--m", "16", "--dtype", "bf16")
    assert code == 0 and "bf16 on NVIDIA H200, from the committed table" in out
    code, out, _ = run("plan", "DeepSeek V3*", "--m", "1")
    assert code == 0 and "expert_gate expert_up" in out


def test_newcomer_02_plan_of_latent_attention_and_of_a_text_config(
    run: Run, tmp_path: Path
) -> None:
    latent = {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_intermediate_size": 1408,
    }
    file = tmp_path / "lite.json"
    file.write_text(json.dumps({"text_config": latent, "hidden_size": 64, "dtype": "bfloat16"}))
    out = run("plan", file, "--m", "1")[1]
    assert "bf16 on NVIDIA H200" in out
    shown = {tuple(line.split()[:-1]) for line in out.splitlines() if " x " in line}
    assert {
        ("q", "3072", "x", "2048"),
        ("kv_a", "576", "x", "2048"),
        ("kv_b", "4096", "x", "512"),
        ("o", "2048", "x", "2048"),
        ("expert_gate", "expert_up", "1408", "x", "2048"),
    } <= shown


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"n_embd": 768}, "fields of its layers are missing"),
        ([], "no object"),
        ("{", "not_json"),
    ],
)
def test_newcomer_02_a_config_that_says_too_little(
    config: object, words: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    code, _, err = run("plan", file)
    assert code == 2 and words in err and str(file) in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Lama 3.1",), "or one of Llama 3.2 1B, Llama 3.1 8B"),
        (("Llama 3.1 8B", "--m", "many"), "--m many: not numbers from 1, such as 1,8,64"),
        (("Llama 3.1 8B", "--dtype", "f64"), "--dtype f64: not one of f16, bf16"),
        (("no/config.json",), "no/config.json: No such file or directory"),
    ],
)
def test_newcomer_02_a_plan_of_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run("plan", *arguments)
    assert code == 2 and words in err


def test_newcomer_02_the_cost_of_a_search_is_the_measured_one() -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results" / "generator.json"
    measured = json.loads(results.read_text(encoding="utf-8"))["run"]
    assert measured["gpu_seconds"] / measured["problems"] == plan_verb.SEARCH_S


def test_newcomer_10_the_version_in_three_places(run: Run) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hgemm_packs", "--version"], capture_output=True, text=True
    )
    assert said.stdout == f"hgemm-packs {hgemm_packs.__version__}\n"
    assert run("--version") == (0, said.stdout, "")


def test_newcomer_10_the_version_does_not_slow_the_import() -> None:
    program = "import sys, hgemm_packs\nprint('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_newcomer_12_the_help_fits_a_screen_and_has_every_verb_in_a_group(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0 and 24 <= len(out.splitlines()) <= 40
    groups = ("Use packs", "Make packs", "Fetch and publish packs")
    assert all(f"─ {group} ─" in out for group in groups) and "─ Commands ─" not in out
    assert "…" not in out and "│ show" not in out


def test_newcomer_12_one_list(run: Run, pack: Path) -> None:
    assert "test-pack" in " ".join(run("list")[1].split())
    assert run("show")[0] == 2


def test_newcomer_12_verify_takes_a_folder_as_sign_and_push_do(run: Run, pack: Path) -> None:
    assert run("verify", pack)[0] == 0


def test_newcomer_12_explain_names_the_alignment(run: Run, pack: Path) -> None:
    out = run("explain", 64, 4096, 4095, *H200)[1]
    assert "fallback: unaligned" in out and "not_measured" not in out
    assert "N and K (in tn and tt M as well) that are multiples of 8" in " ".join(out.split())


def test_newcomer_12_the_alignment_is_what_a_call_finds(fake: Started) -> None:
    for layout in LAYOUTS:
        for m, n, k in ((64, 64, 64), (64, 64, 63), (64, 36, 64), (62, 64, 64), (1, 8, 12)):
            a = torch.empty((m, k) if layout[0] == "n" else (k, m), dtype=torch.float16)
            b = torch.empty((k, n) if layout[1] == "n" else (n, k), dtype=torch.float16)
            found = launcher.describe(
                a if layout[0] == "n" else a.t(), b if layout[1] == "n" else b.t()
            )
            assert isinstance(found, Problem)
            if found.layout == layout:  # of one row, both layouts are the same
                assert found == Problem(m, n, k, layout, "f16"), found


def test_newcomer_12_no_empty_bar_before_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_builder(monkeypatch, tmp_path)
    code, out, err = run("build", "--out", tmp_path / "made", "-j", 13)
    assert (code, out) == (2, "") and "spills" in err
    assert "3/3" in run("build", "--out", tmp_path / "made", "-j", 1)[1]


@pytest.mark.parametrize("given", [None, "/tmp/.pack.x1y2/fresh/manifest.json"])
def test_newcomer_12_a_full_disk_is_said_of_the_path_that_was_asked_for(
    given: str | None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), given)

    fake_builder(monkeypatch, tmp_path)
    monkeypatch.setattr("hgemm_packs.pack.writer.write", full)
    code, _, err = run("build", "--out", tmp_path / "made", "-j", 1)
    assert code == 2 and f"hgemm-packs: {tmp_path / 'made'}: No space left on device" in err
    with pytest.raises(KeyError), of_path(tmp_path):
        raise KeyError


def test_newcomer_12_who_vouches_is_named_once() -> None:
    def vouched(authority: str, signer: str | None) -> str:
        return Receipt("a" * 64, "b" * 64, None, None, authority, signer, "").vouched

    assert vouched("key", "key:12ab") == "key:12ab"
    assert vouched("sigstore", "sigstore:issuer me") == "sigstore:issuer me"
    assert vouched("sha256", None) == f"sha256:{'a' * 64}"
    assert vouched("registry", None) == "registry"
    assert vouched("registry", "sigstore:issuer me") == "registry, sigstore:issuer me"


def test_newcomer_04_one_hash_however_one_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack of the committed manifest named the commit of a checkout, and zeros elsewhere."""
    from hgemm_packs.generator.compile import compiler, pack_writer

    kernels = packs.good_kernels()
    source = tmp_path / "source.json"
    pack_writer.write_source(source, packs.source(kernels, packs.good_rows(kernels)))
    monkeypatch.setattr(compiler, "build", lambda *_: built)
    built = [compiler.Built(each.entry_fields, each.cubin) for each in kernels]
    built.sort(key=lambda one: one.entry_fields["name"])
    hashes = set()
    for commit, dirty in (("1" * 40, False), ("2" * 40, True), ("0" * 40, False)):
        info = packs.GENERATOR._replace(commit=commit, dirty=dirty)
        monkeypatch.setattr(compiler, "generator_info", lambda info=info: info)
        made = pack_writer.build_pack(source, tmp_path / "made")
        hashes.add(made.manifest_sha256)
    assert len(hashes) == 1
    assert made.manifest.generator == packs.GENERATOR
    folder = manifests_dir() / "sm_90a"
    assert build_verb.sources("sm_90a") == [
        folder / name for name in ("h100", "h200", "h200_batched", "h200_grouped")
    ]
