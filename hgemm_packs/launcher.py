"""The one door to the C extension: matmul, linear, counters, and single kernels loaded and
launched.

C remembers, Python decides: what C asks of Python is `dispatch`, which `on_first_use` brings here.
Generator and self-test load and launch single kernels through here. Nothing else in the package
imports `_C`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import torch_state
from .pack.identity import launch_record
from .problem import DeviceInfo, GroupedProblem, Problem
from .settings import on_switch, read_switch, settings

if TYPE_CHECKING:
    import torch

    from ._C import Kernel
    from .pack.manifest import DeviceProfile, KernelEntry
    from .pack.predictor import Predictor
    from .workspace import Workspace

# A missing file is the one expected failure: no wheel for this platform, or a free-threaded Python,
# which loads no abi3 extension. Anything else that goes wrong below is an error and stays one.
if find_spec(f"{__package__}._C") is None:
    _C: Any = None
    matmul, linear = torch_state.matmul, torch_state.linear
    addmm, fused_linear = torch_state.addmm, torch_state.fused_linear
else:
    from . import _C

    matmul, linear = _C.matmul, _C.linear
    addmm, fused_linear = _C.addmm, _C.fused_linear


def _set_switches(off: bool, invariant: bool) -> None:
    if _C is not None:
        _C.set_off(off)
        _C.set_invariant(invariant)


on_switch(_set_switches)


def _nothing_to_start() -> None:
    """Until `on_first_use`: what the extension is asked for says itself that it has not started."""


_start: Callable[[], None] = _nothing_to_start


def on_first_use(start: Callable[[], None]) -> None:
    """Have `start` called before the extension is used, from here or by C at its first call."""
    global _start
    _start = start
    if _C is not None:
        _C.on_first_call(start)


def load(
    device: int, entry: KernelEntry, image: memoryview | bytes, dependent: bool = False
) -> Kernel:
    """Load a kernel's cubin on a device and check it against its launch record. With `dependent`
    every `launch` is a programmatic dependent one; of a `reads_ahead` kernel only behind one of
    ours, in a CUDA graph, where no kernel that may still run writes A or B. matmul launches so
    behind kernels of ours alone.

    Raises ValueError for a record this launcher does not know, RuntimeError when the driver or the
    cubin disagrees with it or there is no such device.
    """
    kernel: Kernel = _extension().load(
        device=device, image=bytes(image), pdl=dependent, **launch_record(entry)
    )
    return kernel


def launch(
    kernel: Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    workspace: Workspace | None = None,
    addend: torch.Tensor | None = None,
) -> None:
    """Run this very kernel on the current stream: out[M,N] = a[M,K] @ b[K,N], 2-D, out row-major,
    or [M,N/2] where its epilogue is gated; of a batched kernel all are 3-D, and out is packed. A
    kernel that adds a bias gets it as `addend` [N], packed; one that adds a residual gets what is
    as large as out, packed, in other memory than out; no other gets one.

    A kernel with a workspace gets `workspace`, which the caller keeps while a graph may replay the
    launch, or else memory as for matmul.

    Raises ValueError when the tensors are not what the kernel takes: dtype, device, layout, sizes
    or alignment, and RuntimeError when the launch fails or there is no workspace. Never falls back.
    """
    _extension().launch(kernel, a, b, out, workspace.where if workspace else None, addend)


def device_info(index: int) -> DeviceInfo:
    """What packs are matched against. Raises RuntimeError without a driver or such a device."""
    found = _extension().device_info(index)
    name, major, minor, sm_count, l2_bytes, driver, khz, bits, (domain, bus, device) = found
    # The "a" features are Hopper's own: they exist on compute capability 9.0 and nowhere else.
    arch = "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"
    return DeviceInfo(
        *(name, arch, sm_count, l2_bytes, driver),
        theoretical_mem_bw_gbps=2 * khz * bits / 8e6 or None,  # two words of the bus a clock
        bus_id=f"{domain:08x}:{bus:02x}:{device:02x}.0",
    )


def describe(
    a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None = None, epilogue: str = "none"
) -> Problem | str:
    """The problem that matmul(a, b) looks up, or with an epilogue and what it adds fused_linear, or
    the reason why it goes to torch without asking."""
    if _C is None:
        return "no_extension"
    described = _extension().describe(a, b, addend, epilogue)
    return described if isinstance(described, str) else problem_of(described)


#: What `hgemm_packs.nn.grouped` has decided, by the weights of a grouped product: see there.
grouped_answers: dict[tuple[Any, ...], Any] = {}


def describe_grouped(
    tokens: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> tuple[GroupedProblem, int] | str:
    """The problem that grouped_matmul looks up, and its device, or the reason why it goes to torch
    without asking."""
    if _C is None:
        return "no_extension"
    found = _extension().describe_grouped(tokens, weights, offsets)
    return found if isinstance(found, str) else (GroupedProblem(*found[:6]), found[6])


def launch_grouped(
    kernel: Kernel,
    tokens: torch.Tensor,
    weights: torch.Tensor,
    offsets: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Run this very kernel on the current stream: rows of out[T,N], group after group, are those of
    tokens[T,K] times weights[e] of weights[E,K,N], up to offsets[e]. Rows past the last offset stay
    as they are.

    Raises ValueError when the tensors are not what the kernel takes, RuntimeError when the launch
    fails. Never falls back.
    """
    _extension().launch_grouped(kernel, tokens, weights, offsets, out)


