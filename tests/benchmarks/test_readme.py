"""Published numbers are what the raw results say: README <- summary.json <- raw files."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.benchmarks.cards.test_card_figures import H100
from tests.benchmarks.cards.test_tune_figures import TUNE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "publish"

SUMMARY = {
    **{"tune": TUNE, "h100": H100},
    "shapes": {
        **{"layers.problems": 300, "layers.served": 0.25, "layers.gmean": 1.0912},
        **{"layers.worst": 0.9731, "layers.below_098": 0.0067, "layers.share_of_gain": 0.81},
        **{"random.problems": 298, "random.served": 0.4, "random.gmean": 1.21},
        **{"random.worst": 0.96, "random.below_098": 0.01, "random.share_of_gain": 0.79},
        **{"random.unaligned": 1.314, "search.m65_512": 1.07, "search.m65_512.problems": 60},
        **{"search.m513_8192": 1.03, "search.m513_8192.problems": 59, "host.hosts": 3},
        **{"models.graph_3_100": 1.05, "models.graph_worst": 0.999},
        **{"grouped.gmean": 1.527, "grouped.worst": 1.283, "batched.gmean": 1.125},
        **{"host.first_us": 28.4, "host.first_us.worst": 52.0, "host.stream_extra_us": 0.72},
        **{"batched.problems": 68, "batched.worst": 0.875, "host.stream_extra_us.worst": 0.9},
    },
    "host": {"hit_ratio": 0.456, "miss_extra_us": 0.211, "layer_miss_extra_us": 0.317},
    "load": {
        **{"import_ms": 12.3, "pack100_ms": 45.6, "first_product_ms": 51.4},
        "idle_pack_mb": 6.2,
    },
    "table": {
        **{"wins": 654, "grid_wins": 321, "problems_measured": 1000},
        **{"gmean": 1.2345, "gmean_cold": 1.1, "gmean_vs_best": 1.19},
        "best": 2.5,
        "worst": 1.021,
        "worst_lower_bound": 1.013,
        "kernels": 77,
        "noise_floor": 0.012,
        "rule": "lower bound above the floor.",
        "sets": {"tn": {"fp16": [3, 4]}, "nn": {"bf16": [321, 500], "fp16": [330, 501]}},
    },
    "grid": {
        "fp16": {
            "nn": {
                "shapes": 500,
                "kernel_share": 0.242,
                "served": 121,
                "called": 110,
                "regime_shapes": {"tiny": 20, "mid": 480},
                "plain": {
                    "gmean_vs_torch_hot": 1.2678,
                    "gmean_vs_torch_cold": 1.25,
                    "gmean_vs_best_hot": 1.0456,
                    "worst_vs_torch_hot": 1.0,
                    "regimes": {"tiny": 1.61, "mid": 1.2},
                },
                "mixed": {
                    "gmean_vs_torch_hot": 1.31,
                    "gmean_vs_torch_cold": None,
                    "gmean_vs_best_hot": 1.1,
                    "worst_vs_torch_hot": 1.0,
                    "regimes": {"tiny": 2.42, "mid": 1.22},
                },
                "chain": {
                    "gmean_vs_torch_hot": 1.52,
                    "gmean_vs_torch_cold": None,
                    "gmean_vs_best_hot": 1.3,
                    "worst_vs_torch_hot": 0.99,
                    "regimes": {"tiny": 3.03, "mid": 1.33},
                },
            }
        }
    },
    "llm": {},
    "launch": {"rows": 77, "dependent": 31, "another": 13},
    "chained": {
        "groups": {
            "grid": {
                "problems": 60,
                "plain": {"product": 1.1111, "hot": 1.2222, "cold": 1.1999},
                "pdl": {"product": 1.2, "hot": 1.3, "cold": 1.2},
            }
        }
    },
    "energy": {
        "groups": {
            "f16 nn": {"problems": 77, "sustained_vs_torch": 1.0301, "per_watt_vs_torch": 1.0404}
        }
    },
    "measured_on": {
        "device": "NVIDIA H200",
        "driver": "580",
        "torch": "2.11",
        "cublas": "13.1",
        "protocol": "Paired.",
        "dates": ["2026-01-02", "2026-01-03"],
    },
    "generator": {
        "redteam": {"total": 41, "rejected": 40, "honest_total": 9, "honest_passed": 9},
        "replay": {
            "problems": 44,
            "times": 9000,
            "seeds": 20,
            "share_of_optimum_at_32": 0.9761,
            "random_at_32": 0.8,
            "tpe_at_32": 0.9,
            "cma_at_32": 0.85,
            "p_vs_random": 0.001,
            "p_vs_tpe": 0.003,
            "p_vs_cma": 0.002,
        },
        "h200": {
            "aa_median": 1.0004,
            "repeat_gmean": 1.013,
            "killed_finished": 70,
            "killed_lost": 0,
            "scaling_4gpu": 3.61,
        },
        "run": {"problems": 50, "wins": 17, "gmean_wins_hot": 1.217, "gpu_seconds": 55.2},
    },
    "distribution": {
        "wheel": {
            "core_bytes": 1_234_567,
            "sm90a_bytes": 3_456_789,
            "reproducible": True,
            "gpu_calls": 7,
            "gpu_hits": 6,
        },
        "fetch": {"concurrent": 16, "downloads": 1},
        "kill9": {"rounds": 103, "bad": 2},
        "fuzz": {"executions": 11_234_567, "findings_open": 3},
        "hub": {"faults_total": 14, "faults_handled": 13},
    },
    "models": {
        "graph": {
            "gmean_upto64": 1.0789,
            "gmean": 1.05,
            "worst": 0.9961,
            "worst_case": "Qwen3 8B bf16, graph, 100 tokens",
        },
        "eager": {
            "gmean_upto64": 1.0099,
            "worst": 0.95,
            "worst_case": "Llama fp16, eager, 3 tokens",
        },
        "server": {"gmean": 1.3004, "worst": 1.01, "worst_case": "64x64x64 nn f16"},
        "noise": {
            "eager": {"cases": 7, "least": 0.9686, "most": 1.0095},
            "graph": {"cases": 9, "least": 0.9986, "most": 1.0026},
        },
        "models": {"Qwen3 8B": {}, "Llama": {}},
        "measured_on": {"settings": {"layers": 12}},
    },
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_says_what_the_summary_says() -> None:
    readme = script("readme")
    summary = readme.facts()
    for page in (readme.README, readme.FIGURES):
        text = page.read_text(encoding="utf-8")
        assert readme.render(text, summary) == text


def test_summary_says_what_the_raw_results_say() -> None:
    summary = script("summary")
    assert summary.SUMMARY.read_text(encoding="utf-8") == summary.text()


def test_generator_figures_say_what_the_raw_results_say() -> None:
    generator = script("generator")
    assert generator.OUT.read_text(encoding="utf-8") == generator.text()


def test_the_page_has_a_line_of_random_problems_once_they_were_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, place = script("generator"), tmp_path
    for one in ("redteam_h200", "replay_search", "generator_h200", "generator/run/report", "gates"):
        (place / f"{one}.json").parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(generator.RESULTS / f"{one}.json", place / f"{one}.json")
    monkeypatch.setattr(generator, "RESULTS", place)
    what = "random problems, each by a random kernel that admits it, right against float64"
    assert what not in generator.rows(generator.figures())
    (place / generator.DRAWN).write_text('{"problems": 2000, "right": 1999, "wrong": 1}')
    assert generator.rows(generator.figures())[what] == "1999 of 2000"


def test_distribution_says_what_the_raw_results_say() -> None:
    distribution = script("distribution")
    found = json.loads(distribution.OUT.read_text(encoding="utf-8"))
    assert found == distribution.figures()
    assert {f"{group}.{name}" for group in found for name in found[group]} == set(
        distribution.FIGURES
    )


def test_every_block_is_on_a_page_once_and_filled() -> None:
    readme = script("readme")
    pages = [readme.README, readme.FIGURES]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = [match["name"] for match in readme.BLOCK.finditer(text)]
    assert sorted(names) == sorted(readme.BLOCKS)
    filled = readme.render(text, SUMMARY)
    for expected in (
        "**1.27x** torch over all 500 shapes",
        "1.05x the better of torch and tuned cuBLASLt, 1.31x in CUDA graphs of many products; 24% "
        "of them",
        "measured: `nn` 330 of 501 (fp16), 321 of 500 (bf16); `tn` 3 of 4 (fp16).",
        "| 654 (321) |",
        "1.021x, 2.50x",
        "**0.46**",
        "0.21 us",
        "0.32 us",
        "| first product of a process | 51 ms |",
        "| 300 layers of language models, M up to 8192 | 25% | 1.091x | 0.973x | 0.7% | 81% |",
        "| 298 sizes of any kind, a third unaligned | 40% | 1.210x | 0.960x | 1.0% | 79% |",
        "| unaligned ones of these over torch | 1.314x |",
        "1.070x of torch before fallback (60 problems)",
        "| the same, M 513 to 8192 | 1.030x (59 problems) |",
        "| whole models in CUDA graphs, bf16, 3 to 100 tokens | 1.050x, worst 0.999x |",
        "| products of experts over torch's grouped product | 1.527x, worst 1.283x |",
        "| batches over torch's, before fallback | 1.125x, worst 0.875x (68 problems) |",
        "| first decision about a problem | 28 us in the median of 3 hosts, 52 us at worst |",
        "| a stream of 10,000 sizes, a call over torch | 0.7 us in the median of 3 hosts, 0.9 us",
        "| memory of an idle pack | 6 MB |",
        "| 500 shapes, over torch | fp16 nn |",
        "| alone, hot caches | 1.268 |",
        "| alone, cold caches | 1.250 |",
        "| alone, against the better of torch and tuned cuBLASLt | 1.046 |",
        "| between other products of ours in a CUDA graph | 1.310 |",
        "| the worst shape, alone | 1.000 |",
        "| 40 of 41 |",
        "| 97.6% |",
        "| 3.0e-03 |",
        "| 1.3% |",
        "| 3.61x |",
        "(60 problems of the grid): 1.111x launched plainly, as `matmul` does there, 1.200x with "
        "dependent launch; alone 1.222x hot, 1.200x cold.",
        "(f16 nn, 77 problems with a confirmed kernel): 1.030x torch, 1.040x its TFLOPS per watt.",
        "| 17 wins, 1.22x, 55 GPU-s |",
        "| 1.23 MB, 3.46 MB |",
        "| calls of the installed wheels on an H200, by kernels | 7, 6 |",
        "| 103, 2 |",
        "| 11.2 million, 3 |",
        "| 13 of 14 |",
        "| 2 language models of transformers, of 12 layers | over torch, geometric mean "
        "| worst case |",
        "| a decode step of 1 to 64 tokens, CUDA graph | 1.079x "
        "| 0.996x: nothing gained (Qwen3 8B bf16, graph, 100 tokens) |",
        "| a decode step of 1 to 64 tokens, eager | 1.010x: nothing gained "
        "| 0.950x: slower than torch (Llama fp16, eager, 3 tokens) |",
        "| a decode step, `torch.compile` | not measured yet | - |",
        "| one product at a time, at random intervals | 1.300x | 1.010x (64x64x64 nn f16) |",
        "| products back to back | not measured yet | - |",
        "Torch against itself, which no gain or loss should be told from: 0.999x to 1.003x in 9 "
        "cases of a CUDA graph, 0.969x to 1.010x in 7 cases of eager calls.\n",
    ):
        assert expected in filled
    # By regime, and what the dependent launch is of, is on the page of the table.
    tables = readme.regimes(SUMMARY)
    for expected in (
        "| 1000-shape grid | shapes | fp16 nn |",
        "| tiny | 20 | 1.610 / 2.420 / 3.030 |",
        "| all, cold | 500 | 1.250 / - / - |",
        "| worst, hot | 500 | 1.000 / 1.000 / 0.990 |",
    ):
        assert expected in tables
    dependent = readme.protocol_texts.describe_dependent(SUMMARY)
    for expected in (
        "31 of the 77 problems with a kernel have one that is launched with",
        "13 of them another kernel than for ordinary launches",
        "no product reads what the one before wrote",
        "as nobody has called them so yet: 11 of grid fp16 nn.",
    ):
        assert expected in dependent
    assert "2026-01-02 to 2026-01-03" in filled
    # Rendering replaces what an earlier run wrote, it never adds to it.
    assert readme.render(filled, SUMMARY) == filled


def test_layers_with_epilogues_and_a_training_step() -> None:
    texts = script("readme").protocol_texts
    assert texts.describe_epilogues(SUMMARY) == "Layers with epilogues: not measured yet.\n"
    found = {
        "epilogue.cases": 7,
        "epilogue.gmean_vs_eager": 1.25,
        "epilogue.worst_vs_eager": 0.97,
        "epilogue.gmean_vs_compile": 1.125,
        "epilogue.worst_vs_compile": 0.96,
        "epilogue.bias.gmean_vs_eager": 1.5,
        "epilogue.gated_silu.gmean_vs_eager": 1.1,
        "train.step_ratio": 1.007,
    }
    said = texts.describe_epilogues({"torch": found})
    for expected in (
        "7 layers of language models",
        "1.250x torch's separate kernels (1.50x with a bias, 1.10x with a SiLU gate; at worst "
        "0.970x)",
        "1.125x what torch.compile makes of them (at worst 0.960x)",
        "torch's takes 1.007 times as long.",
    ):
        assert expected in said


def test_what_no_models_were_measured_for_says_so() -> None:
    assert script("readme").models({"models": None}) == "Whole models: not measured yet.\n"


def test_models_say_what_their_lines_say() -> None:
    summary = script("models_summary")
    of_models, of_calls = summary.files()
    assert summary.OUT.exists() == bool(of_models + of_calls)
    if summary.OUT.exists():
        assert summary.OUT.read_text(encoding="utf-8") == summary.text()


def test_public_figures_say_what_their_lines_say() -> None:
    protocols = script("protocols")
    lines, out = protocols.lines("public"), protocols.summary.RESULTS / "public.json"
    assert out.exists() == bool(lines)
    if lines:
        assert out.read_text(encoding="utf-8") == protocols.public_text(lines)


@pytest.mark.parametrize("name", ["chained", "energy"])
def test_protocol_figures_say_what_their_lines_say(name: str) -> None:
    """One script writes what two mains of benchmarks/measure wrote."""
    protocols = script("protocols")
    text = protocols.TEXTS[name](protocols.lines(name))
    assert (protocols.summary.RESULTS / f"{name}.json").read_text(encoding="utf-8") == text


def test_an_unknown_block_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        script("readme").render("<!-- generated:nonsense -->\n<!-- /generated -->\n", SUMMARY)
