"""What a table follows from, as files that can be committed: every final, confirmation and noise
job of finished runs with its raw samples and clocks, packed, and the way back.

Called by the CLI; `table` makes the same document of an export as of a store, and the report draws
from it. A folder of exports counts as their union, so that new ones are put beside old ones.
Screens and races stay behind: they choose what reaches the finals and prove nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.problems import cost
from hgemm_packs.generator.core.spec import TOLERANCES, DeviceFacts, Status, known_facts, same
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.store import findings, shards
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.run_folder import Store, StoreError
from hgemm_packs.generator.store.schema import canonical
from hgemm_packs.pack.manifest import Numerics
from hgemm_packs.tuning.journal import problem_of, problem_values
from hgemm_packs.tuning.journal import round_us as round_us

SCHEMA = "hgemm-packs/measured-2"
FACTS = "facts.json"
KERNELS = "kernels.jsonl.zip"
JOBS = "jobs"  # a folder of a file for each type and layout

_ORDER = list(Status)


def load(place: Path) -> Findings:
    """What a run folder, a folder that `write` made, or a folder of such has to say, of kernels as
    they are spelled today. Raises StoreError, ValueError for an export of another version,
    OSError."""
    parts = sorted(each.parent for each in place.glob(f"*/{FACTS}"))
    if (place / FACTS).is_file():
        found = read(place)
    elif parts:
        found = read(parts[0]) if len(parts) == 1 else union([read(each) for each in parts])
    elif not (place / "store.sqlite").is_file():
        raise StoreError(f"{place} is neither an export nor the folder of a run")
    else:
        with Store(place, readonly=True) as store:
            found = findings.read(store)
    return replace(found, kernels={id_: _today(each) for id_, each in found.kernels.items()})


def _today(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest fields of a kernel with all genes of its family, where that is still one."""
    if fields["family"] not in FAMILIES:
        return fields
    return {**fields, "genome": FAMILIES[fields["family"]].whole(fields["genome"])}


def union(parts: Sequence[Findings]) -> Findings:
    """Several runs as one. A kernel that one of them refused is refused; of two proofs the worse
    error stands. Raises ValueError when they were not measured under the same conditions."""
    first = parts[0]
    for one, other in itertools.combinations((part.device for part in parts), 2):
        if not same(one, other):  # of three, one may not know what the others differ in
            raise ValueError(f"cannot unite runs of {one} and of {other}")
    proofs: dict[str, Numerics] = {}
    refused: dict[str, Status] = {}
    for part in parts:
        for id_, seen in part.proofs.items():
            proofs[id_] = max(proofs.get(id_, seen), seen, key=lambda n: n.max_rel_err)
        for id_, status in part.refused.items():
            refused[id_] = max(refused.get(id_, status), status, key=_ORDER.index)
    most = {
        name: max(getattr(part.device, name) for part in parts)
        for name in ("peak_tflops", "peak_gbps", *TOLERANCES)
    }
    runs = {run["id"]: run for part in parts for run in part.runs}
    kinds = {kind for part in parts for kind in part.gpu_seconds}
    return Findings(
        device=replace(first.device, uuid_hash="", **most),
        fields=_unique(each for part in parts for each in part.fields),
        trials=_unique(each for part in parts for each in part.trials),
        proofs=proofs,
        refused=refused,
        kernels={id_: fields for part in parts for id_, fields in part.kernels.items()},
        gpu_seconds={k: sum(part.gpu_seconds.get(k, 0.0) for part in parts) for k in kinds},
        runs=tuple(sorted(runs.values(), key=lambda run: (run["started"], run["id"]))),
        left_out=sum(part.left_out for part in parts),
    )


