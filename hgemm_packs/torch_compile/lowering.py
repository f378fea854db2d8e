"""How Inductor compiles the nodes `hgemm_packs::mm` and `hgemm_packs::addmm`.

The generated code calls matmul itself with `out=`, or the launcher's addmm, without torch's
dispatcher, and Inductor plans the memory. They decide at each call, as in any other call.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import launcher
from . import choice

#: The names by which generated code finds matmul, and addmm.
NAME = "hgemm_packs_matmul"
ADDMM = "hgemm_packs_addmm"

_extern: dict[str, Any] = {}


def register() -> None:
    """Teach Inductor both nodes, once. Generated code of earlier processes finds our functions
    from here on."""
    if _extern:
        return
    from torch._inductor.lowering import register_lowering
    from torch._inductor.select_algorithm import ExternKernelChoice

    for name, function in ((NAME, launcher.matmul), (ADDMM, launcher.addmm)):
        _extern[name] = ExternKernelChoice(function, name=name, has_out_variant=True)
    for name, lower in (("mm", _lower_mm), ("addmm", _lower_addmm)):
        operator = getattr(torch.ops.hgemm_packs, name).default
        register_lowering(operator, type_promotion_kind=None)(lower)


def _lower_mm(a: Any, b: Any, tables: str) -> Any:
    from torch._inductor.lowering import lowerings

    if _choose_kernel() is None:
        return lowerings[torch.ops.aten.mm.default](a, b)
    return _call(NAME, a, b)


def _lower_addmm(bias: Any, a: Any, b: Any, tables: str) -> Any:
    """By a kernel that adds the bias, where a table has one. Else the bias is an operation of its
    own here, which Inductor fuses with what follows. Where nothing follows that it fuses, torch
    adds the bias inside its product, which must then save less than the kernel."""
    from torch._inductor.lowering import lowerings

    found = _choose_kernel(biased=True)
    if found is None:
        return lowerings[torch.ops.aten.addmm.default](bias, a, b)
    if found.adds_bias:
        return _call(ADDMM, a, b, bias)
    return lowerings[torch.ops.aten.add.Tensor](_call(NAME, a, b), bias)


def _call(name: str, a: Any, b: Any, *bias: Any) -> Any:
    from torch._inductor.kernel.mm_common import mm_args
    from torch._inductor.select_algorithm import realize_inputs

    _, _, _, layout, a, b = mm_args(a, b)
    first = [realize_inputs(each) for each in bias]
    return _extern[name].bind([*first, a, b], layout).output_node()


def _choose_kernel(biased: bool = False) -> choice.ServedProduct | None:
    """The kernel that the current node calls; None where Inductor's own product may be the faster
    one here, or is the only one it can call: C++ wrappers call no Python. With max-autotune it
    fuses what follows into a product, which it cannot with ours; of a sum whose bias no kernel adds
    it has an operation of its own to make, unless that is fused with what follows."""
    from torch._inductor import config
    from torch._inductor.virtualized import V

    if V.graph.cpp_wrapper:
        return None
    node: Any = V.graph.current_node
    *_, a, b, _ = node.args
    found = choice.choose(a.meta["val"], b.meta["val"], biased=biased)
    if found is None:
        return None
    fuses = bool(config.max_autotune or config.max_autotune_gemm)
    follows = any(_is_pointwise(user) for user in node.users)
    alone = biased and not found.adds_bias
    if (fuses and (follows or alone)) or (alone and not follows):
        return found if found.outweighs_fusion() else None
    return found


def _is_pointwise(node: torch.fx.Node) -> bool:
    """Whether Inductor fuses a node with the product before it, views between them aside."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.pointwise in node.target.tags:
        return True
    return node.target.is_view and any(_is_pointwise(user) for user in node.users)
