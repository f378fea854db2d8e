"""A backend of torch.compile for programs that never call us: Inductor, with kernels for the
products that it finds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

from ..errors import InvariantError
from ..settings import is_invariant
from . import choice, lowering, operators

#: Inductor's setting for a pass over a graph of aten operators, before its own.
SETTING = "post_grad_custom_pre_pass"


def compile_backend() -> Callable[..., Any]:
    """A backend for torch.compile: Inductor, with kernels for each product of a model as it is.

    For a model that `hgemm_packs.optimize` has not touched and whose code calls no function of
    hgemm_packs. `aten.mm` and `aten.addmm`, [M, K] @ [K, N] and a bias [N], float16 or bfloat16,
    are served where a table has a kernel for them, in graphs of gradients as well. torch.compile
    takes `mode`, `options`, `fullgraph` and `dynamic` as ever.

    Raises what torch.compile raises, and InvariantError where a graph is compiled in the
    batch-invariant mode: it would have products of torch's.

    Example:

        compiled = torch.compile(model, backend=hgemm_packs.compile_backend())
        y = compiled(x)
    """
    operators.register()

    def compile_graph(
        graph: torch.fx.GraphModule,
        inputs: Any,
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        if is_invariant():
            raise InvariantError(
                "options(batch_invariant=True): compile_backend() leaves products to torch; run "
                "this model eagerly, or under enable()"
            )
        from torch._inductor import config, list_mode_options
        from torch._inductor.compile_fx import compile_fx

        lowering.register()
        patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
        patches[SETTING] = _Serve(patches.get(SETTING, getattr(config, SETTING)))
        return compile_fx(graph, inputs, config_patches=patches)

    return compile_graph


class _Serve(CustomGraphPass):
    """Puts nodes of kernels in the place of torch's products, after the user's own pass."""

    def __init__(self, before: Any) -> None:
        several = isinstance(before, (list, tuple))
        self._before = list(before) if several else [before] if before else []
        self._tables = choice.tables()

    def __call__(self, graph: torch.fx.Graph) -> None:
        for each in self._before:
            each(graph)
        if self._tables == "off":
            return
        aten, ours = torch.ops.aten, torch.ops.hgemm_packs
        for node in graph.find_nodes(op="call_function", target=aten.mm.default):
            if len(node.args) == 2 and not node.kwargs and _is_served(*node.args):
                node.target, node.args = ours.mm.default, (*node.args, self._tables)
        for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
            if len(node.args) == 3 and not node.kwargs and _is_layer(*node.args):
                node.target, node.args = ours.addmm.default, (*node.args, self._tables)

    def uuid(self) -> Any:
        """Of Inductor's cache: what the pass does depends on the tables and the user's pass."""
        before = [
            each.uuid() if isinstance(each, CustomGraphPass) else None for each in self._before
        ]
        if None in before:
            return None  # as for any pass that cannot say what it is: nothing is cached
        return hashlib.sha256(f"{self._tables} {before}".encode()).hexdigest()


def _is_served(a: torch.fx.Node, b: torch.fx.Node, biased: bool = False) -> bool:
    return choice.choose(a.meta["val"], b.meta["val"], biased=biased) is not None


def _is_layer(bias: torch.fx.Node, a: torch.fx.Node, b: torch.fx.Node) -> bool:
    vector, wanted = bias.meta["val"], a.meta["val"]
    return vector.ndim == 1 and vector.dtype == wanted.dtype and _is_served(a, b, biased=True)
