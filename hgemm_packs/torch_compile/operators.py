"""The operators that stand for our functions in a graph.

Dynamo traces `matmul` to `hgemm_packs::matmul`, and a layer's product to `hgemm_packs::linear`.
Autograd and Inductor never see these two: each decomposes, when the graph is traced, into torch's
own function or into `hgemm_packs::mm` or `hgemm_packs::addmm`, the nodes that a kernel serves. A
node's gradients are products again, and are chosen like any other. Every operator carries the word
of `choice.tables`, so that a cache of compiled graphs tells tables apart by the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import launcher, settings
from . import choice, lowering

SCHEMAS = (
    "matmul(Tensor input, Tensor other, str tables) -> Tensor",
    "linear(Tensor input, Tensor weight, Tensor? bias, str tables) -> Tensor",
    "mm(Tensor a, Tensor b, str tables) -> Tensor",
    "addmm(Tensor bias, Tensor a, Tensor b, str tables) -> Tensor",
)

_library: Any = None


def register() -> None:
    """Define the operators and have Dynamo use them, once."""
    global _library
    import torch._dynamo  # which may call this function

    if _library is not None:
        return
    _library = torch.library.Library("hgemm_packs", "DEF")
    for schema in SCHEMAS:
        _library.define(schema, tags=torch.Tag.pt2_compliant_tag)
    for name, function in (("matmul", _decompose_matmul), ("linear", _decompose_linear)):
        _library.impl(name, function, "CompositeImplicitAutograd")
    for name, run, fake, differentiate, keep in (
        ("mm", _run_mm, _fake_mm, _differentiate_mm, _keep_mm),
        ("addmm", _run_addmm, _fake_addmm, _differentiate_addmm, _keep_addmm),
    ):
        full = f"hgemm_packs::{name}"
        _library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(full, fake, lib=_library)
        torch.library.register_autograd(full, differentiate, setup_context=keep, lib=_library)
    for constant in (_tables, _is_exporting):
        torch.compiler.assume_constant_result(constant)
    replace(launcher.matmul, launcher.linear, launcher.fused_linear)


def replace(matmul: Any, linear: Any, fused_linear: Any) -> None:
    """Have Dynamo trace these functions, `launcher`'s, to the operators."""
    from torch._dynamo.decorators import substitute_in_graph

    substitute_in_graph(matmul, skip_signature_check=True)(_trace_matmul)
    substitute_in_graph(linear, skip_signature_check=True)(_trace_linear)
    substitute_in_graph(fused_linear, skip_signature_check=True)(_trace_fused_linear)


def _tables() -> str:
    """Asked once for each graph that Dynamo traces; Inductor is made ready at the same time, for it
    may load a compiled graph that an earlier process left."""
    lowering.register()
    return choice.tables()


def _is_exporting() -> bool:
    """Asked while Dynamo traces. Before torch 2.12 Dynamo itself takes the answer for True."""
    return torch.compiler.is_exporting()


# What Dynamo traces. An exported program runs without us, so nothing of ours may be in it. In the
# batch-invariant mode calls of ours run as they do eagerly: Dynamo guards on the count of its
# blocks, so that a graph that was traced under one mode never runs under the other.


def _trace_matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    if settings._invariant_blocks:
        torch._dynamo.graph_break()
    if out is not None or _is_exporting():
        return torch.matmul(input, other, out=out)
    return torch.ops.hgemm_packs.matmul(input, other, _tables())


def _trace_linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if settings._invariant_blocks:
        torch._dynamo.graph_break()
    if _is_exporting():
        return torch.nn.functional.linear(input, weight, bias)
    return torch.ops.hgemm_packs.linear(input, weight, bias, _tables())


def _trace_fused_linear(input: Any, weight: Any, addend: Any, epilogue: Any) -> Any:
    """Of a graph Inductor fuses what follows a product and its bias."""
    return None


def _decompose_matmul(input: Any, other: Any, tables: str) -> Any:
    if input.ndim >= 2 and other.ndim == 2 and _is_ours(tables, input, other):
        x, b = _cast(input, other)
        found = _product(x, b, None, tables)
        if found is not None:
            return found
    return torch.matmul(input, other)


def _decompose_linear(input: Any, weight: Any, bias: Any, tables: str) -> Any:
    given = (input, weight) if bias is None else (input, weight, bias)
    if input.ndim >= 2 and weight.ndim == 2 and _is_ours(tables, *given):
        x, w, *rest = _cast(*given)
        found = _product(x, w.t(), rest[0] if rest else None, tables)
        if found is not None:
            return found
    return torch.nn.functional.linear(input, weight, bias)


