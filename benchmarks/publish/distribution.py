"""results/distribution.json: how packs reach users, in one place, from the raw results beside it.

    python -m benchmarks.publish.distribution

Called by `make figures`. It measures nothing: wheel_facts.py, wheel_gpu.py, cache_campaign.py,
fuzz.py and hub_faults.py wrote results/distribution/. A figure whose raw result is missing is null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
RAW = RESULTS / "distribution"
OUT = RESULTS / "distribution.json"

#: Published key -> file of results/distribution and keys in it.
FIGURES = {
    "wheel.core_bytes": ("wheels", "core_bytes"),
    "wheel.sm90a_bytes": ("wheels", "sm90a_bytes"),
    "wheel.reproducible": ("wheels", "reproducible"),
    "wheel.gpu_calls": ("wheel_gpu", "calls"),
    "wheel.gpu_hits": ("wheel_gpu", "counters", "hits"),
    "fetch.concurrent": ("fetch", "concurrent"),
    "fetch.downloads": ("fetch", "downloads"),
    "kill9.rounds": ("kill9", "rounds"),
    "kill9.bad": ("kill9", "bad"),
    "fuzz.executions": ("fuzz", "executions"),
    "fuzz.findings_open": ("fuzz", "findings_open"),
    "hub.faults_total": ("hub", "faults_total"),
    "hub.faults_handled": ("hub", "faults_handled"),
}


def figures(raw: Path = RAW) -> dict[str, dict[str, Any]]:
    """Nested by the two words of each published key. Raises KeyError where a raw result lacks its
    figure."""
    found: dict[str, dict[str, Any]] = {}
    for name, (file, *keys) in FIGURES.items():
        group, figure = name.split(".")
        place = raw / f"{file}.json"
        value: Any = None
        if place.exists():
            value = json.loads(place.read_text(encoding="utf-8"))
            for key in keys:
                value = value[key]
        found.setdefault(group, {})[figure] = value
    return found


def main() -> None:
    OUT.write_text(json.dumps(figures(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {OUT.name}")


if __name__ == "__main__":
    main()
