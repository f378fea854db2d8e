"""What README.md, docs/h200.md and docs/figures.md say of dependent launch, chained layers,
sustained runs and tables of other machines.

Called by readme.py and h200_page.py with the summary; nothing is computed here that decides a
figure, and what was not measured is said to be so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hgemm_packs.generator.tables import speedups

Summary = dict[str, Any]

#: What the figures with dependent launch are of.
CHAINS = (
    "In these chains no product reads what the one before wrote, nor what that one reads where L2 "
    "does not hold the operands of both; kernels marked `reads_ahead` then load their operands "
    "while it still runs, and where they also let the next one start early, as many run at once as "
    "fit: a figure is the chain's time by its calls, not how long one call takes. Calls that "
    "run at once share operands; so no hot time counts as less than A, B and C take at "
    f"{speedups.L2_RATE / 1e12:g} TB/s, the most that L2 gave a kernel alone. Where a product "
    "reads the output of one that may still run, it is launched plainly."
)


#: Epilogues of layers -> how a page calls them.
EPILOGUES = {"bias": "bias", "residual": "residual", "gated_silu": "SiLU gate"}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are text already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _per_watt(gain: float | None) -> str:
    """The end of a line on sustained runs; the card's energy is not always read."""
    return "." if gain is None else f", {gain:.3f}x its TFLOPS per watt."


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def _say_missing(found: Summary, verb: str) -> str | None:
    return f"`{verb}`: {found['reason']}.\n" if found["groups"] is None else None


def describe_dependent(summary: Summary) -> str:
    """How many rows have a kernel for it, what its chains are, and what has no figure of calls."""
    launch = summary["launch"]
    text = (
        f"{launch['dependent']} of the {launch['rows']} problems with a kernel have one that is "
        "launched with programmatic dependent launch where the call follows another kernel of ours "
        f"in a CUDA graph, {launch['another']} of them another kernel than for ordinary launches: "
        "it measured faster than the ordinary launch between other products. All other launches "
        "are plain. Calls of `matmul` that chose nothing say what it is worth; where any of their "
        f"graphs was below 0.99 of torch, the row has no such kernel any more.\n{CHAINS}\n"
    )
    waiting = [
        f"{found['served'] - found['called']} of {name} {dtype} {layout}"
        for name in ("grid", "llm")
        for dtype, layouts in sorted(summary[name].items(), reverse=True)
        for layout, found in sorted(layouts.items())
        if found["called"] < found["served"]
    ]
    if waiting:
        text += (
            "Rows that count what their confirmation measured, as nobody has called them so yet: "
            f"{', '.join(waiting)}.\n"
        )
    return text


def _order(name: str) -> tuple[bool, bool, str]:
    return name.startswith("layers"), name in ("grid", "layers"), name


def describe_chains(summary: Summary) -> str:
    """By regime: the gain alone, in the chain, and what share of it is left; plain / PDL."""
    found = summary["chained"]
    missing = _say_missing(found, "generate measure chained")
    if missing:
        return missing
    rows = []
    for name in sorted(found["groups"], key=_order):
        arms = [found["groups"][name][arm] for arm in ("plain", "pdl")]
        cells = [
            " / ".join(_times(arm[column]) for arm in arms)
            for column in ("hot", "cold", "product", "pair")
        ]
        shares = [
            " / ".join(_share(arm[f"survives_of_{state}"]) for arm in arms)
            for state in ("hot", "cold")
        ]
        rows.append([name, str(found["groups"][name]["problems"]), *cells, *shares])
    heads = ("plain / PDL", "problems", "alone, hot", "alone, cold", "product in a chain")
    rest = ("product and elementwise", "left of the hot gain", "left of the cold gain")
    return markdown((*heads, *rest), rows) + _say_wrong(found)


def energy(summary: Summary) -> str:
    """By type and layout: bursts against seconds, work per joule, and what a choice by bursts
    costs."""
    found = summary["energy"]
    missing = _say_missing(found, "generate measure sustained")
    if missing:
        return missing
    rows = []
    for name, each in sorted(found["groups"].items(), reverse=True):
        per_watt = each["tflops_per_watt"]
        rows.append(
            [
                name,
                str(each["problems"]),
                _times(each["burst_vs_torch"]),
                _times(each["sustained_vs_torch"]),
                _times(each["sustained_vs_best"]),
                f"{_times(per_watt['torch'])} / {_times(per_watt['ours'])}",
                _times(each["per_watt_vs_torch"]),
                f"{each['differs']}",
                f"{_times(each['loss_of_burst_choice'])}, {_times(each['worst_loss'])}",
                f"{each['torch_is_faster']}",
            ]
        )
    heads = ("best kernel", "problems", "burst", "sustained", "of the better library")
    rest = ("TFLOPS/W torch / ours", "TFLOPS/W over torch", "another choice by bursts")
    costs = ("which costs in the mean, at worst", "torch outlasts ours")
    return markdown((*heads, *rest, *costs), rows) + _say_wrong(found)


def _say_wrong(found: Summary) -> str:
    return f"\nWith wrong values, and not counted: {found['wrong']}.\n"


