"""The fields of a manifest, with type and bounds of each: the twin of `manifests/schema.json`.

A test proves that both agree. `manifest_checks` puts these tables to work on a manifest, the
generator's packer on its source document; what no schema can say stands in `manifest_checks`. A new
rule stands in five places: here or in `manifest_checks`, in `manifests/schema.json`, in
docs/pack_format.md, in tests/pack_reader.py, and as a case of tests/abuse/cases.py.
"""

from __future__ import annotations

from typing import Any

from ..problem import ACCUMULATORS, ALIGNMENTS, DTYPES, EPILOGUES, LARGEST_DIM, LAYOUTS
from .manifest import (
    EPILOGUE_ABI,
    GROUPED_ABI,
    LAUNCHER_ABI,
    MAX_BLOB_BYTES,
    MAX_GROUPS,
    PARAM_LAYOUTS,
    PLAIN_ABI,
    SCHEMA,
    Baseline,
    Blob,
    DeviceProfile,
    DimRange,
    GeneratorInfo,
    GridRule,
    GroupedRow,
    KernelEntry,
    Numerics,
    PackInfo,
    Row,
    TensorMapSpec,
    Timing,
    Toolchain,
    WinPolicy,
)
from .strict_json import (
    Check,
    boolean,
    integer,
    listing,
    mapping,
    nullable,
    number,
    one_of,
    record,
    text,
)

MAX_KERNELS = 4096
MAX_ROWS = 200_000
MAX_GROUPED_ROWS = 192  # they stand in the head of a manifest
MAX_CLUSTER = 16
MAX_SLICES = 64
MAX_WORKSPACE_BYTES = 1 << 20  # of one CTA: four times the largest accumulator

