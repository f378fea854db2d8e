"""benchmarks/results/torch.json: what torch's own ways of running a model get from us.

`python -m benchmarks.publish.torch_figures` computes it from the results of models, of layers with
epilogues, of training, of torch's own samples and of its versions, and of the batch-invariant mode.
It measures nothing. What was not measured is not there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import folders
from hgemm_packs.generator.campaigns import campaign, cases
from hgemm_packs.generator.campaigns.campaign import Line

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT = RESULTS / "torch.json"
#: Names in torch.json -> group and figure of models.json.
MODELS = {
    "compile.gmean_upto64": ("compile", "gmean_upto64"),
    "compile.worst": ("compile", "worst"),
    "compile.served": ("compile", "served"),
    "eager.gmean_upto64": ("eager", "gmean_upto64"),
}
#: Names in torch.json -> fields of training.json and opinfo.json.
TRAINING = {"train.step_ratio": "step_ratio", "train.loss_apart": "loss_apart"}
OPINFO = {"opinfo.run": "run", "opinfo.failed": "failed", "opinfo.hits": "hits"}
#: Names in torch.json -> figures of invariant.json.
INVARIANT = {f"invariant.{name}": name for name in ("equal", "gmean_vs_cublas", "worst_vs_cublas")}
#: Names in torch.json -> the arm of epilogues.py that ours is compared with.
EPILOGUES = {"eager": "torch", "compile": "compiled"}


def figures(results: Path = RESULTS) -> dict[str, Any]:
    """What torch.json says, by name."""
    models = _read(results / "models.json")
    versions = _read(results / "torch_versions.json")
    found: dict[str, Any] = {
        name: models[group][figure] for name, (group, figure) in MODELS.items() if group in models
    }
    for mode in ("default", "reduce-overhead"):
        if mode in models.get("compile", {}):
            part = models["compile"][mode]
            found[f"compile.{mode}"] = {name: part[name] for name in ("gmean_upto64", "worst")}
    found |= epilogues(campaign.lines(folders.list_files("epilogues", results=results))[1])
    for file, names in (("training.json", TRAINING), ("opinfo.json", OPINFO)):
        result = _read(results / file)
        found |= {name: result[field] for name, field in names.items() if result}
    invariant = _read(results / "invariant.json").get("figures")
    if invariant:
        found |= {name: invariant[figure] for name, figure in INVARIANT.items()}
    if versions:
        found["versions"] = {
            name: {"passed": each["passed"], "failed": len(each["failed"])}
            for name, each in versions.items()
        }
    return found


def epilogues(lines: Sequence[Line]) -> dict[str, Any]:
    """Layers with epilogues, over torch's separate kernels and over torch.compile's: geometric mean
    and worst case of all, and the mean of each epilogue."""
    right = [line for line in lines if not line["wrong"]]
    if not right:
        return {}
    found: dict[str, Any] = {
        "epilogue.cases": len(right),
        "epilogue.wrong": len(lines) - len(right),
    }
    for name, arm in EPILOGUES.items():
        ratios = [cases.speedup(line["us"], base=arm) for line in right]
        found[f"epilogue.gmean_vs_{name}"] = round(geometric_mean(ratios), 4)
        worst, which = min(zip(ratios, map(name_layer, right), strict=True))
        found[f"epilogue.worst_vs_{name}"] = round(worst, 4)
        found[f"epilogue.worst_case_vs_{name}"] = which
        for epilogue in sorted({line["epilogue"] for line in right}):
            mine = [
                r for r, line in zip(ratios, right, strict=True) if line["epilogue"] == epilogue
            ]
            found[f"epilogue.{epilogue}.gmean_vs_{name}"] = round(geometric_mean(mine), 4)
    return found


def name_layer(line: Line) -> str:
    """A case in words."""
    return f"{line['layer']} {line['dtype']}, {line['epilogue']}, {line['m']} tokens"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def main() -> None:
    OUT.write_text(json.dumps(figures(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {OUT.name}")


if __name__ == "__main__":
    main()
