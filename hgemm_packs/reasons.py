"""The words of fallbacks that C decides, for explain and for the error that STRICT raises.

Read by `report`, `dispatch` and `torch_state`. What `select` decides comes with a text of its own.
"""

from __future__ import annotations

from .problem import Reason
from .settings import is_invariant

#: What a code says, of the fallbacks that no table decides. Those of `select` come with a text.
WORDS = {
    "off": "kernels are switched off, by HGEMM_PACKS_OFF=1, disable() or disabled()",
    "torch_unsupported": "hgemm_packs needs torch 2.10 or newer, in a version that it knows",
    "no_extension": "hgemm_packs._C is not built for this Python",
    "tensor_type": "an operand is not a plain torch.Tensor",
    "no_view": "an operand has no memory that a kernel can read",
    "mismatch": "shapes, types or devices do not match; torch raises if that is an error",
    "device": "the operands are not on a CUDA device",
    "dtype": "the operands are neither float16 nor bfloat16",
    "shape": "the operands are not a matrix (or its rows) and a matrix, nor two batches of "
    "several, or a side is 0",
    "layout": "an operand's strides are not those of a matrix, nor of a batch",
    "out": "out shares memory with an operand, or is not stored row by row",
    "bias": "what is added is nothing that a kernel adds: a packed vector of N, in a sum a packed "
    "matrix of the result's shape, 16-byte aligned and times 1",
    "mode": "autocast, tracing or another mode of torch is on",
    "autograd": "a gradient is recorded, and the product is too small for that to pay, is a batch, "
    "or has an out or an addend: torch.no_grad(), torch.inference_mode() and "
    "hgemm_packs.enabled() allow a kernel",
    "cold_capture": "a capture cannot load a kernel: call these shapes, or warmup, before it",
    "workspace": "there is no memory for the partial sums of the kernel",
    "refused": "the kernel of the table does not take this problem",
    "launch_failed": "the driver refused the launch",
    "no_device": "the CUDA driver or device cannot be used",
}


def invariant_refusal(code: str, call: str = "this call", steps: str = "") -> str:
    """What InvariantError says where `code` would have had torch run a call."""
    why = f"{code}: {WORDS[code]}" if code in WORDS else code
    return f"options(batch_invariant=True): no batch-invariant kernel runs {call}: {why}{steps}"


def refusal(code: str, call: str = "this call", steps: str = "") -> str:
    """What FallbackError says where `code` had torch run a call."""
    why = f"{code}: {WORDS[code]}" if code in WORDS else code
    return f"torch would have run {call}: {why}{steps}"


def by_torch(code: str, text: str) -> str:
    """What `explain` says where torch runs a call, and why."""
    return f"{unserved_line(code)}\n          {Reason(code, text)}"


def unserved_line(code: str) -> str:
    """Its first line, of which the code is enough."""
    if is_invariant():
        return f"raises    InvariantError in the batch-invariant mode ({code})"
    return f"runs on   torch (fallback: {code})"