def fall_back_grouped(reason: str) -> None:
    """Count a grouped product that torch runs. Raises FallbackError or InvariantError where torch
    must not."""
    if _C is None:
        torch_state.count()
    else:
        _extension().fall_back_grouped(reason)


def counters() -> dict[str, int]:
    """How many calls of `matmul`, `hgemm_packs.nn.Linear` and `grouped_matmul` this process has
    made, by outcome.

    Returns a dict of ints: `hits` are calls that a kernel ran, `launches` are kernels that were
    launched, `fallbacks` are calls that torch ran, or that raised because torch must not run them.
    `predicted`, where there are any, are those of the hits whose kernel was never measured on the
    problem.
    Each reason that occurred has a count of its own, such as `fallback not_measured`; `explain`
    says what a reason means. Replays of a CUDA graph are not counted. Under `enabled()` torch's own
    products are counted, too, and so that of a call of `matmul` that torch runs for a gradient.
    Raises nothing.

    Example:

        matmul(a, b)
        counters()  # {'hits': 1, 'launches': 1, 'fallbacks': 0}
    """
    if _C is None:
        return {"hits": 0, "launches": 0, "fallbacks": torch_state.calls()}
    counts = _C.counters()
    reasons = {f"fallback {name}": n for name, n in counts["fallbacks"].items() if n}
    fallbacks = sum(reasons.values())
    predicted = {"predicted": counts["predicted"]} if counts["predicted"] else {}
    calls = {"hits": counts["hits"], "launches": counts["launches"], "fallbacks": fallbacks}
    return calls | predicted | reasons


def record_calls(record: Callable[[tuple[Any, ...]], object] | None) -> None:
    """Have `record` called with the description, as `problem_of` takes it, of every call that is
    looked up, in whatever thread; with None nothing is. Raises RuntimeError where there is no
    extension."""
    _extension().record_calls(record)


def reset_table() -> None:
    """Forget every decision, not the loaded kernels. STRICT and OFF of the environment are read
    again."""
    grouped_answers.clear()
    if _C is not None:
        _C.reset_table()
        _C.set_strict(settings().strict)
    read_switch()


def know_rows(device: int, packs: Iterable[tuple[bytes, int, int]]) -> None:
    """Tell C which problems have rows, by the bytes of a manifest and where its rows lie there."""
    for lines, start, end in packs:
        _extension().know_rows(device, lines, start, end)


def know_predictor(device: int, ready: object | None) -> None:
    """Let C decide about problems without a row: by a predictor, or where there is none always for
    torch. Kernels are loaded by Python as before."""
    _extension().know_predictor(device, ready)


def forget_predictors() -> None:
    """Let C ask about every problem that it is to decide, for it knows no longer enough."""
    if _C is not None:
        _C.forget_predictors()


def predictor(found: Predictor, device: DeviceProfile) -> object:
    """A predictor as C evaluates it, on a device of that profile. Like all that asks it, it needs
    the extension, but neither torch nor a driver."""
    models = (found.ours.packed(), found.torch.packed(), found.doubt.packed())
    ready: object = _C.predictor(
        *(device.sm_count, device.mem_bw_gbps, found.margin, found.packed_candidates()), *models
    )
    return ready


def predict(ready: object, problem: Problem) -> tuple[int, float, float, float, int] | None:
    """The candidate with the least predicted time, and logarithms: its time and torch's, both over
    the floor, and the doubt; last, whether the problem is given up by the first trees, whatever the
    rest says. None where no candidate takes the problem."""
    p = problem
    found: tuple[int, float, float, float, int] | None = _C.predict(
        ready, p.m, p.n, p.k, p.layout, p.dtype
    )
    return found


def features(ready: object, index: int, problem: Problem) -> tuple[float, ...] | None:
    """What the trees see of a candidate on a problem, in the order of `pack.features.FEATURES`.
    None where the candidate does not take the problem."""
    p = problem
    found: tuple[float, ...] | None = _C.features(ready, p.m, p.n, p.k, p.layout, p.dtype, index)
    return found


def floor_us(ready: object, problem: Problem) -> float:
    """The time that predicted times are over."""
    p = problem
    found: float = _C.floor_us(ready, p.m, p.n, p.k, p.layout, p.dtype)
    return found


def _extension() -> Any:
    """The started extension. Raises RuntimeError where there is none."""
    if _C is None:
        raise RuntimeError("hgemm_packs._C is not built for this Python")
    _start()
    return _C


def override(find: Callable[[str, str], int]) -> bool | None:
    """Put our functions into torch's dispatcher, once, for the operators that are torch's own:
    `find(operator, dispatch key)` is the key's number then, else 0. True where they are put there
    now, and hgemm_packs_lessons::numbers waits for its call; False where those of sums are not
    among them, for this torch offers no way; None where nothing was to do. Raises RuntimeError
    where there is no way for products either."""
    put: bool | None = _extension().override(find)
    return put


def serve_program(on: bool) -> None:
    """Whether kernels run the operators that `override` has put our functions at."""
    if _C is not None:
        _C.serve_program(on)


def problem_of(described: tuple[Any, ...]) -> Problem:
    """The problem that C describes."""
    m, n, k, layout, dtype, base, packed, epilogue, batches = described
    return Problem(
        *(m, n, k, layout, dtype),
        epilogue=epilogue,
        base=base,
        packed=bool(packed),
        batches=batches,
    )
