"""The binary gate: kernels of both families pass, each forbidden thing is refused by its rule."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, cubin
from hgemm_packs.generator.compile.sass import Census
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates import binary
from tests.generator import foreign
from tests.generator.foreign import compile_any, fields, source
from tests.generator.kernels import DIRECT, WGMMA, Job

HONEST: list[Job] = [
    ("sm90_wgmma", {**WGMMA, "layout": "nn", "dtype": "bf16", "tile_n": 128, "split_k": 2}),
    (
        "sm90_wgmma",
        {
            **WGMMA,
            "tile_m": 128,
            "tile_n": 256,
            "consumers": 2,
            "cluster_m": 2,
            "persistent": True,
            "epilogue": "bulk",
        },
    ),
    ("sm90_direct", {**DIRECT, "exact": True, "warps_m": 2, "ni": 4}),
]


@pytest.mark.parametrize("job", HONEST, ids=["split", "cluster", "direct"])
def test_kernels_of_the_families_pass(job: Job) -> None:
    one = compiler.build_one(*job)
    verdict = binary.check(one.entry_fields, one.cubin)
    assert verdict.passed, verdict.detail
    grid = one.entry_fields["grid"]
    assert verdict.evidence["tile_step_flops"] == 2 * grid["tile_m"] * grid["tile_n"] * 16
    assert verdict.evidence["static_cta_flops"] >= verdict.evidence["tile_step_flops"]
    assert verdict.evidence["registers"] == one.entry_fields["regs"]
    _refused_when_declared_otherwise(one.entry_fields, one.cubin, job[0])


def _refused_when_declared_otherwise(record: dict[str, Any], image: bytes, family: str) -> None:
    """The same cubin under records that lie."""
    other = {"sm90_wgmma": "sm90_direct", "sm90_direct": "sm90_wgmma"}[family]
    genomes = {"sm90_wgmma": WGMMA, "sm90_direct": DIRECT}
    grid = {"tile_m": 1024, "tile_n": 1024, "persistent": False}
    dtype = {"f16": "bf16", "bf16": "f16"}[record["dtype"]]
    for rule, changes in {
        "mma": {"family": other, "genome": genomes[other]},
        "element": {"dtype": dtype},
        "accumulator": {"acc": "f16"},
        "work: all": {"grid": grid},
        "entry": {"symbol": "another"},
        "params": {"param_sizes": [8, 8, 8, 4, 4, 4]},
        "shared": {"smem_bytes": 232449},
        "threads": {"block": record["block"] + 32},
        "registers": {"regs": record["regs"] + 1},
        "id": {"id": hashlib.sha256(image + b"\0").hexdigest()},
    }.items():
        verdict = binary.check({**record, **changes}, image)
        assert verdict.status is Status.BINARY
        assert any(part.startswith(rule) for part in verdict.detail.split("; ")), verdict.detail


def test_a_lost_part_of_a_loop_shows() -> None:
    """One of the four products of an unrolled k-tile is missing."""
    text = compiler.render("sm90_wgmma", WGMMA).replace("step < 4", "step < 3")
    record = compiler.build_one("sm90_wgmma", WGMMA).entry_fields
    image = compile_any(text)
    record = {name: value for name, value in record.items() if name not in ("id", "regs")}
    assert binary.check(record, image).detail == "work: HGMMA count is no multiple of 4"


def test_an_honest_foreign_kernel_passes() -> None:
    verdict = binary.check(fields(), compile_any(source()))
    assert verdict.passed, verdict.detail
    assert verdict.detail == ""
    forms = verdict.evidence["mma"]
    assert [(form["form"], form["shape"]) for form in forms] == [("HMMA.f32.f16", (16, 8, 16))]
    table = "__constant__ float table[4] = {1, 2, 3, 4};"
    reads = compile_any(source(outside=table, inside="acc[0] *= table[n % 4];"))
    assert binary.check(fields(), reads).passed, "constant memory is no state"


ASM = 'u32 x; asm volatile("mov.u32 %%0, %%%%%s;" : "=r"(x)); c[m * ldc + %d] = x;'
GLOBAL = "global: uses variables in global memory (constant bank 0x4)"
#: what -> (where to put it, every rule that it breaks)
BAD: dict[str, tuple[dict[str, str], set[str]]] = {
    "half accumulator": ({"kind": "f16"}, {"accumulator: 5 HMMA.f16.f16, declared is f32"}),
    "other element": ({"kind": "bf16"}, {"element: 5 HMMA.f32.bf16, declared is f16"}),
    "no tensor core": ({"kind": "none"}, {"mma: no tensor-core instruction"}),
    "clock": ({"inside": "c[m * ldc] = clock64();"}, {"clock: reads SR_CLOCKLO"}),
    "timer, SM": (
        {"inside": f"{{{ASM % ('globaltimer_lo', 1)}}} {{{ASM % ('smid', 2)}}}"},
        {"clock: reads SR_GLOBALTIMERLO", "special: reads SR_VIRTUALSMID"},
    ),
    "slot of a warp": (
        {"inside": f"{{{ASM % ('warpid', 1)}}} {{{ASM % ('nwarpid', 2)}}}"},
        {"special: reads SR_VIRTCFG, SR_VIRTID"},
    ),
    "sizes of shared memory": (
        {"inside": ASM % ("dynamic_smem_size", 1)},
        {"driver: reads %dynamic_smem_size"},
    ),
    "environment": ({"inside": ASM % ("envreg3", 1)}, {"driver: reads %envreg3"}),
    "counter": ({"inside": ASM % ("pm0", 1)}, {"special: reads SR_PM0"}),
    "launch number": (
        {"inside": 'u64 x; asm volatile("mov.u64 %0, %%gridid;" : "=l"(x)); c[m * ldc] = x;'},
        {"driver: reads %gridid"},
    ),
    "memory behind constants": (
        {
            "outside": "__constant__ int kept[4];",
            "inside": 'asm volatile("st.u32 [%0], %1;" ::"l"((u64)(kept + n % 4)), "r"(k));',
        },
        {"driver: reads the address of constants"},
    ),
    "trap": ({"inside": "if (m == 3) __trap();"}, {"trap: 1 of them"}),
    "global": (
        {"outside": "__device__ int kept[9];", "inside": "acc[0] += kept[m % 9]++;"},
        {GLOBAL},
    ),
    "static": ({"inside": "static int kept = 3; acc[0] += kept++;"}, {GLOBAL}),
    "atomic": (
        {"inside": "atomicAdd((float*)c, acc[1]);"},
        {"atomic: 1 on global memory in a kernel declared deterministic"},
    ),
    "printf": ({"inside": 'printf("%d", m);'}, {"external: needs vprintf"}),
    "malloc": ({"inside": "*(void**)c = malloc(m);"}, {"external: needs malloc"}),
}


@pytest.mark.parametrize(("how", "rules"), BAD.values(), ids=BAD)
def test_what_no_kernel_needs_is_refused(how: dict[str, str], rules: set[str]) -> None:
    verdict = binary.check(fields(), compile_any(source(**how)))
    assert (verdict.gate, verdict.status) == ("binary", Status.BINARY)
    assert set(verdict.detail.split("; ")) == rules


def test_local_memory_is_refused() -> None:
    use = "float l[128]; for (int i = 0; i < k; ++i) l[i] = i; acc[0] = l[m] + l[n];"
    verdict = binary.check(fields(), compile_any(source(inside=use)))
    assert re.fullmatch(
        r"local: a frame of 512 bytes, \d+ accesses to local memory", verdict.detail
    )


def test_a_second_entry_is_refused() -> None:
    more = 'extern "C" __global__ void other(int* p) { *p = 1; }'
    verdict = binary.check(fields(), compile_any(source(outside=more)))
    assert verdict.detail in (
        "entry: has other, tiny, declared is tiny",
        "entry: has tiny, other, declared is tiny",
    )


def test_the_drivers_values_are_on_a_list() -> None:
    """Where parameters begin at 0x210."""
    entry = cubin.CubinEntry("tiny", (), 0x210, 32, 0, 0, None)
    places = (
        "0x0",
        "0xc",
        "0x28",
        "0x198",
        "0x208",
        "0x210",
        "0x26c",
        "0x30",
        "0x20c",
        "UR4+0x210",
    )
    census = Census(0, (), {}, {}, {"0x0": places, "0x3": ("R2",)})
    assert list(binary._memory(fields(), entry, census)) == [
        "driver: reads %gridid",
        "driver: reads 0x20c of constant bank 0",
        "driver: an index into the parameters, [UR4+0x210]",
    ]


@pytest.mark.parametrize(
    ("registers", "block", "fits"),
    [(255, 256, True), (168, 384, True), (169, 384, False), (128, 512, True), (129, 512, False)],
)
def test_registers_must_fit_the_block(registers: int, block: int, fits: bool) -> None:
    """Allocated in units of 8 a thread, of 65536."""
    entry = cubin.CubinEntry("tiny", (), 0x210, registers, 0, 0, None)
    empty = Census(0, (), {}, {}, {})
    found = list(binary._memory(fields(block=block), entry, empty))
    words = f"registers: {registers} a thread are too many for a block of {block}"
    assert found == ([] if fits else [words])


def test_atomics_are_for_kernels_that_say_so() -> None:
    image = compile_any(source(inside="atomicAdd((float*)c, acc[1]);"))
    assert binary.check(fields(deterministic=False), image).passed
    verdict = binary.check(fields(), image)
    assert verdict.detail == "atomic: 1 on global memory in a kernel declared deterministic"


def test_a_wrong_entry_name() -> None:
    image = compile_any(source().replace(" tiny(", " smaller("))
    verdict = binary.check(fields(), image)
    assert verdict.detail == "entry: has smaller, declared is tiny"


def test_another_architecture() -> None:
    verdict = binary.check(fields(), compile_any(source(), "sm_89"))
    assert verdict.detail.split("; ")[0] == "arch: code for sm_89, not sm_90"


@pytest.mark.parametrize("cut", [0, 3, 63, 700, -200])
def test_no_cubin(cut: int) -> None:
    image = compile_any(source())[:cut]
    verdict = binary.check(fields(), image)
    assert verdict.status is Status.BINARY
    assert verdict.detail.startswith("elf: ")


def test_the_elf_tells_what_the_compiler_told() -> None:
    words = "__shared__ float part[100]; part[lane] = acc[0]; __syncwarp(); acc[0] = part[n % 100];"
    image = cubin.read_cubin(compile_any(source(outside="__device__ int unused;", inside=words)))
    (entry,) = image.entries
    assert (image.sm, entry.name, entry.threads) == (90, foreign.SYMBOL, 32)
    assert entry.params == (8, 8, 8, 4, 4, 4, 4, 4, 4)
    assert entry.param_base == 0x210
    assert entry.static_smem_bytes == 400
    assert entry.frame_bytes == 0
    assert 16 <= entry.registers <= 64
    assert (image.externals, image.code_relocations) == ((), 0)
    one = compiler.build_one("sm90_direct", DIRECT)
    read = cubin.read_cubin(one.cubin)
    assert read.entries[0].registers == one.entry_fields["regs"]
    assert read.entries[0].params == tuple(one.entry_fields["param_sizes"])
    assert "kTileM" in read.variables, "constants of the source, in memory that no code reads"