def describe_invariant(summary: Summary) -> str:
    """What the batch-invariant mode was measured to keep and to cost."""
    whole = summary.get("invariant")
    if not whole:
        return "The batch-invariant mode: not measured yet.\n"
    found, values = whole["figures"], len(whole["settings"]["values"])
    kept = "every row" if found["equal"] == 1.0 else f"{100 * found['equal']:.4f}% of rows"
    return (
        f"On {found['layers']} layers of language models, fp16 and bf16, at {values} values of M "
        f"up to {max(whole['settings']['values'])}, {kept} of {found['rows_compared']} had the "
        "same bits at each M, at another place and in a CUDA graph. Hot, in CUDA graphs, the mode "
        f"ran at {found['gmean_vs_cublas']:.3f}x the speed of cuBLAS, by geometric mean; at worst "
        f"{found['worst_vs_cublas']:.3f}x ({found['worst_case']}).\n"
    )


def describe_epilogues(summary: Summary) -> str:
    """What layers gain with what follows them, and a training step."""
    found = summary.get("torch") or {}
    words = []
    if "epilogue.cases" in found:
        parts = ", ".join(
            f"{found[f'epilogue.{name}.gmean_vs_eager']:.2f}x with a {title}"
            for name, title in EPILOGUES.items()
            if f"epilogue.{name}.gmean_vs_eager" in found
        )
        eager, compiled = (
            [found[f"epilogue.{figure}_vs_{base}"] for figure in ("gmean", "worst")]
            for base in ("eager", "compile")
        )
        words.append(
            f"{found['epilogue.cases']} layers of language models with what follows them (bf16, 1 "
            f"to 64 tokens, in CUDA graphs): {eager[0]:.3f}x torch's separate kernels ({parts}; at "
            f"worst {eager[1]:.3f}x) and {compiled[0]:.3f}x what torch.compile makes of them (at "
            f"worst {compiled[1]:.3f}x), geometric means."
        )
    if "train.step_ratio" in found:
        words.append(
            "A training step of eight layers of the widths of Llama 3.1 8B, 4096 tokens: torch's "
            f"takes {found['train.step_ratio']:.3f} times as long."
        )
    return " ".join(words or ["Layers with epilogues: not measured yet."]) + "\n"


def headline(summary: Summary) -> str:
    """Both protocols in a list, for those who read no table."""
    lines = []
    chain, power = summary["chained"]["groups"], summary["energy"]["groups"]
    if chain is None:
        lines.append("- Between elementwise kernels: not measured yet.")
    else:
        lines += [
            f"- Between torch's elementwise kernels ({each['problems']} {title}): "
            f"{each['plain']['product']:.3f}x launched plainly, as `matmul` does there, "
            f"{each['pdl']['product']:.3f}x with dependent launch; alone "
            f"{each['plain']['hot']:.3f}x hot, {each['plain']['cold']:.3f}x cold."
            for name, title in (
                ("grid", "problems of the grid"),
                ("layers", "layers of language models"),
            )
            if (each := chain.get(name))
        ]
    if power is None:
        lines.append("- For seconds on end from 1e11 operations: not measured yet.")
    else:
        lines += [
            f"- For long, from 1e11 operations ({name}, {each['problems']} problems with a "
            f"confirmed kernel): {each['sustained_vs_torch']:.3f}x torch"
            + _per_watt(each["per_watt_vs_torch"])
            for name, each in sorted(power.items(), reverse=True)
        ]
    return "\n".join(lines) + "\n"


def describe_h100(summary: Summary) -> str:
    """What the table of an H100 is worth so far, from h100.json."""
    found = summary["h100"]
    rows = {
        "measured on": f"{found['device']}, driver {found['driver']}, torch {found['torch']}, "
        f"cuBLAS {found['cublas']}",
        "rows, of them with a kernel, of the H200's": f"{found['rows']}, {found['with_a_kernel']}, "
        f"{found['rows_of_the_first_card']}",
        f"`matmul` over torch on {found['grid.fp16.nn.problems']} problems of the grid, fp16, nn, "
        "plain, hot": f"{found['grid.fp16.nn.plain']:.3f}x",
        "the same problems, cold": f"{found['grid.fp16.nn.cold']:.3f}x",
        f"the same on {found['layers.upto256.problems']} layers of up to 256 rows, hot": (
            f"{found['layers.upto256']:.3f}x"
        ),
        f"between other products, {found['mixed.problems']} rows with a kernel on both cards: over "
        "torch, and that over the H200's": f"{found['mixed']:.3f}x, {found['mixed_vs_h200']:.3f}",
        "worst row, hot, cold or in a chain": f"{found['worst']:.3f}x",
    }
    return markdown(("figure", "value"), [(name, str(value)) for name, value in rows.items()])


def describe_tune(summary: Summary) -> str:
    """What tables of a user's own machine are worth, from tune.json."""
    found = summary["tune"]
    like, search = found["like"]["like"], found["like"]["search"]
    first, again = len(found["first"]["problems"]), len(found["renamed"]["problems"])
    rows = {
        f"gain of {found['seconds']:.0f} s of `tune` on {first} products of a model, none of them "
        "in the table, of what every kernel timed would give": f"{found['share_of_gain_60s']:.1%}",
        f"time of the official kernels over that of a first table's, {again} problems, the GPU's "
        "profile renamed": f"{found['renamed_vs_official']:.3f}x",
        "problems that a killed tuning had done and the next did not know": found["killed_lost"],
        f"a pack of {search['problems']} problems on an {search['device']} by search: wall time, "
        "wins, gain": f"{search['wall_s']:.0f} s, {search['wins']}, {search['gain']:.3f}x",
        f"the same by `generate --like {found['like']['card']}`": (
            f"{like['wall_s']:.0f} s, {like['wins']}, {like['gain']:.3f}x"
        ),
    }
    return markdown(("figure", "value"), [(name, str(value)) for name, value in rows.items()])
