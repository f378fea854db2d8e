"""Which products may add to registers that some path has not set: these hold what was there before.

Called by `gate` on the kernel with a name for each write. A copy of what is not set is not set.
"""

from __future__ import annotations

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, written
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks


def find(kernel: Kernel) -> frozenset[int]:
    """The products with a sum that is unset on some path from the kernel's first instruction."""
    bits: dict[str, int] = {}
    for ins in kernel.instructions:
        for name in _added_to(ins):
            bits.setdefault(name, 1 << len(bits))
    if not bits:
        return frozenset()
    copies = True
    while copies:  # what a sum is a copy of has to be known as well
        copies = False
        for ins in kernel.instructions:
            source = _copied(ins)
            if source and source not in bits and any(name in bits for name in _made(ins)):
                bits[source] = 1 << len(bits)
                copies = True
    graph, everything = blocks(kernel), (1 << len(bits)) - 1
    enters = dict.fromkeys(graph, everything)
    enters[0] = 0
    due, met = [0], {0}
    while due:
        first = due.pop()
        leaves = _pass(kernel, graph[first], enters[first], bits, None)
        for each in graph[first].next:
            if each not in met or enters[each] & ~leaves:
                met.add(each)
                enters[each] &= leaves
                due.append(each)
    found: set[int] = set()
    for first, block in graph.items():
        _pass(kernel, block, enters[first], bits, found)
    return frozenset(found)


def _pass(
    kernel: Kernel, block: Block, known: int, bits: dict[str, int], found: set[int] | None
) -> int:
    """What is set behind a block; `found` gets its products with unset sums."""
    for ins in kernel.instructions[block.first : block.end]:
        if found is not None and any(not known & bits[name] for name in _added_to(ins)):
            found.add(ins.index)
        if ins.guard:
            continue
        source = _copied(ins)
        is_set = not source or source not in bits or bool(known & bits[source])
        for name in _made(ins):
            bit = bits.get(name, 0)
            known = known | bit if is_set else known & ~bit
    return known


def _added_to(ins: Instruction) -> tuple[str, ...]:
    """The registers of the sums that a product is added to, as the source calls them."""
    if ins.opcode[0] == "mma":
        names = ins.operands[3].registers()
    elif ins.opcode[:2] == ("wgmma", "mma_async"):
        names = (ins.before or ins.operands[0]).registers()
    else:
        return ()
    return tuple(name.split("#")[0] for name in names)


def _made(ins: Instruction) -> tuple[str, ...]:
    to = written(ins)
    return tuple(name.split("#")[0] for name in to.registers()) if to is not None else ()


def _copied(ins: Instruction) -> str:
    """The register that an instruction copies; empty where it does something else."""
    if ins.opcode[0] != "mov" or len(ins.operands) != 2:
        return ""
    names = ins.operands[1].registers()
    return names[0].split("#")[0] if len(names) == 1 else ""