def _unique(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Each job once, by problem and then in the order of time: the last finals of a problem choose
    its kernel."""
    found = {canonical(_line(each, {})): each for each in fields}

    def order(text: str) -> tuple[Any, ...]:
        each = found[text]
        return (*cost(each.problem), each.evidence.get("finished", 0.0), each.stage, text)

    return tuple(found[text] for text in sorted(found, key=order))


def write(found: Findings, out: Path) -> None:
    """Put an export into the folder `out`, replacing one that is there; the same findings write the
    same bytes. Raises ValueError for a problem that no table row could name."""
    found = union([found])
    # Of what passed the gate alone, lines of dependent launch may speak.
    ids = sorted(findings.kernel_ids(found.fields) | found.proofs.keys())
    places = {id_: str(place) for place, id_ in enumerate(ids)}
    kinds: dict[str, list[Field]] = {}
    for each in (*found.fields, *found.trials):
        kinds.setdefault(f"{each.problem.dtype}-{each.problem.layout}", []).append(each)
    out.mkdir(parents=True, exist_ok=True)
    (out / JOBS).mkdir(exist_ok=True)
    for old in (out / JOBS).iterdir():
        old.unlink()
    for kind, fields in kinds.items():
        lines = (_line(each, places) for each in fields)
        _write_lines(out / JOBS / f"{kind}.jsonl{shards.SUFFIX}", lines)
    _write_lines(out / KERNELS, (_kernel(found, id_) for id_ in ids))
    facts = {
        "schema": SCHEMA,
        "device": known_facts(found.device),
        "runs": [dict(run) for run in found.runs],
        "gpu_seconds": {k: round(s, 3) for k, s in sorted(found.gpu_seconds.items())},
        "left_out": found.left_out,
        "jobs": len(found.fields) + len(found.trials),
    }
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    (out / FACTS).write_text(text, encoding="utf-8")


def _line(each: Field, places: Mapping[str, str]) -> dict[str, Any]:
    """A job; its kernels are named by their line in the file of kernels."""
    return {
        "problem": problem_values(each.problem),
        "stage": each.stage,
        "date": each.date,
        "kernels": {places.get(id_, id_): s.value for id_, s in each.statuses.items()},
        "samples": {
            protocol: {places.get(arm, arm): [round_us(us) for us in t] for arm, t in arms.items()}
            for protocol, arms in each.samples.items()
        },
        "evidence": dict(each.evidence),
    }


def _kernel(found: Findings, id_: str) -> dict[str, Any]:
    proof, refused = found.proofs.get(id_), found.refused.get(id_)
    return {
        "id": id_,
        "fields": found.kernels.get(id_),
        "proof": proof._asdict() if proof else None,
        "refused": refused.value if refused else None,
    }


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_bytes(shards.pack([json.loads(canonical(line)) for line in lines]))


def read(folder: Path) -> Findings:
    """An export as findings without attempts. Raises ValueError when it is of another version or
    files of it are missing, OSError."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if facts.get("schema") != SCHEMA:
        raise ValueError(f"{folder / FACTS} is {facts.get('schema')!r}, not {SCHEMA!r}")
    kernels = read_records([folder / KERNELS])
    jobs = [_field(line, kernels) for line in read_records([folder / JOBS])]
    if len(jobs) != facts["jobs"]:
        raise ValueError(f"{folder} has {len(jobs)} jobs of {facts['jobs']}: a file is missing")
    whole = Findings(
        device=DeviceFacts(**facts["device"]),
        fields=tuple(each for each in jobs if each.stage != "noise"),
        trials=tuple(each for each in jobs if each.stage == "noise"),
        proofs={k["id"]: Numerics(**k["proof"]) for k in kernels if k["proof"]},
        refused={k["id"]: Status(k["refused"]) for k in kernels if k["refused"]},
        kernels={k["id"]: k["fields"] for k in kernels if k["fields"]},
        gpu_seconds=facts["gpu_seconds"],
        runs=tuple(facts["runs"]),
        left_out=facts["left_out"],
    )
    return union([whole])


def _field(line: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]) -> Field:
    def arm(name: str) -> str:
        return str(kernels[int(name)]["id"]) if name.isdigit() else name

    return Field(
        problem=problem_of(*line["problem"]),
        stage=line["stage"],
        samples={
            protocol: {arm(name): tuple(times) for name, times in arms.items()}
            for protocol, arms in line["samples"].items()
        },
        statuses={arm(name): Status(status) for name, status in line["kernels"].items()},
        date=line["date"],
        evidence=line["evidence"],
    )
