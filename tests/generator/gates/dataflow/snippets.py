"""A small kernel in PTX, right as it is, with places for what a test puts in."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.core.spec import Verdict
from hgemm_packs.generator.families.base import dims
from hgemm_packs.generator.gates.dataflow import gate

FIELDS: dict[str, Any] = {
    "family": "foreign",
    "epilogue": "none",
    "param_layout": "ptr_v1",
    "dtype": "f16",
    "block": 64,
    "cluster": [1, 1, 1],
    "grid": {},
    "align": {"a": 16, "b": 16, "c": 16},
    "dims": dims(),
    "tma": [],
    "smem_bytes": 0,
}
_PARAMS = ", ".join(f".param .{'u64' if i < 3 else 'u32'} kernel_param_{i}" for i in range(9))
_SUMS = "{%f1,%f2,%f3,%f4}"
#: A in %rd1, B in %rd2, C in %rd3; M in %r4; the thread in %r5, four bytes a thread in %r6.
_HEAD = f"""
.version 9.0
.target sm_90a
.address_size 64
.global .align 4 .u32 kTable = 2;
.visible .entry kernel({_PARAMS})
{{
.shared .align 16 .b8 one[4096];
.shared .align 16 .b8 other[4096];
ld.param.u64 %rd1, [kernel_param_0];
ld.param.u64 %rd2, [kernel_param_1];
ld.param.u64 %rd3, [kernel_param_2];
ld.param.u32 %r4, [kernel_param_3];
mov.u32 %r5, %tid.x;
shl.b32 %r6, %r5, 2;
mov.u32 %r7, one;
add.s32 %r8, %r7, %r6;
mov.u32 %r9, other;
add.s32 %r10, %r9, %r6;
ld.global.u32 %r1, [%rd1];
ld.global.u32 %r2, [%rd2];
mov.f32 %f1, 0f00000000;
mov.f32 %f2, %f1;
mov.f32 %f3, %f1;
mov.f32 %f4, %f1;
"""
_PRODUCT = f"""
mma.sync.aligned.m16n8k16.row.col.f32.DTYPE.DTYPE.f32 {_SUMS}, {{%r1,%r1,%r1,%r1}}, {{%r2,%r2}},
 {_SUMS};
"""
_TAIL = """
cvt.rn.DTYPEx2.f32 %r99, %f2, %f1;
st.global.u32 [%rd3], %r99;
ret;
}
"""


#: The same with operands by tensor maps, C in %rd3 and the workspace in %rd9.
_MAPPED_PARAMS = ", ".join(
    f".param .align 64 .b8 kernel_param_{i}[128]" if i < 2 else f".param .{t} kernel_param_{i}"
    for i, t in enumerate(("", "", "u64", "u64", "u32", "u32", "u32", "u32"))
)
_MAPPED_LOADS = """mov.b64 %rd1, kernel_param_0;
mov.b64 %rd2, kernel_param_1;
ld.param.u64 %rd3, [kernel_param_2];
ld.param.u64 %rd9, [kernel_param_3];
ld.param.u32 %r4, [kernel_param_4];
mov.u32 %r30, one;
"""


def check(
    operands: str = "", sums: str = "", end: str = "", workspace: str = "", **fields: Any
) -> Verdict:
    """The verdict on the kernel with PTX put behind its loads, behind its product and at its end;
    `workspace` is put behind the product of a kernel that has one. `%r1` holds elements of A, `%r2`
    of B, `%f1` to `%f4` sums, `%r8` an address in the shared array `one` and `%r10` one in
    `other`."""
    known = {**FIELDS, **fields}
    if workspace:
        return gate.check_ptx(known, _with_workspace(workspace))
    text = _HEAD + operands + _PRODUCT + sums + _TAIL.replace("ret;", end + "\nret;")
    return gate.check_ptx(known, text.replace("DTYPE", known["dtype"]))


def _with_workspace(put: str) -> str:
    first, last = _HEAD.index("ld.param"), _HEAD.index("mov.u32 %r5")
    text = _HEAD[:first].replace(_PARAMS, _MAPPED_PARAMS) + _MAPPED_LOADS + _HEAD[last:]
    for number, name in (("1", "one"), ("2", "other")):
        copied = f"""cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
 [{name}], [%rd{number}, {{%r4, %r4}}], [%r30];
bar.sync 0;
ld.shared.u32 %r{number}, [{name}];"""
        text = text.replace(f"ld.global.u32 %r{number}, [%rd{number}];", copied)
    return (text + _PRODUCT + put + _TAIL).replace("DTYPE", "f16")
