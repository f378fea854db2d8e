"""Where a call meets torch: torch's entry points for C, what C asks of torch's state, and the whole
of matmul where there is no C extension.

Called by `launcher` and `dispatch`; decides nothing about kernels. torch is imported by the first
call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import neutral, reasons, tensor_keys
from .errors import FallbackError, InvariantError
from .settings import LOGGER, is_invariant, is_off, read_switch, settings

if TYPE_CHECKING:
    import torch

#: Operations, 2*M*N*K, of the smallest product whose gradients are recorded as products of ours. A
#: Function in Python costs the host about 8 us more than torch's own record, 10 us more backward. A
#: product this large takes a GPU 130 us or more, so that the GPU does not wait for the host of a
#: whole model; and from here on a table names kernels by sustained time, as training runs them.
LEAST_RECORDED = 1e11

_calls = 0


def matmul(
    input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """torch.matmul: all there is without the C extension. Says so once."""
    count()
    return torch_matmul()(input, other, **({} if out is None else {"out": out}))


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """torch.nn.functional.linear, as `matmul` is torch.matmul."""
    count()
    return torch_linear()(input, weight, bias)


def addmm(
    input: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.addmm, as `matmul` is torch.matmul."""
    count()
    return torch_addmm()(input, mat1, mat2, **({} if out is None else {"out": out}))


def fused_linear(
    input: torch.Tensor, weight: torch.Tensor, addend: torch.Tensor | None, epilogue: str
) -> torch.Tensor | None:
    """No kernel, hence none with an epilogue."""
    return None


def count() -> None:
    global _calls
    if not _calls:
        read_switch()
        LOGGER.warning("every matmul goes to torch: hgemm_packs._C is not built for this Python")
    _calls += 1
    if is_invariant():
        raise InvariantError(reasons.invariant_refusal("no_extension"))
    if settings().strict and not is_off():
        raise FallbackError(reasons.refusal("no_extension"))


def calls() -> int:
    """How many calls `matmul` and `linear` of this module have taken."""
    return _calls


def torch_matmul() -> Callable[..., torch.Tensor]:
    import torch

    return torch.matmul


def torch_linear() -> Callable[..., torch.Tensor]:
    import torch

    return torch.nn.functional.linear


def torch_addmm() -> Callable[..., torch.Tensor]:
    import torch

    return torch.addmm


def torch_entry_points(device_type: int) -> dict[str, Any] | str:
    """What C needs from torch, as keyword arguments of `_C.init`; or why this torch has not got it.

    Besides public functions these are torch's own cheap questions about its state. They carry no
    promise between versions, so a torch that lacks one is used as a whole or not at all.
    """
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return f"torch {torch.__version__} has no DLPack C exchange API, 2.10 has"
    try:
        return _entry_points(torch, "cuda" if device_type == 2 else "cpu")
    except AttributeError as error:
        return f"torch {torch.__version__} is not known here: {error}"


def _entry_points(torch: Any, device: str) -> dict[str, Any]:
    from torch._C._dynamo import guards

    state, probes = torch._C, _probes(torch, device)
    _ = state._are_functorch_transforms_active, state._will_engine_execute_node  # of autograd.py
    return {
        "tensor": torch.Tensor,
        "parameter": torch.nn.Parameter,
        "matmul": torch.matmul,
        "mm": torch.mm,
        "linear": torch.nn.functional.linear,
        "addmm": torch.addmm,
        "empty": torch.empty,
        # Inductor's allocation: torch.empty without the dispatcher, on the current device.
        "empty_current": getattr(guards, f"_empty_strided_{device}", None),
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "bump_version": state._increment_version,
        "grad_enabled": torch.is_grad_enabled,
        "probes": probes,
        "least_recorded": LEAST_RECORDED,
        "covered": len(probes) - 1,  # all but dual numbers show in a thread's dispatch keys
        "places": tensor_keys.places(device.upper()),
    }


def _make_watch_test(state: Any) -> Callable[[], bool]:
    """Whether a function mode sees torch's calls. A default device is one, too, which torch keeps
    below all others; it only says where new tensors go, and a product's place is its operands'."""
    from torch.utils._device import DeviceContext

    count, mode_at = state._len_torch_function_stack, state._get_function_stack_at

    def is_watched() -> bool:
        modes = count()
        return modes > 1 or (modes == 1 and type(mode_at(0)) is not DeviceContext)

    return is_watched


def _probes(torch: Any, device: str) -> tuple[tuple[Any, ...], ...]:
    from torch.autograd import forward_ad

    state = torch._C
    # Each: a function, its answer when nothing special is going on, perhaps an argument. Modes see
    # every torch call; autocast changes dtypes; tracing records calls; dual numbers carry tangents.
    # Functorch's wrapped tensors need no question: they have no data to view.
    dual_level = vars(forward_ad)
    if dual_level.get("_current_level", None) is None:
        raise AttributeError("torch.autograd.forward_ad has no _current_level")
    return (
        (_make_watch_test(state), False),
        (state._len_torch_dispatch_stack, 0),
        (torch.is_autocast_enabled, False, *(() if device == "cuda" else (device,))),
        (state._is_tracing, False),
        (dual_level.__getitem__, -1, "_current_level"),
    )


def state(a: torch.Tensor, b: torch.Tensor, *added: object) -> str | None:
    """Why no kernel may run the product of these two now, and what is added to it, as C asks in a
    call: "mode", "autograd" or None."""
    import torch

    probes = _probes(torch, "cuda")
    if any(function(*argument) != quiet for function, quiet, *argument in probes):
        return "mode"
    if not records(a, b, *added):
        return None
    ours = not added and b.dim() == 2 and 2 * a.numel() * b.shape[-1] >= LEAST_RECORDED
    return None if ours else "autograd"


def records(*operands: object) -> bool:
    """Whether torch would record a gradient of an operation on these."""
    import torch

    return torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in operands)


def make_blas_handle(relaxed: Callable[[Callable[[], object]], object], device: int) -> None:
    """Have cuBLAS ready for this thread, which torch does at a thread's first product. During a
    capture it may only be done `relaxed`; torch fails there."""
    import torch

    # What is wrong with it is torch's to say, when it multiplies.
    with contextlib.suppress(RuntimeError), torch.cuda.device(device):
        relaxed(torch.cuda.current_blas_handle)


def quiet_threads(remember: Callable[[], None]) -> None:
    """Call `remember` where torch is in no special state, once as it is and once in inference mode:
    in a thread of its own, since the caller's may have modes on."""
    import torch

    def work() -> None:
        remember()
        with torch.inference_mode():
            remember()

    neutral.call(work)
