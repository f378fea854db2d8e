"""Arrays in constant memory against what problems on a card read of them: an entry that only other
sizes choose is tested by nobody.

Called by `gate`. An array counts as a whole, and each load by itself with all that ranges let it
reach: what one load takes elsewhere says nothing of where another takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.proofs import Proofs
from hgemm_packs.generator.gates.coverage.trial import Trial
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction


def faults(trial: Trial, proofs: Proofs, planned: Sequence[Sizes]) -> Iterator[str]:
    """Words for arrays, and for loads by sizes, that are not read as a whole by tested problems and
    planned ones."""
    by_load = trial.read_by(planned)
    arrays: dict[str, Array] = {}
    for (name, _), read in by_load.items():
        arrays[name] = arrays.get(name, np.zeros_like(read)) | read
    for name, read in arrays.items():
        if not read.all():
            yield f"table: {read.sum()} of {read.size} bytes of {name} are read by any problem"
    for (name, at), read in sorted(by_load.items()):
        ins = trial.kernel.instructions[at]
        reach = reached(proofs, proofs.flow.kernel.instructions[at], name, read.size)
        if (reach & ~read).any() and arrays[name].all():
            told = f"{(reach & read).sum()} of {reach.sum()} bytes of {name}"
            yield f"table: {told} are read by any problem in '{ins.text[:100]}'"


def reached(proofs: Proofs, ins: Instruction, name: str, size: int) -> Array:
    """Which bytes of an array a load may take, as far as ranges tell: all where they do not."""
    flow, (register, *more) = proofs.flow, ins.operands[1].parts
    flow.active = flow.threads.reach[ins.index]
    value, offset = flow.value(register), sum(each.value for each in more)
    whole = np.ones(size, np.bool_)
    if value.bases != {name} or value.low is None or value.high is None:
        return whole
    width = int(ins.opcode[-1][1:]) // 8
    step = max(_step(proofs, register.name), width)
    starts: Array = np.arange(value.low, value.high + 1, step) + offset
    starts = starts[(starts >= 0) & (starts + width <= size)]
    reach = np.zeros(size, np.bool_)
    reach[starts[:, None] + np.arange(width)] = True
    return reach if starts.size else whole


def _step(proofs: Proofs, address: str) -> int:
    """The power of two that divides what is added to where an array begins."""
    made = proofs.made.get(address, ())
    if len(made) != 1 or made[0].opcode[0] != "add":
        return 1
    added = [proofs.flow.value(each) for each in made[0].operands[1:]]
    zeros = [each.zeros for each in added if not each.bases]
    return 1 << min(zeros[0], 16) if len(zeros) == 1 else 1
