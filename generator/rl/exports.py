"""Trajectories as the field's trainers take them: SFT, preference pairs, GRPO.

Called by `generate export`. Every format is lines of JSON with `messages` before an answer; see
docs/reinforcement.md. What was quarantined is only ever a bad example for GRPO.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hgemm_packs.generator.agents import turns
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.evaluator.answer import CORRECT
from hgemm_packs.generator.evaluator.reward import LEVEL
from hgemm_packs.generator.rl import trajectories
from hgemm_packs.generator.rl.trajectories import Line
from hgemm_packs.generator.store.run_folder import Store

#: A revision is worth showing from this gain over its parent on.
REVISION = 1.05
#: Two answers to one prompt are a pair from this difference of rewards on; pairs of a group.
MARGIN, PAIRS = 0.1, 4
#: Fields that tell where a line is from.
FROM = ("problem", "group", "turn", "model", "operator", "source", "verdict", "reward")


def sft(lines: Sequence[Line]) -> Iterator[Line]:
    """Answers to learn by heart: of right kernels, first ones that are level with torch or better,
    later ones that are faster than their parent by REVISION."""
    for line in lines:
        if line["verdict"] not in CORRECT:
            continue
        if line["parent_us"] is None:
            good = line["reward"] >= LEVEL
        else:
            good = line["parent_us"] >= REVISION * line["us"]
        if good:
            yield {"messages": [*line["messages"], _answer(line)], **_from(line)}


def pairs(lines: Sequence[Line]) -> Iterator[Line]:
    """The best answer to a prompt beside worse ones, those that differ most first."""
    for group in _groups(lines):
        kept = [line for line in group if line["verdict"] != Status.HACK.value]
        kept.sort(key=lambda line: (-line["reward"], line["source"]))
        if not kept or kept[0]["verdict"] not in CORRECT:
            continue
        best, others = kept[0], kept[:0:-1]
        for worse in others[:PAIRS]:
            if best["reward"] - worse["reward"] >= MARGIN:
                yield {
                    "prompt": best["messages"],
                    "chosen": [_answer(best)],
                    "rejected": [_answer(worse)],
                    **_from(best),
                    "margin": round(best["reward"] - worse["reward"], 6),
                    "rejected_source": worse["source"],
                    "rejected_verdict": worse["verdict"],
                }


def grpo(lines: Sequence[Line]) -> Iterator[Line]:
    """Every turn with its reward and the advantage within its group."""
    for line in lines:
        yield {"prompt": line["messages"], **{k: v for k, v in line.items() if k != "messages"}}


FORMATS: Final[Mapping[str, Callable[[Sequence[Line]], Iterator[Line]]]] = {
    "sft": sft,
    "pairs": pairs,
    "grpo": grpo,
}


def write(run: Path, name: str, out: Path) -> int:
    """Write the trajectories of a run's folder, of a search or of agents, in one of FORMATS;
    returns the count of lines. Raises StoreError for a folder of neither."""
    if turns.is_run(run):
        known = [*trajectories.lines_of_agents(turns.read(run))]
    else:
        with Store(run, readonly=True) as store, store.snapshot():
            known = [*trajectories.lines(trajectories.read(store))]
    made = [json.dumps(line, sort_keys=True) for line in FORMATS[name](known)]
    write_atomically(out, "".join(f"{line}\n" for line in made).encode())
    return len(made)


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line["group"], []).append(line)
    yield from found.values()


def _answer(line: Line) -> Line:
    return {"role": "assistant", "content": line["completion"]}


def _from(line: Line) -> Line:
    return {name: line[name] for name in FROM}
