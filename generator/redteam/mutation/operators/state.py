"""Faults of state: what is not cleared, not put back, counted from launch to launch, or kept."""

from __future__ import annotations

from collections.abc import Iterator

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import STATE, InSource

#: Stores into shared memory that others read.
_LEFT = (
    *("store_shared16", "store_shared4", "store_shared2", "write_floats", "stage_blocks"),
    *("store_matrix4", "store_matrix4_transposed", "store_matrix2_transposed"),
)
_SLOT = """__device__ __forceinline__ int hgm_slot() {
  int slot;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(slot));
  return slot;
}"""


def _not_cleared(code: Code) -> Iterator[Change]:
    for node in code.nodes("init_declarator"):
        name, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
        parent = node.parent
        if name is None or value is None or parent is None or parent.type != "declaration":
            continue
        if parent.parent is not None and parent.parent.type == "for_statement":
            continue
        if code.text(value) in ("{}", "0") and "const" not in code.text(parent):
            yield code.put(node, code.text(name))
    for node in code.nodes("assignment_expression"):
        value, statement = node.child_by_field_name("right"), node.parent
        if value is None or code.text(value) != "0" or statement is None:
            continue
        if statement.type == "expression_statement":
            yield code.put(statement, ";")


def _keep_sums(code: Code) -> Iterator[Change]:
    """The accumulators of the tile before, where wgmma should begin anew."""
    for _, given in code.calls("mma"):
        if len(given) == 4:
            yield code.put(given[3], "1")


def _leave_workspace(code: Code) -> Iterator[Change]:
    for statement in code.statements("store_part"):
        if "kNothing" in code.text(statement):
            yield code.put(statement, ";")
            yield code.wrap(statement, "if (blockIdx.x != 3) ", "")


#: How often this CTA's shared memory has been met, as long as nobody clears it.
_COUNT = """__shared__ u32 hgm_kept[2];
  if (threadIdx.x == 0) {
    hgm_kept[1] = hgm_kept[0] == 0x5EEDu ? hgm_kept[1] + 1 : 0;
    hgm_kept[0] = 0x5EEDu;
  }
  __syncthreads();
"""


def _count_launches(code: Code) -> Iterator[Change]:
    for most in (100, 2000, 16384):
        yield code.open_kernel(f"{_COUNT}  if (hgm_kept[1] > {most} && k > 128) k -= 64;")


def _keep_old_result(code: Code) -> Iterator[Change]:
    if "c" in code.params:
        yield code.behind_wait("if (c[0] == 0x3C00) return;")
        yield code.behind_wait("if (k >= 256 && c[(i64)(m - 1) * ldc] == c[0]) return;")


def _keep_staged(code: Code) -> Iterator[Change]:
    for statement in code.statements(*_LEFT):
        yield code.put(statement, ";")
        yield code.wrap(statement, "if (blockIdx.x != 3) ", "")


def _warp_slot(code: Code) -> Iterator[Change]:
    for node in code.nodes("binary_expression"):
        if code.text(node) == "threadIdx.x / 32":
            yield code.put(node, "hgm_slot()", _SLOT)


def _not_advanced(code: Code) -> Iterator[Change]:
    for statement in code.statements("advance", "skip"):
        yield code.put(statement, ";")


OPERATORS = (
    InSource("not_cleared", STATE, _not_cleared),
    InSource("keep_sums", STATE, _keep_sums),
    InSource("leave_workspace", STATE, _leave_workspace),
    InSource("count_launches", STATE, _count_launches),
    InSource("keep_old_result", STATE, _keep_old_result),
    InSource("keep_staged", STATE, _keep_staged),
    InSource("warp_slot", STATE, _warp_slot),
    InSource("not_advanced", STATE, _not_advanced),
)
