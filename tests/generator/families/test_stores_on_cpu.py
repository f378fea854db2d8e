"""What the kernels make of given sums, on a CPU: their own source from the accumulators to C, by a
host compiler, against double; and copies of gated columns by threads. What else is loaded, and sums
over K, a GPU alone runs, but for sm90_elements (test_elements_on_cpu.py)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hgemm_packs.generator.families import FAMILIES, computed
from tests.generator import host
from tests.generator.kernels import BASES

pytestmark = host.needs_compiler

Genome = dict[str, int | str | bool]


def count_wrong(
    folder: Path,
    family: str,
    genome: Genome,
    change: tuple[str, str] = ("", ""),
    defined: str = "",
) -> int:
    """Elements of C that are wrong, missing or not the kernel's, over some sizes."""
    defines = "".join(
        f"#define FAMILY_{each.removeprefix('sm90_')} {int(each == family)}\n" for each in FAMILIES
    )
    step = FAMILIES[family].record(genome)["dims"]["n"]["multiple_of"]
    return host.count_wrong(
        *(folder, family, genome, f'{defines}{defined}\n#include "stores.h"', change),
        checks="-fsanitize=address" if family == "sm90_unaligned" else "",
        arguments=(str(step),),
    )


def genome(family: str, epilogue: str, genes: Genome | None = None) -> Genome:
    return computed.compute_also({**BASES[family], "dtype": "bf16", **(genes or {})}, epilogue)


#: Bytes of an access to A, B and C, layout, and columns of a tile.
ANY_BYTES: list[Genome] = [
    {"layout": "nt", "a_bytes": 16, "b_bytes": 2, "c_bytes": 2, "tile_n": 64},
    {"layout": "nn", "a_bytes": 8, "b_bytes": 4, "c_bytes": 4, "tile_n": 96, "producers": 2},
    {"layout": "tn", "a_bytes": 2, "b_bytes": 16, "c_bytes": 8, "tile_n": 32, "batch": 16},
    {"layout": "tt", "a_bytes": 4, "b_bytes": 8, "c_bytes": 16, "tile_n": 128, "producers": 2},
    {"layout": "tn", "a_bytes": 16, "b_bytes": 2, "c_bytes": 2, "tile_n": 96},
    {"layout": "nt", "a_bytes": 2, "b_bytes": 2, "c_bytes": 16, "tile_n": 96, "producers": 2},
]
#: The same by wide accesses.
WIDE: list[Genome] = [
    {"layout": "nt", "a_bytes": 2, "b_bytes": 2, "c_bytes": 2, "tile_n": 64},
    {"layout": "tt", "a_bytes": 2, "b_bytes": 16, "c_bytes": 2, "tile_n": 128},
    {"layout": "tn", "a_bytes": 2, "b_bytes": 2, "c_bytes": 2, "tile_n": 96},
    {"layout": "nn", "a_bytes": 16, "b_bytes": 2, "c_bytes": 2, "tile_n": 32},
    {"layout": "nt", "a_bytes": 2, "b_bytes": 2, "c_bytes": 16, "tile_n": 32},
]


def unaligned(epilogue: str, genes: Genome) -> Genome:
    if "wide" in genes:
        return genome("sm90_unaligned", epilogue, {"batch": 4, "producers": 2, **genes})
    through_registers = 2 in (genes["a_bytes"], genes["b_bytes"])
    return genome("sm90_unaligned", epilogue, {"batch": 8 if through_registers else 4, **genes})


BOTH: list[tuple[str, Genome]] = [
    *(("sm90_swapab", {"tile_m": m, "tile_n": 128, "consumers": 1}) for m in (8, 24, 40)),
    ("sm90_swapab", {"tile_m": 64, "tile_n": 128, "consumers": 2}),
    *(("sm90_wgmma", {"tile_n": n}) for n in (32, 64, 96)),
    ("sm90_writebound", {"tile_n": 64, "epilogue": "staged"}),
    ("sm90_oneshot", {}),
    ("sm90_oneshot", {"epilogue": "plain", "cp_async": True}),
    ("sm90_oneshot", {"tile_n": 96, "tile_m": 128, "split": 1, "cp_async": True}),
    ("sm90_gemv", {}),
    ("sm90_gemv", {"mi": 2, "layout": "nn", "tokens": 16}),
    ("sm90_tokens", {"tile_m": 8, "epilogue": "staged"}),
    ("sm90_tokens", {"tile_m": 24}),
    ("sm90_tokens", {"tile_m": 88, "tile_n": 128, "consumers": 2}),
    ("sm90_tokens", {"tile_m": 200, "buffers": 2}),
    ("sm90_tokens", {"tile_m": 104, "tile_n": 128, "consumers": 2, "epilogue": "staged"}),
]
#: Stores by the copy engine, which no gated kernel of the family has.
BULK: list[tuple[str, Genome]] = [
    ("sm90_tokens", {"tile_m": 16, "epilogue": "bulk"}),
    ("sm90_tokens", {"tile_m": 72, "tile_n": 192, "consumers": 3, "epilogue": "bulk"}),
    ("sm90_tokens", {"tile_m": 136, "tile_n": 128, "epilogue": "bulk", "buffers": 2}),
]
ADDED: list[tuple[str, Genome]] = [
    ("sm90_wgmma", {"epilogue": "grouped"}),
    ("sm90_oneshot", {"epilogue": "grouped"}),
    *(
        ("sm90_oneshot", {"epilogue": "plain", "tile_n": n, "split": split})
        for n, split in ((32, 8), (16, 8), (16, 4))
    ),
    ("sm90_direct", {}),
]