def _is_ours(tables: str, *operands: Any) -> bool:
    """Whether torch would do no more with them than multiply: functorch and tensors of their own
    kind, such as DTensor, want torch's own function."""
    if tables == "off" or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not any(_is_wrapped(each) for each in operands)


def _is_wrapped(tensor: Any) -> bool:
    from torch._subclasses import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return type(tensor) not in (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)


def _cast(*operands: Any) -> tuple[Any, ...]:
    """As autocast casts what a product is given."""
    kind = operands[0].device.type
    if not torch.is_autocast_enabled(kind):
        return operands
    dtype = torch.get_autocast_dtype(kind)
    few = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(each.to(dtype) if each.dtype in few else each for each in operands)


def _product(x: Any, b: Any, bias: Any, tables: str) -> Any:
    """x [..., K] @ b [K, N] + bias [N] as a kernel's node; None where torch multiplies."""
    if x.shape[-1] != b.shape[0] or x.device.type != b.device.type:
        return None  # torch says what is wrong
    flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    if choice.choose(flat, b, biased=bias is not None) is None:
        return None
    if bias is None:
        found = torch.ops.hgemm_packs.mm(flat, b, tables)
    elif bias.ndim == 1 and bias.dtype == x.dtype and bias.shape[0] == b.shape[1]:
        found = torch.ops.hgemm_packs.addmm(bias, flat, b, tables)
    else:
        return None
    return found if x.ndim == 2 else found.view(*x.shape[:-1], b.shape[1])


def _multiply(a: Any, b: Any, tables: str) -> Any:
    """A product of a gradient."""
    served = tables != "off" and choice.choose(a, b) is not None
    return torch.ops.hgemm_packs.mm(a, b, tables) if served else torch.mm(a, b)


# The nodes as backends other than Inductor run them, and what all are told about them.


def _run_mm(a: Any, b: Any, tables: str) -> Any:
    with torch.no_grad():  # autograd is above
        return launcher.matmul(a, b)


def _run_addmm(bias: Any, a: Any, b: Any, tables: str) -> Any:
    with torch.no_grad():
        whole = launcher.fused_linear(a, b.t(), bias, "bias")
        return launcher.matmul(a, b).add_(bias) if whole is None else whole


def _fake_mm(a: Any, b: Any, tables: str) -> Any:
    torch._check(a.ndim == 2 and b.ndim == 2, lambda: "mm: matrices are wanted")
    torch._check(a.shape[1] == b.shape[0], lambda: "mm: sizes do not go together")
    torch._check(a.dtype == b.dtype, lambda: "mm: types do not go together")
    return a.new_empty(a.shape[0], b.shape[1])


def _fake_addmm(bias: Any, a: Any, b: Any, tables: str) -> Any:
    torch._check(bias.shape == b.shape[1:], lambda: "addmm: the bias is not [N]")
    return _fake_mm(a, b, tables)


def _keep_mm(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.tables = inputs
    ctx.save_for_backward(a, b)


def _keep_addmm(ctx: Any, inputs: Any, output: Any) -> None:
    _, a, b, ctx.tables = inputs
    ctx.save_for_backward(a, b)


def _differentiate_mm(ctx: Any, grad: Any) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    for_a, for_b = ctx.needs_input_grad[:2]
    return (*_gradients(a, b, grad, for_a, for_b, ctx.tables), None)


def _differentiate_addmm(ctx: Any, grad: Any) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    for_bias, for_a, for_b = ctx.needs_input_grad[:3]
    return (
        grad.sum(0) if for_bias else None,
        *_gradients(a, b, grad, for_a, for_b, ctx.tables),
        None,
    )


def _gradients(a: Any, b: Any, grad: Any, for_a: bool, for_b: bool, tables: str) -> tuple[Any, Any]:
    """dA = dC @ B^T and dB = A^T @ dC, the second stored as B is: torch does so, too, and of a
    layer's weight it is [N, K]."""
    of_a = _multiply(grad, b.t(), tables) if for_a else None
    if not for_b:
        return of_a, None
    if choice.is_stored_by_column(b):
        return of_a, _multiply(grad.t(), a, tables).t()
    return of_a, _multiply(a.t(), grad, tables)
