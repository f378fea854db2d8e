"""What cuBLASLt's heuristic would run of problems whose times are known: is torch's time easier to
foretell with it?

    python -m benchmarks.measure.heuristics OUT.jsonl (--lines LINES | --drawn COUNT --seed SEED)

needs one GPU. LINES is a file or folder of lines with problems, as benchmarks/results/prediction
has them; drawn problems are of the sorts that training has. Each problem is asked about once, with
the workspace that torch gives to cuBLAS on Hopper, packed operands at aligned addresses; a line has
the algorithm that comes first, as the 64 bytes that the library keeps it in, its waves and
workspace, and what the question took on the host.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hgemm_packs import _cublaslt
from hgemm_packs.generator.campaigns.campaign import Line
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.prediction import draw
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem, alignments_of

#: Bytes that torch has cuBLAS use on Hopper.
WORKSPACE = 32 << 20
#: cuBLASLt's classes of alignment end here.
LARGEST_ALIGNMENT = 16


def problems_of(paths: Iterable[Path]) -> list[Problem]:
    """The problems of lines, each once."""
    lines = (line for line in read_records(paths) if "us" in line and "problem" in line)
    return list(dict.fromkeys(pack_kernels.parse(line["problem"])[0] for line in lines))


def drawn(seed: int, count: int) -> list[Problem]:
    """A quarter of them layers whose N and K training may see, a quarter layers whose N and K no
    model has, a quarter of other sizes, the rest unaligned."""
    trained, _ = draw.split_weights(0)
    part = count // 4
    return [
        *draw.layers(seed, part, trained),
        *draw.layers(seed + 1, part, draw.free_weights(seed, part)),
        *draw.sizes(seed, part, aligned=True),
        *draw.sizes(seed, count - 3 * part, aligned=False),
    ]


def ask(handle: object, p: Problem) -> Line:
    """What the heuristic offers first, None where it offers nothing."""
    a_transposed, b_transposed = (side == "t" for side in p.layout)
    leading = (p.m if a_transposed else p.k, p.k if b_transposed else p.n, p.n)
    alignment = min(LARGEST_ALIGNMENT, *alignments_of(p, p.base))
    started = time.perf_counter()
    plan = _cublaslt.plan(
        *(handle, p.dtype == "bf16", p.m, p.n, p.k, a_transposed, b_transposed),
        *(*leading, alignment, (WORKSPACE,)),
    )
    took = 1e6 * (time.perf_counter() - started)
    offered = _cublaslt.algorithms(plan)
    line: Line = {"problem": pack_kernels.problem_values(p), "host_us": round(took, 1)}
    if not offered:
        return {**line, "algorithm": None}
    workspace, waves, algorithm = offered[0]
    return {
        **line,
        "algorithm": algorithm.hex(),
        "waves": round(waves, 4),
        "workspace": workspace,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--lines", type=Path)
    which.add_argument("--drawn", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    asked = problems_of([given.lines]) if given.lines else drawn(given.seed, given.drawn)
    import torch

    from hgemm_packs.measure import baselines

    torch.cuda.init()
    torch.empty(1, device="cuda")
    handle = _cublaslt.handle(*baselines.LIBRARIES)
    lines = [ask(handle, problem) for problem in asked]
    head = {"benchmark": "heuristics", "cublaslt": baselines.cublaslt_version()}
    if given.drawn:
        head["seed"] = given.seed
    text = "".join(json.dumps(line) + "\n" for line in ({"header": head}, *lines))
    given.out.write_text(text, encoding="utf-8")
    print(f"{len(lines)} problems asked about")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