@pytest.mark.parametrize(("family", "genes"), BOTH)
def test_gated_columns(family: str, genes: Genome, tmp_path: Path) -> None:
    assert count_wrong(tmp_path, family, genome(family, "gated_silu", genes)) == 0


@pytest.mark.parametrize(("family", "genes"), BOTH + ADDED + BULK)
def test_a_residual(family: str, genes: Genome, tmp_path: Path) -> None:
    assert count_wrong(tmp_path, family, genome(family, "residual", genes)) == 0


@pytest.mark.parametrize(
    ("family", "genes"), [each for each in BOTH + BULK if each[0] == "sm90_tokens"]
)
def test_plain_products_turned_round(family: str, genes: Genome, tmp_path: Path) -> None:
    assert count_wrong(tmp_path, family, genome(family, "none", genes)) == 0


@pytest.mark.parametrize(
    ("family", "genes"), [each for each in BOTH + BULK if each[0] == "sm90_tokens"]
)
def test_a_bias_turned_round(family: str, genes: Genome, tmp_path: Path) -> None:
    kernel = genome(family, "bias", genes)
    assert count_wrong(tmp_path, family, kernel, defined="#define EXPECT_BIAS 1") == 0


@pytest.mark.parametrize(
    "genes",
    ANY_BYTES + [{**genes, "wide": True} for genes in WIDE],
    ids=lambda genes: "-".join(map(str, genes.values())),
)
def test_threads_copy_and_store_what_the_matrix_has(genes: Genome, tmp_path: Path) -> None:
    """Every place of a slab as a tensor map would have filled it, for odd sizes and strides, and C
    for odd N; of a matrix that ends with its memory, by a compiler that sees reads behind it."""
    epilogue = "residual" if genes["c_bytes"] == 2 else "none"
    assert count_wrong(tmp_path, "sm90_unaligned", unaligned(epilogue, genes)) == 0


@pytest.mark.parametrize("epilogue", ["none", "bias"])
def test_what_is_known_to_be_right(epilogue: str, tmp_path: Path) -> None:
    """A plain product; and a bias, where no residual is expected, is wrong nearly everywhere."""
    wrong = count_wrong(tmp_path, "sm90_wgmma", genome("sm90_wgmma", epilogue))
    assert wrong == 0 if epilogue == "none" else wrong > 10_000


@pytest.mark.parametrize(
    "change",
    [
        ("const int bits = skew % 2 * 16", "const int bits = 0"),
        ("k - first - unit - skew", "64"),
        ("(place + 16) ^ mix", "place ^ mix"),
        ("(u64)(place + i) < (u64)size", "true"),
        ("head + unit * 8", "unit * 8"),
        ("lane % 8 < head ? 0 : kUnits * 8", "0"),
    ],
)
def test_a_wide_access_that_is_wrong_is_seen(change: tuple[str, str], tmp_path: Path) -> None:
    """Where it reads behind an operand or stores 16 bytes at another place, the program ends."""
    kernel = unaligned("none", {**WIDE[0], "wide": True})
    try:
        assert count_wrong(tmp_path, "sm90_unaligned", kernel, change) > 10
    except subprocess.CalledProcessError as error:
        assert error.cmd[0] == str(tmp_path / "sm90_unaligned"), "the compiler's own error"
        assert change[1] in ("true", "unit * 8")


@pytest.mark.parametrize(
    ("family", "epilogue", "change"),
    [
        ("sm90_swapab", "gated_silu", ("HGP_GATE(v[0]) * v[2]", "HGP_GATE(v[0]) * v[3]")),
        ("sm90_swapab", "residual", ("widen((u16)pair)", "widen((u16)(pair >> 16))")),
        ("sm90_tokens", "none", ("j * kGroup, pack2", "j / 2 * kGroup, pack2")),
        ("sm90_tokens", "none", ("at < m && to < HGP_OF_C(n)", "at < m")),
        ("sm90_tokens", "residual", ("own_unit() + unit % 2", "own_unit() + unit % 1")),
        ("sm90_tokens", "gated_silu", ("HGP_GATE(v[0]) * v[2]", "HGP_GATE(v[2]) * v[0]")),
        ("sm90_wgmma", "residual", ("(i64)below * n, half", "(i64)(below & ~1) * n, half")),
        ("sm90_wgmma", "gated_silu", ("HGP_GATE(v[0]) * v[4]", "HGP_GATE(v[4]) * v[0]")),
        ("sm90_gemv", "gated_silu", ("column / 16 * 8", "column / 16 * 16")),
        ("sm90_oneshot", "gated_silu", ("line / 8 % 2 * (rows / 2)", "line / 8 % 2 * 8")),
        ("sm90_unaligned", "none", ("place ^ (place >> 7 & kBits) << 4", "place")),
        ("sm90_unaligned", "none", ("high[j] << 16", "high[j] << 15")),
        (
            "sm90_unaligned",
            "residual",
            ("finish_sum(acc[i],", "finish_sum(acc[i ^ 1],"),
        ),
    ],
)
def test_a_place_that_is_wrong_is_seen(
    family: str, epilogue: str, change: tuple[str, str], tmp_path: Path
) -> None:
    genes: Genome = {"cp_async": True} if family == "sm90_oneshot" else {}
    assert count_wrong(tmp_path, family, genome(family, epilogue, genes), change) > 100
