"""results/shapes.json from lines: means, losers, and the share of the gain."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import unseen
from benchmarks.publish import shapes_figures


def line(of: str, m: int, torch: float, ours: float, by: str, **more: float) -> dict[str, Any]:
    us = {"torch": [torch] * 3, "ours": [ours] * 3} | {k: [v] * 3 for k, v in more.items()}
    fields = {"set": of, "problem": [m, 64, 64, "nt", "f16"], "all": bool(more)}
    return {**fields, "fields": list(fields), "us": us, "by": by, "wrong": False}


LINES = [
    line("layers", 1, 12.0, 10.0, "predicted", k1=9.6, k2=20.0),
    line("layers", 2, 10.0, 10.0, "torch", k1=8.0),
    line("layers_new", 3, 9.7, 10.0, "row"),
    line("random", 4, 20.0, 10.0, "predicted", k1=10.0),
    line("unaligned", 5, 45.0, 10.0, "predicted"),
    {"set": "host", "fields": ["set"], "first_us": 21.5, "stream_extra_us": 0.42},
]


def test_figures_are_those_of_the_lines() -> None:
    assert shapes_figures.figures(LINES) == {
        "layers.problems": 3,
        "layers.gmean": 1.0519,
        "layers.worst": 0.97,
        "layers.below_098": 0.3333,
        "layers.served": 0.6667,
        # ln 1.2 of ln 1.25 twice
        "layers.share_of_gain": 0.4085,
        "random.problems": 2,
        "random.gmean": 3.0,
        "random.worst": 2.0,
        "random.below_098": 0.0,
        "random.served": 1.0,
        "random.share_of_gain": 1.0,
        "random.unaligned": 4.5,
        "wrong": 0,
    }


def test_hosts_are_told_by_the_median_and_by_the_slowest() -> None:
    hosts = [{"first_us": us, "stream_extra_us": us / 100} for us in (21.5, 52.0, 28.5)]
    assert shapes_figures.of_hosts(hosts) == {
        "host.hosts": 3,
        "host.first_us": 28.5,
        "host.first_us.worst": 52.0,
        "host.stream_extra_us": 0.285,
        "host.stream_extra_us.worst": 0.52,
    }


def step(over_torch: float, tokens: int = 3, **other: str) -> dict[str, Any]:
    named = {"mode": "graph", "dtype": "bf16", "phase": "decode"} | other
    return {"over_torch": over_torch, "tokens": tokens, **named}


def test_models_are_counted_from_3_to_100_tokens_in_graphs() -> None:
    steps = [step(1.0), step(1.21, 100), step(9.0, 1), step(9.0, 128), step(9.0, mode="eager")]
    steps += [step(9.0, dtype="fp16"), step(9.0, phase="prompt")]
    figures = {"models.graph_3_100": 1.1, "models.graph_worst": 1.0}
    assert shapes_figures.of_models(steps) == figures


def test_groups_are_counted_by_their_second_measurement() -> None:
    lines = [{"header": {}}, *({"us": {"torch": [4.0] * 3, "ours": [x] * 3}} for x in (2.0, 1.0))]
    figures = {"grouped.gmean": 2.8284, "grouped.worst": 2.0}
    assert shapes_figures.of_groups(lines) == figures


def test_batches_count_hot_and_before_fallback() -> None:
    hot = ({"value": value, "lcb": 0.5} for value in (0.5, 2.0, 8.0))
    lines = [{"header": {}}, *({"speedup": {"hot": each, "cold": {"value": 9.0}}} for each in hot)]
    figures = {"batched.problems": 3, "batched.gmean": 2.0, "batched.worst": 0.5}
    assert shapes_figures.of_batches(lines) == figures


def test_the_drawn_sets_are_those_of_the_protocol() -> None:
    tasks = unseen.draw_tasks(5, 60)
    assert tasks != unseen.draw_tasks(6, 60)
    sets = [task.fields["set"] for task in tasks]
    counts = {name: sets.count(name) for name in set(sets)}
    assert counts == {"layers": 30, "layers_new": 30, "random": 40, "unaligned": 20, "host": 1}
    assert sum(bool(task.fields.get("all")) for task in tasks) == 120 // unseen.SHARED
    assert len({task.key for task in tasks}) == 121
