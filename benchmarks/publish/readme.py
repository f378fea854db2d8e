"""The numbers in README.md and docs/figures.md, written between markers from summary.json,
generator.json, distribution.json and models.json of benchmarks/results/.

    python -m benchmarks.publish.readme          rewrite both pages
    python -m benchmarks.publish.readme --check  exit 1 when a page is not what would be written

Nobody edits text between `<!-- generated:NAME -->` and `<!-- /generated -->` by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.publish import generator as generator_figures
from benchmarks.publish import protocol_texts, shapes_figures
from benchmarks.publish.protocol_texts import markdown
from hgemm_packs.generator.core.problems import LAYER_REGIMES, REGIMES
from hgemm_packs.generator.tables.speedups import COLUMNS, DTYPES

REPOSITORY = Path(__file__).resolve().parents[2]
README, FIGURES = REPOSITORY / "README.md", REPOSITORY / "docs" / "figures.md"
RESULTS = REPOSITORY / "benchmarks" / "results"
Summary = dict[str, Any]

BLOCK = re.compile(
    r"(?P<open><!-- generated:(?P<name>\w+) -->\n).*?(?P<close><!-- /generated -->)", re.DOTALL
)


def headline(summary: Summary) -> str:
    grid, host, on = summary["grid"]["fp16"]["nn"], summary["host"], summary["measured_on"]
    plain, mixed = grid["plain"], grid["mixed"]
    return (
        f"- **{plain['gmean_vs_torch_hot']:.2f}x** torch over all {grid['shapes']} shapes of the "
        f"grid (fp16, nn, geometric mean, hot caches) on an {on['device']}, "
        f"{plain['gmean_vs_best_hot']:.2f}x the better of torch and tuned cuBLASLt, "
        f"{mixed['gmean_vs_torch_hot']:.2f}x in CUDA graphs of many products; "
        f"{100 * grid['kernel_share']:.0f}% of them by kernels of ours, the rest by torch itself, "
        "none of them slower.\n"
        f"- **{host['hit_ratio']:.2f}** of the host time of `torch.mm(a, b, out=c)` for a call "
        "that is in the table.\n"
    )


#: Below this a mean is no gain that anyone would see, and below the other a loss.
GAIN, LOSS = 1.01, 0.99
#: Row of the tables on whole models and on calls that requests make -> where models.json has its
#: figures, and the mean's key.
MODELS = {
    "a decode step of 1 to 64 tokens, CUDA graph": ("graph", "gmean_upto64"),
    "a decode step of 1 to 64 tokens, eager": ("eager", "gmean_upto64"),
    "a decode step, `torch.compile`": ("compile", "gmean"),
    "a prompt of 512 to 2048 tokens": ("prompts", "gmean"),
}
SERVING = {
    "one product at a time, at random intervals": ("server", "gmean"),
    "products back to back": ("offline", "gmean"),
}


def models(summary: Summary) -> str:
    """A row a mode: the mean, and the worst case, of all tokens where steps have some."""
    found = summary["models"]
    if found is None:
        return "Whole models: not measured yet.\n"
    on = found["measured_on"]
    layers = f", of {on['settings']['layers']} layers" if on else ""
    what = f"{len(found['models'])} language models of transformers{layers}"
    return _means(what, found, MODELS) + describe_noise(found.get("noise", {}))


def describe_noise(noise: Summary) -> str:
    """A sentence on what chance alone makes of a case, by mode; nothing where nobody looked."""
    parts = [
        f"{one['least']:.3f}x to {one['most']:.3f}x in {one['cases']} cases of {words}"
        for mode, words in (("graph", "a CUDA graph"), ("eager", "eager calls"))
        for one in ([noise[mode]] if mode in noise else [])
    ]
    said = "\nTorch against itself, which no gain or loss should be told from: "
    return f"{said}{', '.join(parts)}.\n" if parts else ""


def serving(summary: Summary) -> str:
    """The same of products without a model around them."""
    found = summary["models"]
    if found is None:
        return "Serving: not measured yet.\n"
    return _means("products of layers of language models", found, SERVING)


def _means(what: str, found: Summary, modes: Mapping[str, tuple[str, str]]) -> str:
    rows = []
    for name, (mode, mean) in modes.items():
        figures = found.get(mode)
        if figures is None or mean not in figures:
            rows.append([name, "not measured yet", "-"])
            continue
        worst = f"{format_gain(figures['worst'])} ({figures['worst_case']})"
        rows.append([name, format_gain(figures[mean]), worst])
    return markdown((what, "over torch, geometric mean", "worst case"), rows)


def grid(summary: Summary) -> str:
    """Five rows on all shapes of the grid, those that torch serves among them."""
    sets = _sets(summary, "grid")
    total = _counts(found["shapes"] for found in sets.values())
    rows = {
        "alone, hot caches": ("plain", "gmean_vs_torch_hot"),
        "alone, cold caches": ("plain", "gmean_vs_torch_cold"),
        "alone, against the better of torch and tuned cuBLASLt": ("plain", "gmean_vs_best_hot"),
        "between other products of ours in a CUDA graph": ("mixed", "gmean_vs_torch_hot"),
        "the worst shape, alone": ("plain", "worst_vs_torch_hot"),
    }
    cells = [
        [what, *(times(found[column][key]) for found in sets.values())]
        for what, (column, key) in rows.items()
    ]
    return markdown((f"{total} shapes, over torch", *sets), cells)


def format_gain(ratio: float) -> str:
    """A ratio, with the words that a small one wants."""
    words = "" if ratio >= GAIN else ": nothing gained" if ratio >= LOSS else ": slower than torch"
    return f"{ratio:.3f}x{words}"


def layouts(summary: Summary) -> str:
    """What has kernels, by layout and type."""
    each = [
        f"`{layout}` "
        + ", ".join(
            f"{of_layout[dtype][0]} of {of_layout[dtype][1]} ({dtype})"
            for dtype in DTYPES
            if dtype in of_layout
        )
        for layout, of_layout in sorted(summary["table"]["sets"].items())
    ]
    return f"Problems with a kernel, of those measured: {'; '.join(each)}.\n"


def figures(summary: Summary) -> str:
    table, host, load = summary["table"], summary["host"], summary["load"]
    rows = {
        "problems with a kernel (of the grid, by layout and type)": f"{table['wins']} "
        f"({table['grid_wins']})",
        "problems measured": str(table["problems_measured"]),
        "kernels that carry them": str(table["kernels"]),
        "over torch where there is a kernel, geometric mean, hot": f"{table['gmean']:.3f}x",
        "the same with cold caches": f"{table['gmean_cold']:.3f}x",
        "over the better of torch and tuned cuBLASLt, hot": f"{table['gmean_vs_best']:.3f}x",
        "smallest and largest of them over torch": f"{table['worst']:.3f}x, {table['best']:.2f}x",
        "smallest lower 95% bound over torch, hot or cold": f"{table['worst_lower_bound']:.3f}x",
        "lowest noise floor (torch against itself)": f"{100 * table['noise_floor']:.1f}%",
        "host time of a hit, of torch.mm(out=)": f"{host['hit_ratio']:.2f}",
        "host time a fallback adds to torch, at most": f"{host['miss_extra_us']:.2f} us",
        "host time a layer without a kernel adds to nn.Linear, at most": (
            f"{host['layer_miss_extra_us']:.2f} us"
        ),
        "import after torch": f"{load['import_ms']:.0f} ms",
        "loading a pack of 100 kernels": f"{load['pack100_ms']:.0f} ms",
        "first product of a process": f"{load['first_product_ms']:.0f} ms",
        "memory of an idle pack": f"{load['idle_pack_mb']:.0f} MB",
    }
    return markdown(("figure", "value"), rows.items())


def times(value: float | None) -> str:
    """A ratio, or a dash for what was not measured."""
    return "-" if value is None else f"{value:.3f}"


def _sets(summary: Summary, name: str) -> dict[str, Summary]:
    """Heading -> figures, of every set of a list."""
    return {
        f"{dtype} {layout}": found
        for dtype in DTYPES
        for layout, found in sorted(summary[name].get(dtype, {}).items())
    }


def _columns(found: Summary, *path: str) -> str:
    """A figure in each of worth's columns."""
    cells = []
    for column in COLUMNS:
        value: Any = found[column]
        for step in path:
            value = value.get(step) if value else None
        cells.append(times(value))
    return " / ".join(cells)


