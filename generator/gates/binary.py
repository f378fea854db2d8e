"""Binary gate: is a cubin what its launch record declares, and nothing more.

Looks at the ELF and at a census of the instructions, so it holds whatever the source looked like.
Called once for each kernel, of a family or foreign; needs no GPU and runs nothing of the kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hgemm_packs.generator.compile import grid_wait, sass
from hgemm_packs.generator.compile.cubin import Cubin, CubinEntry, CubinError, read_cubin
from hgemm_packs.generator.core import collector
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.families.base import SMEM_LIMIT_BYTES, Genome

SM = 90  # the ELF does not tell sm_90 from sm_90a
REGISTER_FILE = 65536  # 32-bit registers of an SM
#: Sections of a linked kernel; any other (.data, .bss, .nv.local, .nv.uft, ...) is refused.
_SECTIONS = re.compile(
    r"\.(shstrtab|strtab|symtab|debug_frame|nv\.info|nv\.compat|nv\.callgraph|nv\.constant[0234]"
    r"|nv\.global(\.init)?|nv\.shared\.reserved\.\d+|note\.nv\.\w+"
    r"|rela?\.(debug_frame|nv\.constant4))"
)
_OF_AN_ENTRY = re.compile(r"\.(rela?\.text|text|nv\.info|nv\.shared|nv\.constant0)\.(.+)")
#: Constant banks: 0 parameters, 2 and 3 literals and `__constant__`. Bank 4 holds the addresses of
#: variables in global memory: constexpr values end there too, but only the reading tells of use.
_BANKS = ("0x0", "0x2", "0x3")
#: What a kernel may ask of the driver's values before the parameters in bank 0: sizes of block,
#: grid and cluster, stack, the address of the parameters (tensor maps) and how to reach global
#: memory. Found by compiling one kernel for each PTX name, as those that are named to be refused.
_SIZES = (*range(0x0, 0x18, 4), *range(0x140, 0x168, 4), 0x188)
_DRIVER = {*_SIZES, 0x28, 0x198, 0x208}
_KNOWN = {
    "0x2c": "%dynamic_smem_size",
    "0x30": "%gridid",
    "0x40": "%envreg0",
    "0x4c": "%envreg3",
    "0x68": "%reserved_smem_offset_end",
    "0x6c": "%reserved_smem_offset_1",
    "0xd0": "the address of constants",
    "0x10c": "%nsmid",
    "0x114": "%total_smem_size",
    "0x13c": "%aggr_smem_size",
    "0x190": "%current_graph_exec",
}
#: Special registers: where a thread stands in block, cluster and warp. No clock, counter or name
#: of the SM, no slot of a warp (SR_VIRTID), no size of shared memory.
_SPECIALS = re.compile(
    r"SRZ|SR_(TID|CTAID|NTID|NCTAID)\.[XYZ]|SR_C[Gg][Aa]\w*|SR_LANEID"
    r"|SR_(EQ|L[TE]|G[TE])MASK|SR_SWINHI|SR_SWINLO"
)


def _wgmma_share(g: Genome) -> int:
    """HGMMA that one consumer needs for one k-tile."""
    rows = int(g["tile_m"]) // (1 if g["schedule"] == "pingpong" else int(g["consumers"]))
    return rows // 64 * int(g["tile_k"]) // 16


def _k_tile(g: Genome) -> int:
    """HGMMA of 64 rows for one k-tile."""
    return int(g["tile_k"]) // 16


def _tokens_share(g: Genome) -> int:
    """HGMMA that one consumer needs for one k-tile."""
    return (
        int(g["tile_n"])
        // (1 if g["schedule"] == "pingpong" else int(g["consumers"]))
        // 64
        * _k_tile(g)
    )


def _swapab_share(g: Genome) -> int:
    """HGMMA that one consumer needs for one k-tile."""
    return int(g["tile_n"]) // int(g["consumers"]) // 64 * _k_tile(g)


def _grouped_share(g: Genome) -> int:
    """HGMMA that one consumer needs for one k-tile."""
    return int(g["tile_n"]) // (1 if g["pingpong"] else int(g["consumers"])) // 64 * _k_tile(g)


def _oneshot_share(g: Genome) -> int:
    """HGMMA of a whole slice of K."""
    return int(g["k_slice"]) // 16


def _writebound_share(g: Genome) -> int:
    """HGMMA of a tile."""
    return int(g["k"]) // 16


def _direct_share(g: Genome) -> int:
    """HMMA that one warp needs for one round of loads."""
    return 2 * int(g["mi"]) * int(g["ni"]) * int(g["unroll"])


def _elements_share(g: Genome) -> int:
    """HMMA that one warp needs for one round of loads."""
    return int(g["mi"]) * int(g["ni"]) * int(g["unroll"])


def _gemv_share(g: Genome) -> int:
    """HMMA that one warp needs for one round of loads."""
    return 2 * int(g["mi"]) * int(g["unroll"]) * int(g["tokens"]) // 8


def _unaligned_share(g: Genome) -> int:
    """HGMMA that one consumer needs for one k-tile of 64."""
    return int(g["tile_m"]) // int(g["consumers"]) // 64 * 4


#: Family -> its tensor-core instruction, and how many a worker's unrolled step has of it; copies
#: that the compiler makes of a loop are whole.
FAMILY_MMA: Mapping[str, tuple[str, Callable[[Genome], int]]] = {
    "sm90_wgmma": ("HGMMA", _wgmma_share),
    "sm90_splitk": ("HGMMA", _k_tile),
    "sm90_oneshot": ("HGMMA", _oneshot_share),
    "sm90_swapab": ("HGMMA", _swapab_share),
    "sm90_grouped": ("HGMMA", _grouped_share),
    "sm90_writebound": ("HGMMA", _writebound_share),
    "sm90_direct": ("HMMA", _direct_share),
    "sm90_gemv": ("HMMA", _gemv_share),
    "sm90_tokens": ("HGMMA", _tokens_share),
    "sm90_batched": ("HGMMA", _tokens_share),
    "sm90_unaligned": ("HGMMA", _unaligned_share),
    "sm90_elements": ("HMMA", _elements_share),
}


def check_image(fields: Mapping[str, Any], cubin: bytes) -> Verdict:
    """The rules that need no disassembly, a hundred times as fast: what a search can afford for
    every kernel that it tries."""
    try:
        image = read_cubin(cubin)
    except CubinError as error:
        return Verdict("binary", Status.BINARY, f"elf: {error}")
    found = list(_image(fields, cubin, image))
    return Verdict("binary", Status.BINARY if found else Status.OK, "; ".join(found))


@collector.paused
def check(fields: Mapping[str, Any], cubin: bytes) -> Verdict:
    """Verdict on a cubin against the manifest fields of its kernel (`id` and `regs` are compared
    where present). `detail` names each broken rule. Raises SassError without the disassembler."""
    try:
        image = read_cubin(cubin)
    except CubinError as error:
        return Verdict("binary", Status.BINARY, f"elf: {error}")
    found = list(_image(fields, cubin, image))
    if found:  # not worth a disassembly, or not fit for one
        return Verdict("binary", Status.BINARY, "; ".join(found))
    (entry,) = image.entries
    try:
        census = sass.census(cubin)
    except sass.Unreadable as error:
        return Verdict("binary", Status.BINARY, f"elf: {error}")
    needed, held = tile_work(fields, census)
    evidence = {
        "registers": entry.registers,
        "static_smem_bytes": entry.static_smem_bytes,
        "mma": [
            {"form": f"{x.opcode}.{x.acc}.{x.element}", "shape": x.shape, "count": x.count}
            for x in census.mma
        ],
        "tile_step_flops": needed,
        "static_cta_flops": held,
        **census.facts(),
    }
    found = [*_memory(fields, entry, census), *_instructions(fields, census), *_mma(fields, census)]
    status = Status.BINARY if found else Status.OK
    return Verdict("binary", status, "; ".join(found), evidence)


def _image(fields: Mapping[str, Any], cubin: bytes, image: Cubin) -> Iterator[str]:
    symbol = fields["symbol"]
    if image.sm != SM:
        yield f"arch: code for sm_{image.sm}, not sm_{SM}"
    digest = hashlib.sha256(cubin).hexdigest()
    if fields.get("id", digest) != digest:
        yield "id: not the sha256 of this cubin"
    if image.externals:
        yield f"external: needs {', '.join(sorted(image.externals))}"
    names = [entry.name for entry in image.entries]
    if names != [symbol]:
        yield f"entry: has {', '.join(names) or 'no entry'}, declared is {symbol}"
    for name in image.sections:
        own = _OF_AN_ENTRY.fullmatch(name)
        if not _SECTIONS.fullmatch(name) and not (own and own[2] in image.functions):
            yield f"section: {name}"
    if image.code_relocations:
        yield f"relocation: {image.code_relocations} in the code"
    for entry in image.entries:
        if entry.name == symbol and entry.params != tuple(fields["param_sizes"]):
            declared = list(fields["param_sizes"])
            yield f"params: {list(entry.params)} bytes, declared are {declared}"


def _memory(fields: Mapping[str, Any], entry: CubinEntry, census: sass.Census) -> Iterator[str]:
    block = int(fields["block"])
    if fields.get("regs", entry.registers) != entry.registers:
        yield f"registers: {entry.registers}, declared are {fields['regs']}"
    taken = -(-entry.registers // 8) * 8 * -(-block // 32) * 32
    if taken > REGISTER_FILE:
        yield f"registers: {entry.registers} a thread are too many for a block of {block}"
    if entry.threads is not None and block > entry.threads:
        yield f"threads: launch bounds of {entry.threads}, a block has {block}"
    smem = entry.static_smem_bytes + int(fields["smem_bytes"])
    if smem > SMEM_LIMIT_BYTES:
        yield f"shared: {smem} bytes, the limit is {SMEM_LIMIT_BYTES}"
    local = census.count("LDL", "STL")
    if entry.frame_bytes or local:
        yield f"local: a frame of {entry.frame_bytes} bytes, {local} accesses to local memory"
    banks = sorted(set(census.banks) - set(_BANKS))
    if banks:
        yield f"global: uses variables in global memory (constant bank {', '.join(banks)})"
    for place in census.banks.get("0x0", ()):
        if not place.startswith("0x"):
            yield f"driver: an index into the parameters, [{place}]"
        elif int(place, 16) < entry.param_base and int(place, 16) not in _DRIVER:
            yield f"driver: reads {_KNOWN.get(place, place + ' of constant bank 0')}"


def _instructions(fields: Mapping[str, Any], census: sass.Census) -> Iterator[str]:
    if census.clocks:
        yield f"clock: reads {', '.join(census.clocks)}"
    others = [x for x in census.specials if x not in census.clocks and not _SPECIALS.fullmatch(x)]
    if others:
        yield f"special: reads {', '.join(others)}"
    traps = census.count("BPT")
    if traps:
        yield f"trap: {traps} of them"
    # A row may launch any of a family's kernels while the grid ahead still runs, and no run can
    # show that one reads too early. ptxas moves ld.global.nc across griddepcontrol.wait. A foreign
    # kernel enters no table; one with an instruction of dependent launch has to do all of it. What
    # reads ahead is launched dependent only where its operands are not written ahead, by any grid
    # that may still run, and warps of it that only load may end without a wait of their own.
    ahead = bool(fields.get("reads_ahead"))
    early = set(census.early) | set(census.unwaited) - ({"EXIT"} if ahead else set())
    early -= grid_wait.PAST_L1 if ahead else set()
    early -= {"PREEXIT"} if ahead and fields.get("triggers_early") else set()
    if early and (fields.get("family") in FAMILY_MMA or census.count("ACQBULK", "PREEXIT")):
        yield f"upstream: {', '.join(sorted(early))} before the grid ahead has ended"
    atomics = census.count(*sass.MEMORY["atomics"])
    if atomics and fields["deterministic"]:
        yield f"atomic: {atomics} on global memory in a kernel declared deterministic"


def _mma(fields: Mapping[str, Any], census: sass.Census) -> Iterator[str]:
    if not census.mma:
        yield "mma: no tensor-core instruction"
        return
    family = FAMILY_MMA.get(fields.get("family", ""))
    for form in census.mma:
        name = ".".join(filter(None, (form.opcode, form.acc, form.element)))
        if form.opcode not in ((family[0],) if family else ("HMMA", "HGMMA")):
            yield f"mma: {form.count} {name}, not {family[0] if family else 'HMMA or HGMMA'}"
        elif form.acc != fields["acc"]:
            yield f"accumulator: {form.count} {name}, declared is {fields['acc']}"
        elif form.element != fields["dtype"]:
            yield f"element: {form.count} {name}, declared is {fields['dtype']}"
        elif form.sparse or form.shape is None:
            yield f"mma: {form.count} {name} that no dense product needs"
    needed, held = tile_work(fields, census)
    if held < needed:
        yield (
            f"work: all warps together have {held} flops of tensor-core code, one step of K of the"
            f" tile takes {needed}"
        )
    if family and sum(form.count for form in census.mma) % family[1](fields["genome"]):
        yield f"work: {family[0]} count is no multiple of {family[1](fields['genome'])}"


def tile_work(fields: Mapping[str, Any], census: sass.Census) -> tuple[int, int]:
    """(flops of a CTA tile for the smallest step of K, flops of running every tensor-core
    instruction once in every warp or warpgroup of the CTA).

    Accumulators live in registers, and registers have no index at run time: each fragment of the
    tile needs an instruction of its own in the warp that holds it. So the second is at least the
    first, unless a CTA makes its tile piece by piece; a kernel that does so declares the piece.
    """
    shaped = [form for form in census.mma if form.shape is not None]
    if not shaped:
        return 0, 0
    block, grid = int(fields["block"]), fields["grid"]
    step = min(form.shape[2] for form in shaped if form.shape)
    held = sum(form.flops * (block // (128 if "G" in form.opcode else 32)) for form in shaped)
    return 2 * int(grid["tile_m"]) * int(grid["tile_n"]) * step, held
