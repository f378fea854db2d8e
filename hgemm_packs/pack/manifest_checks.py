"""What no schema can say of a manifest: references, uniqueness, the order of the blob, fields that
must fit each other.

Called by `manifest_reader`, for some kernels and rows or for all, and by the generator's packer on
its source document. Types and bounds are in `manifest_fields`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import PackError
from ..problem import ALIGNED, WITHOUT_ADDEND, Key, alignments_of
from .manifest import (
    ADDING,
    EPILOGUE_ABI,
    GROUPED_ABI,
    GROUPED_LAYOUT,
    LAUNCHER_ABI,
    MAPPED,
    MAX_MANIFEST_BYTES,
    PARAM_LAYOUTS,
    PLAIN_ABI,
    WITH_WORKSPACE,
    DeviceProfile,
    DimRange,
    KernelEntry,
    Row,
    TensorMapSpec,
)
from .manifest_fields import MAX_CLUSTER
from .strict_json import Check, read_json

#: Cubins start at multiples of this in the blob, in bytes.
OFFSET_ALIGN = 256


class Named(Protocol):
    """A kernel of a manifest or of a source document."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def read_document(data: bytes, schema: str, check: Check) -> Any:
    """Decode a document of the format named `schema` and check it. Raises PackError."""
    if len(data) > MAX_MANIFEST_BYTES:
        detail = f"{len(data)} bytes, not at most {MAX_MANIFEST_BYTES}"
        raise PackError("manifest_too_large", detail)
    value = read_json(data)
    check_head(value, schema)
    return check(value)


def check_head(value: Any, schema: str) -> None:
    """Refuse another format or launcher ABI by name, before fields that only they have."""
    if type(value) is not dict:
        raise PackError("wrong_type", "the document is not an object")
    found = value.get("schema")
    if type(found) is str and found != schema:
        detail = f"{found[:60]!a}; this version reads {schema!r}"
        raise PackError("unknown_schema", detail, "schema")
    abi = value.get("launcher_abi")
    if type(abi) is int and not PLAIN_ABI <= abi <= LAUNCHER_ABI:
        detail = f"made for launcher ABI {str(abi)[:60]}, this launcher has {LAUNCHER_ABI}"
        raise PackError("launcher_abi", detail, "launcher_abi")


def unique_kernels(kernels: Iterable[NamedT]) -> dict[str, NamedT]:
    """Kernels by id; no id and no name may stand twice."""
    by_id: dict[str, NamedT] = {}
    names = set()
    for index, entry in enumerate(kernels):
        if entry.id in by_id:
            raise PackError("duplicate_kernel_id", entry.id, f"kernels[{index}].id")
        if entry.name in names:
            raise PackError("duplicate_kernel_name", entry.name, f"kernels[{index}].name")
        by_id[entry.id] = entry
        names.add(entry.name)
    return by_id


def abi_of(rows: Iterable[Row]) -> int:
    """The oldest launcher ABI that has all that these rows and their kernels need: whoever has an
    older launcher reads all packs of plain products."""
    needed = PLAIN_ABI
    for row in rows:
        if row.epilogue != "none":
            needed = max(needed, EPILOGUE_ABI)
        if len(row.key) > 8:
            needed = max(needed, GROUPED_ABI)
        if row.batches > 1:
            needed = LAUNCHER_ABI
    return needed


def check_abi(launcher_abi: int, epilogue: str) -> None:
    """A document says no older ABI than what the epilogue of a kernel or row of it needs."""
    if launcher_abi < EPILOGUE_ABI and epilogue != "none":
        detail = f"{epilogue} needs launcher ABI {EPILOGUE_ABI}, the document says {launcher_abi}"
        raise PackError("bad_epilogue", detail, "epilogue")


def check_grouped_abi(launcher_abi: int) -> None:
    """The same of grouped kernels and rows."""
    if launcher_abi < GROUPED_ABI:
        detail = f"grouped products need launcher ABI {GROUPED_ABI}, the document says"
        raise PackError("bad_grouped", f"{detail} {launcher_abi}")


def check_batched_abi(launcher_abi: int) -> None:
    """The same of batched kernels and rows."""
    if launcher_abi < LAUNCHER_ABI:
        detail = f"batches need launcher ABI {LAUNCHER_ABI}, the document says"
        raise PackError("bad_batches", f"{detail} {launcher_abi}")


def check_kernel_abi(launcher_abi: int, entry: KernelEntry) -> None:
    """All of these of a kernel."""
    check_abi(launcher_abi, entry.epilogue)
    if entry.is_grouped:
        check_grouped_abi(launcher_abi)
    if entry.is_batched:
        check_batched_abi(launcher_abi)