ALL = {
    "all, hot": "gmean_vs_torch_hot",
    "all, cold": "gmean_vs_torch_cold",
    "all, hot, against the better of torch and tuned cuBLASLt": "gmean_vs_best_hot",
    "worst, hot": "worst_vs_torch_hot",
}


def _counts(of_sets: Iterable[int]) -> str:
    """One number where the sets agree, else one each."""
    return ", ".join(map(str, dict.fromkeys(of_sets)))


def regimes(summary: Summary) -> str:
    """A table a list: `matmul` over torch by regime, hot, in each of worth's columns."""
    texts = []
    for name, title in (("grid", "1000-shape grid"), ("llm", "layers of language models")):
        sets = _sets(summary, name)
        shapes = {
            one: _counts(found["regime_shapes"].get(one, 0) for found in sets.values())
            for one in (*REGIMES, *LAYER_REGIMES)
            if any(one in found["regime_shapes"] for found in sets.values())
        }
        rows = [
            [one, shapes[one], *(_columns(found, "regimes", one) for found in sets.values())]
            for one in shapes
        ]
        total = _counts(found["shapes"] for found in sets.values())
        rows += [
            [what, total, *(_columns(found, key) for found in sets.values())]
            for what, key in ALL.items()
        ]
        texts.append(markdown((title, "shapes", *sets), rows))
    return "\n".join(texts)


