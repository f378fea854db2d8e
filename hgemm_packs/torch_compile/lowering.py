"""How Inductor compiles the nodes `hgemm_packs::mm` and `hgemm_packs::addmm`.

The generated code calls matmul itself with `out=`, without torch's dispatcher, and Inductor plans
the memory. matmul decides at each call, as in any other call.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import launcher
from . import choice

#: The name by which generated code finds matmul.
NAME = "hgemm_packs_matmul"

_extern: Any = None


def register() -> None:
    """Teach Inductor both nodes, once. Generated code of earlier processes finds matmul from here
    on."""
    global _extern
    if _extern is not None:
        return
    from torch._inductor.lowering import register_lowering
    from torch._inductor.select_algorithm import ExternKernelChoice

    _extern = ExternKernelChoice(launcher.matmul, name=NAME, has_out_variant=True)
    for name, lower in (("mm", _lower_mm), ("addmm", _lower_addmm)):
        operator = getattr(torch.ops.hgemm_packs, name).default
        register_lowering(operator, type_promotion_kind=None)(lower)


def _lower_mm(a: Any, b: Any, tables: str) -> Any:
    from torch._inductor.lowering import lowerings

    if _keeps_own():
        return lowerings[torch.ops.aten.mm.default](a, b)
    return _call_matmul(a, b)


def _lower_addmm(bias: Any, a: Any, b: Any, tables: str) -> Any:
    """The bias is an operation of its own here, which Inductor fuses with what follows. Where
    nothing follows that it fuses, torch adds the bias inside its product, which must then save less
    than the kernel."""
    from torch._inductor.lowering import lowerings

    if _keeps_own(alone=True):
        return lowerings[torch.ops.aten.addmm.default](bias, a, b)
    return lowerings[torch.ops.aten.add.Tensor](_call_matmul(a, b), bias)


def _call_matmul(a: Any, b: Any) -> Any:
    from torch._inductor.kernel.mm_common import mm_args

    _, _, _, layout, a, b = mm_args(a, b)
    return _extern.bind([a, b], layout).output_node()


def _keeps_own(alone: bool = False) -> bool:
    """Whether Inductor's own product may be the faster one here, or is the only one it can call:
    C++ wrappers call no Python. With max-autotune it fuses what follows into a product, which it
    cannot with ours; with `alone` it has an operation of its own to make of what is not fused."""
    from torch._inductor import config
    from torch._inductor.virtualized import V

    if V.graph.cpp_wrapper:
        return True
    node: Any = V.graph.current_node
    fuses = bool(config.max_autotune or config.max_autotune_gemm)
    follows = any(_is_pointwise(user) for user in node.users)
    if not (fuses and (follows or alone)) and not (alone and not follows):
        return False
    *_, a, b, _ = node.args
    found = choice.choose(a.meta["val"], b.meta["val"])
    return found is None or not found.outweighs_fusion()


def _is_pointwise(node: torch.fx.Node) -> bool:
    """Whether Inductor fuses a node with the product before it, views between them aside."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.pointwise in node.target.tags:
        return True
    return node.target.is_view and any(_is_pointwise(user) for user in node.users)