def check_row(launcher_abi: int, row: Row) -> None:
    """`check_abi` of a row; and it says of alignments no more than what sizes do not say."""
    check_abi(launcher_abi, row.epilogue)
    if row.batches > 1:
        check_batched_abi(launcher_abi)
    if len(row.key) == 8:
        return
    if launcher_abi < GROUPED_ABI:
        detail = f"rows with base or packed need launcher ABI {GROUPED_ABI}, not {launcher_abi}"
        raise PackError("bad_base", detail, "base")
    for said, most in zip(row.base, alignments_of(row, ALIGNED), strict=True):
        if said < 16 and said >= most:
            detail = f"{row.base}, where the sizes allow no more than {most} bytes"
            raise PackError("bad_base", detail, "base")


def check_launch_record(entry: KernelEntry) -> None:
    """Fields of one kernel that must fit each other."""
    has_addend = entry.param_layout in ADDING
    if (entry.epilogue not in WITHOUT_ADDEND) != has_addend:
        detail = f"{entry.param_layout} has {'an' if has_addend else 'no'} addend"
        raise PackError("bad_epilogue", f"{detail}, the epilogue is {entry.epilogue}", "epilogue")
    if entry.epilogue == "gated_silu" and entry.n.multiple_of % 2:
        detail = f"{entry.epilogue} halves N, of which {entry.n.multiple_of} is a step"
        raise PackError("bad_epilogue", detail, "epilogue")
    expected = PARAM_LAYOUTS[entry.param_layout]
    if entry.param_sizes != expected:
        detail = f"{entry.param_layout} has {list(expected)}, not {list(entry.param_sizes)}"
        raise PackError("param_sizes", detail, "param_sizes")
    if math.prod(entry.cluster) > MAX_CLUSTER:
        raise PackError(
            "bad_cluster", f"{entry.cluster} has more than {MAX_CLUSTER} CTAs", "cluster"
        )
    for name in ("m", "n", "k"):
        sizes = getattr(entry, name)
        if sizes.min > sizes.max:
            raise PackError("bad_range", f"{sizes.min} > {sizes.max}", f"dims.{name}")
    _check_workspace(entry)
    if entry.param_layout == GROUPED_LAYOUT:
        _check_grouped(entry)
    if entry.is_batched:
        _check_batched(entry)
    operands = MAPPED[entry.param_layout]
    if "".join(spec.operand for spec in entry.tma) != operands:
        raise PackError("bad_tma", f"{entry.param_layout} maps {operands!r} in this order", "tma")
    for index, spec in enumerate(entry.tma):
        _check_tensor_map(entry, spec, f"tma[{index}]")


def _check_grouped(entry: KernelEntry) -> None:
    """Where groups end only the device knows: a grid of any size must do, and plain maps."""
    if not entry.grid.persistent or math.prod(entry.cluster) > 1:
        raise PackError("bad_grouped", "a grouped kernel is persistent, without a cluster", "grid")
    if entry.layout[0] == "t" or any(spec.row_group for spec in entry.tma):
        raise PackError("bad_grouped", "rows of a grouped kernel come in their own order", "tma")
    if (entry.m.min, entry.m.multiple_of) != (1, 1):
        detail = f"a grouped kernel takes any number of rows, not {entry.m}"
        raise PackError("bad_grouped", detail, "dims.m")


def _check_batched(entry: KernelEntry) -> None:
    """A batch has any number of products: a grid of any size must do, and maps have a third
    dimension, which is no other one's."""
    if not entry.grid.persistent or entry.cluster[2] > 1 or entry.reads_ahead:
        detail = "a batched kernel is persistent, splits no K and reads nothing ahead"
        raise PackError("bad_batches", detail, "grid")
    if any(spec.row_group for spec in entry.tma):
        raise PackError("bad_batches", "rows of a batched kernel come in their own order", "tma")
    if entry.epilogue not in ("none", "residual"):
        raise PackError("bad_batches", f"no batch has the epilogue {entry.epilogue}", "epilogue")


def _check_workspace(entry: KernelEntry) -> None:
    """Slices of K, partial sums in global memory and CTAs that wait for each other go together."""
    layout, slices, size = entry.param_layout, entry.grid.slices, entry.workspace_bytes
    if layout not in WITH_WORKSPACE:
        if slices > 1 or size:
            detail = f"{layout} has no workspace, but {slices} slices and {size} bytes"
            raise PackError("bad_workspace", detail, "workspace_bytes")
    elif slices == 1 or not size:
        detail = f"{layout} needs slices and bytes, not {slices} and {size}"
        raise PackError("bad_workspace", detail, "workspace_bytes")
    elif entry.grid.persistent:
        raise PackError("bad_workspace", "a sliced kernel cannot have a capped grid", "grid")
    if entry.cooperative != (slices > 1):
        detail = "slices wait for each other, and nobody else does"
        raise PackError("bad_cooperative", detail, "cooperative")