def protocol(summary: Summary) -> str:
    on = summary["measured_on"]
    dates = " to ".join(sorted({on["dates"][0], on["dates"][-1]}))
    sentences = (
        f"{on['device']}, driver {on['driver']}, torch {on['torch']}, cuBLAS {on['cublas']}, "
        f"measured {dates}",
        on["protocol"],
        f"A row: {summary['table']['rule']}",
    )
    return " ".join(sentence.rstrip(".") + "." for sentence in sentences) + "\n"


def generator(summary: Summary) -> str:
    return markdown(("figure", "value"), generator_figures.rows(summary["generator"]).items())


def distribution(summary: Summary) -> str:
    found = summary["distribution"]
    wheel, fetch, kill9, fuzz, hub = (found[n] for n in ("wheel", "fetch", "kill9", "fuzz", "hub"))
    rows = {
        "core wheel, data wheel for sm_90a": f"{wheel['core_bytes'] / 1e6:.2f} MB, "
        f"{wheel['sm90a_bytes'] / 1e6:.2f} MB",
        "built twice gives the same bytes": "yes" if wheel["reproducible"] else "no",
        "calls of the installed wheels on an H200, by kernels": f"{wheel['gpu_calls']}, "
        f"{wheel['gpu_hits']}",
        "processes that fetch one pack at once, downloads": f"{fetch['concurrent']}, "
        f"{fetch['downloads']}",
        "rounds of kill -9 while a pack is added, caches spoilt": f"{kill9['rounds']}, "
        f"{kill9['bad']}",
        "fuzzed reads of manifests, blobs and what else is foreign, open findings": (
            f"{fuzz['executions'] / 1e6:.1f} million, {fuzz['findings_open']}"
        ),
        "faults of a Hub refused or retried": f"{hub['faults_handled']} of {hub['faults_total']}",
    }
    return markdown(("figure", "value"), rows.items())


Blocks = Mapping[str, Callable[[Summary], str]]
BLOCKS: Blocks = {
    "headline": headline,
    "models": models,
    "grid": grid,
    "layouts": layouts,
    "protocol": protocol,
    "figures": figures,
    "serving": serving,
    "lasting": protocol_texts.headline,
    "invariant": protocol_texts.describe_invariant,
    "epilogues": protocol_texts.describe_epilogues,
    "generator": generator,
    "distribution": distribution,
    "unseen": shapes_figures.describe,
    "tune": protocol_texts.describe_tune,
    "h100": protocol_texts.describe_h100,
}


def facts() -> dict[str, Any]:
    """summary.json, with generator.json, distribution.json, models.json, invariant.json,
    torch.json, shapes.json, tune.json and h100.json as its parts; the last six are None until they
    were measured."""
    measured = ("models", "invariant", "torch", "shapes", "tune", "h100")
    parts: dict[str, Any] = dict.fromkeys(measured)
    for name in ("summary", "generator", "distribution", *parts):
        if name not in parts or (RESULTS / f"{name}.json").exists():
            parts[name] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return {**parts.pop("summary"), **parts}


def render(text: str, facts: Summary, blocks: Blocks = BLOCKS) -> str:
    """`text` with every generated block rewritten. Raises KeyError for an unknown block."""

    def block(match: re.Match[str]) -> str:
        return match["open"] + blocks[match["name"]](facts) + match["close"]

    return BLOCK.sub(block, text)


def main() -> int:
    known, texts = facts(), {page: page.read_text(encoding="utf-8") for page in (README, FIGURES)}
    wanted = {page: render(text, known) for page, text in texts.items()}
    if "--check" in sys.argv[1:]:
        return int(texts != wanted)
    for page, text in wanted.items():
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
