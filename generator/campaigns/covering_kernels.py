"""The covering genomes of families, judged by the gates that need no GPU, as a folder of kernels.

Called by `benchmarks/gates/space_gates.py`: a machine with a compiler writes the folder, one with
GPUs reads it and needs no compiler. A refused genome is a result, and other genomes are tried for
the pairs that it alone had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgemm_packs.generator.campaigns.coverage import Known, pairs_of
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Verdict
from hgemm_packs.generator.families import Family, Genome
from hgemm_packs.generator.store.lines import Record, read_records

GENOMES, KERNELS = "genomes.jsonl", "kernels.bin"
ROUNDS = 6  # of other genomes for pairs that only refused ones have

#: Judges (family, genome) pairs, in their order: the last verdict, and the kernel if it passed.
Judge = Callable[[Sequence[tuple[str, Genome]]], Iterable[tuple[Verdict, Built | None]]]


def judge_genome(job: tuple[str, Genome]) -> tuple[Verdict, Built | None]:
    """What the gates that need no GPU say of a genome; sent to processes."""
    from hgemm_packs.generator.compile import candidate  # not where a folder is only read
    from hgemm_packs.generator.run import evaluate  # not where a folder is only read

    verdicts, built = evaluate.build_gates(candidate.of_choice(Choice.of(*job)))
    return verdicts[-1], built


def reason(family: Family, genome: Genome, verdict: Verdict) -> str:
    """Gate and first words of a refusal, without the kernel's name."""
    words = verdict.detail.split("\n", 1)[0].removeprefix(f"{family.kernel_name(genome)}: ")
    return f"{verdict.gate}: {words}"


@dataclass(slots=True)
class Tried:
    """A genome, what became of it, and its kernel where no gate refused it."""

    genome: Genome
    verdict: Verdict
    built: Built | None
    round: int


def cover(family: Family, known: Known, judge: Judge) -> list[Tried]:
    """The covering genomes of a family, judged; others too for pairs that only refused ones
    have."""
    tried: list[Tried] = []
    genomes = known.cover(known.pairs)
    for number in range(1 + ROUNDS):
        verdicts = judge([(family.name, genome) for genome in genomes])
        tried += [Tried(g, *each, number) for g, each in zip(genomes, verdicts, strict=True)]
        built = pairs_of(family, (one.genome for one in tried if one.built))
        refused = [one.genome for one in tried if not one.built]
        lacking = [pair for pair in known.pairs if pair not in built]
        genomes = known.replace_refused(lacking, built, refused)
    return tried


def write(folder: Path, found: Iterable[tuple[Family, Known, Sequence[Tried]]]) -> None:
    """The folder of all families; genomes.jsonl takes its place last."""
    folder.mkdir(parents=True, exist_ok=True)
    info, offset = compiler.generator_info(), 0
    lines: list[Record] = []
    commit = info.commit + ("+" if info.dirty else "")
    lines.append({"header": {"commit": commit, "nvrtc": compiler.NVRTC_PIN, "arch": compiler.ARCH}})
    with (folder / KERNELS).open("wb") as blob:
        for family, known, tried in found:
            about = {"known": len(known), "proven": known.proven}
            lines.append({"family": family.name, **about, "not_found": known.not_found})
            for one in tried:
                line: Record = {"family": family.name, "genome": one.genome, "round": one.round}
                if one.built:
                    size = blob.write(one.built.cubin)
                    line |= {"fields": one.built.entry_fields, "offset": offset, "size": size}
                    offset += size
                else:
                    line["refused"] = reason(family, one.genome, one.verdict)
                    line["detail"] = one.verdict.detail
                lines.append(line)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / GENOMES).write_text(text, encoding="utf-8")


class CoveringKernels:
    """What `write` wrote. `families`: the line of each, `genomes`: those of its genomes. Raises
    OSError, and ValueError for cubins that are not those of the lines."""

    def __init__(self, path: Path) -> None:
        lines = read_records([path / GENOMES])
        self._header, *rest = [line.get("header", line) for line in lines]
        self.families: dict[str, Record] = {x["family"]: x for x in rest if "genome" not in x}
        self.genomes: dict[str, list[Record]] = {name: [] for name in self.families}
        for line in rest:
            if "genome" in line:
                self.genomes[line["family"]].append(line)
        self._blob = (path / KERNELS).read_bytes()
        self.built = [x for lines in self.genomes.values() for x in lines if "fields" in x]
        for line in self.built:
            if hashlib.sha256(self.kernel(line).cubin).hexdigest() != line["fields"]["id"]:
                raise ValueError(f"{path / KERNELS}: not the cubin of {line['fields']['name']}")

    @property
    def facts(self) -> Record:
        """What a header says about it."""
        return {**self._header, "kernels": len(self.built)}

    def kernel(self, line: Record) -> CompiledKernel:
        """The kernel of a line that has one."""
        start = line["offset"]
        return CompiledKernel(line["fields"], self._blob[start : start + line["size"]])