def _check_tensor_map(entry: KernelEntry, spec: TensorMapSpec, where: str) -> None:
    inner_bytes = 2 * spec.box[0]
    if inner_bytes % 16 or (spec.swizzle and inner_bytes > spec.swizzle):
        detail = f"an inner box of {inner_bytes} bytes under a swizzle of {spec.swizzle}"
        raise PackError("bad_tma", detail, where)
    if spec.row_group:
        outer = _outer_dim(entry, spec.operand)
        if spec.box[1] % spec.row_group or outer.multiple_of % spec.row_group:
            detail = f"row_group {spec.row_group} needs an outer size and box that it divides"
            raise PackError("bad_tma", detail, where)


def _outer_dim(entry: KernelEntry, operand: str) -> DimRange:
    """The dimension that is strided in memory, per operand and layout."""
    if operand == "a":
        return entry.m if entry.layout[0] == "n" else entry.k
    if operand == "b":
        return entry.k if entry.layout[1] == "n" else entry.n
    return entry.m


def check_place(entry: KernelEntry, blob_bytes: int) -> None:
    """A cubin is within the blob, and aligned."""
    if entry.offset % OFFSET_ALIGN:
        detail = f"offset {entry.offset} is not in steps of {OFFSET_ALIGN}"
        raise PackError("blob_unaligned", detail, "offset")
    end = entry.offset + entry.size
    if end > blob_bytes:
        raise PackError("blob_end", f"a cubin ends at {end} of {blob_bytes}", "offset")


def check_blob_order(kernels: Sequence[KernelEntry], blob_bytes: int) -> None:
    """Cubins stand in manifest order, with padding only, up to the blob's last byte."""
    offsets = [entry.offset for entry in kernels]
    if offsets != sorted(offsets):
        raise PackError("blob_order", "offsets do not rise in the order of the kernels", "kernels")
    end = 0
    for index, entry in enumerate(kernels):
        expected = -(-end // OFFSET_ALIGN) * OFFSET_ALIGN
        if entry.offset != expected:
            code = "blob_overlap" if entry.offset < end else "blob_hole"
            detail = f"offset {entry.offset}, where {expected} is next"
            raise PackError(code, detail, f"kernels[{index}].offset")
        end = entry.offset + entry.size
    if end != blob_bytes:
        raise PackError("blob_end", f"the last cubin ends at {end} of {blob_bytes}", "blob.bytes")


def index_rows(
    table: Iterable[Row], kernels: Mapping[str, Named], profiles: Iterable[DeviceProfile]
) -> dict[tuple[str, Key], Row]:
    """Rows by profile and problem; each names a profile and, if any, a kernel of this document."""
    names = [profile.name for profile in profiles]
    if len(set(names)) != len(names):
        raise PackError("duplicate_profile", "a device profile appears twice", "device_profiles")
    rows: dict[tuple[str, Key], Row] = {}
    for index, row in enumerate(table):
        where = f"table[{index}]"
        if row.profile not in names:
            raise PackError("unknown_profile", row.profile, f"{where}.profile")
        if row.kernel is not None and row.kernel not in kernels:
            raise PackError("unknown_kernel", row.kernel, f"{where}.kernel")
        _check_dependent(row, kernels, f"{where}.dependent")
        if row.hot.lcb > row.hot.speedup or row.cold.lcb > row.cold.speedup:
            raise PackError("bad_bound", "a lower bound is above its estimate", where)
        if rows.setdefault((row.profile, row.key), row) is not row:
            raise PackError("duplicate_table_key", f"{row.key} on {row.profile}", where)
    return rows


def _check_dependent(row: Row, kernels: Mapping[str, Named], where: str) -> None:
    if row.dependent is None:
        return
    if row.kernel is None:
        raise PackError(
            "bad_dependent", "a row without a kernel cannot have a dependent one", where
        )
    if row.dependent not in kernels:
        raise PackError("unknown_kernel", row.dependent, where)


def check_rows_admitted(table: Iterable[Row], kernels: Mapping[str, KernelEntry]) -> None:
    """No row sends a problem to a kernel that does not take it."""
    for index, row in enumerate(table):
        for name in ("kernel", "dependent"):
            kernel_id = getattr(row, name)
            reason = None if kernel_id is None else kernels[kernel_id].admits(row)
            if reason is not None:
                raise PackError("not_admitted", reason.text, f"table[{index}].{name}")