NAME = text(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}", "bad_name")
SYMBOL = text(r"[A-Za-z_][A-Za-z0-9_]{0,255}", "bad_name")
LINE = text(r"[ -~]{1,200}")
SHA256 = text(r"[0-9a-f]{64}")
COMMIT = text(r"[0-9a-f]{40}")
DATE = text(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
MOMENT = text(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z")
ARCH = text(r"sm_[0-9]{2,3}[af]?")
DIM = integer(1, LARGEST_DIM)
DTYPE = one_of(*DTYPES)
EXTENT = integer(1, 256)
_BYTES = one_of(*ALIGNMENTS)
ALIGN = record(lambda a, b, c: (a, b, c), a=_BYTES, b=_BYTES, c=_BYTES)

#: What a genome's values may be; which genes exist is the family's business.
_GENE_TEXT = text(r"[A-Za-z0-9_.+-]{1,64}")
_GENE_INT = integer(-(2**31), 2**31 - 1)


def _gene(value: Any) -> Any:
    if type(value) is bool:
        return value
    return _GENE_TEXT(value) if type(value) is str else _GENE_INT(value)


def _two(item: Check) -> Check:
    return listing(item, 2, 2)


PROBLEM_FIELDS: dict[str, Check] = {
    "m": DIM,
    "n": DIM,
    "k": DIM,
    "layout": one_of(*LAYOUTS),
    "dtype": DTYPE,
    "out_dtype": DTYPE,
    "acc": one_of(*ACCUMULATORS),
    "epilogue": one_of(*EPILOGUES),
}
KIND_FIELDS = {
    name: PROBLEM_FIELDS[name] for name in ("layout", "dtype", "out_dtype", "acc", "epilogue")
}

_US = number(0.001, 1e9)
_RATIO = number(0.0, 1e6)
TIMING = record(Timing, us=_US, torch_us=_US, cublaslt_us=_US, speedup=_RATIO, lcb=_RATIO)
ROW = record(
    Row,
    {
        "dependent": SHA256,
        "base": ALIGN,
        "packed": boolean,
        "batches": integer(2, LARGEST_DIM),
    },
    **PROBLEM_FIELDS,
    kernel=nullable(SHA256),
    profile=LINE,
    hot=TIMING,
    cold=TIMING,
    pairs=integer(1, 1_000_000),
    date=DATE,
)
GROUPED_ROW = record(
    GroupedRow,
    groups=integer(1, MAX_GROUPS),
    m=DIM,
    n=DIM,
    k=DIM,
    layout=one_of("nn", "nt"),
    dtype=DTYPE,
    kernel=nullable(SHA256),
    profile=LINE,
    hot=TIMING,
    cold=TIMING,
    pairs=integer(1, 1_000_000),
    date=DATE,
)
RANGE = record(DimRange, min=DIM, max=DIM, multiple_of=integer(1, 65536))
NUMERICS = record(
    Numerics,
    reference=one_of("float64"),
    max_rel_err=number(0.0, 1.0),
    shapes_tested=integer(1, 1_000_000),
)
TENSOR_MAP = record(
    TensorMapSpec,
    operand=one_of("a", "b", "c"),
    box=_two(EXTENT),
    swizzle=one_of(0, 32, 64, 128),
    row_group=one_of(0, 16, 32),
    l2_promotion=one_of(0, 64, 128, 256),
)
GENOME = mapping(SYMBOL, _gene, 64)


def _kernel(dims: tuple[DimRange, DimRange, DimRange], **fields: Any) -> KernelEntry:
    m, n, k = dims
    return KernelEntry(m=m, n=n, k=k, **fields)


KERNEL = record(
    _kernel,
    {"cooperative": boolean, "reads_ahead": boolean, "triggers_early": boolean},
    id=SHA256,
    name=NAME,
    symbol=SYMBOL,
    family=NAME,
    genome=GENOME,
    offset=integer(0, MAX_BLOB_BYTES),
    size=integer(1, MAX_BLOB_BYTES),
    param_layout=one_of(*PARAM_LAYOUTS),
    param_sizes=listing(integer(1, 4096), 1, 16),
    block=integer(32, 1024, 32),
    cluster=listing(integer(1, MAX_CLUSTER), 3, 3),
    grid=record(
        GridRule,
        {"slices": integer(1, MAX_SLICES)},
        tile_m=integer(1, 4096),
        tile_n=integer(1, 4096),
        persistent=boolean,
    ),
    smem_bytes=integer(0, 232448),
    regs=integer(1, 255),
    tma=listing(TENSOR_MAP, 0, 3),
    workspace_bytes=integer(0, MAX_WORKSPACE_BYTES, 16),
    align=ALIGN,
    dims=record(lambda m, n, k: (m, n, k), m=RANGE, n=RANGE, k=RANGE),
    **KIND_FIELDS,
    deterministic=boolean,
    numerics=NUMERICS,
)

#: Fields that the manifest and the generator's source document have in common.
SHARED_FIELDS: dict[str, Check] = {
    "pack": record(PackInfo, name=NAME, version=NAME, license=LINE, created=MOMENT),
    "launcher_abi": one_of(PLAIN_ABI, EPILOGUE_ABI, GROUPED_ABI, LAUNCHER_ABI),
    "arch": ARCH,
    "device_profiles": listing(
        record(
            DeviceProfile,
            {"theoretical_mem_bw_gbps": number(1.0, 1e6), "power_limit_w": number(1.0, 1e6)},
            name=LINE,
            sm_count=integer(1, 4096),
            l2_bytes=integer(1, 1 << 40),
            mem_bw_gbps=number(1.0, 1e6),
        ),
        1,
        64,
    ),
    "min_driver": integer(12000, 99999),
    "toolchain": record(Toolchain, nvrtc=NAME, cuda_core=NAME, flags=listing(LINE, 0, 64)),
    "baseline": record(Baseline, torch=NAME, cublas=NAME, driver=NAME, protocol=LINE),
    "policy": record(WinPolicy, noise_floor=number(0.0, 1.0), rule=LINE),
    "table": listing(ROW, 0, MAX_ROWS),
}
#: What manifest and source document may both have, and most have not.
OPTIONAL_FIELDS: dict[str, Check] = {"grouped": listing(GROUPED_ROW, 1, MAX_GROUPED_ROWS)}
FIELDS: dict[str, Check] = {
    "schema": one_of(SCHEMA),
    **SHARED_FIELDS,
    "generator": record(GeneratorInfo, version=NAME, commit=COMMIT, dirty=boolean),
    "blob": record(Blob, bytes=integer(0, MAX_BLOB_BYTES), sha256=SHA256),
    "kernels": listing(KERNEL, 0, MAX_KERNELS),
}
