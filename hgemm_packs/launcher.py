"""The one door to the C extension: matmul, linear, and what they ask of Python.

C remembers, Python decides: `_C.matmul` calls `_start` at its first call and `_resolve` once per
problem. Generator and timing load and launch single kernels through here. Nothing else in the
package imports `_C`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import api, workspace
from .identity import identity, launch_record
from .problem import DeviceInfo, Problem
from .settings import LOGGER, settings

if TYPE_CHECKING:
    import torch

    from ._C import Kernel
    from .manifest import KernelEntry
    from .pack import Pack
    from .select import Choice
    from .workspace import Workspace

#: DLPack's number for the device type that packs are for.
CUDA = 2
DRIVER = "libcuda.so.1"
#: Refusals that every problem meets on a device, so that one warning is worth it.
#: Why a pack itself was refused has been said by `discover`.
ALWAYS = frozenset({"no_pack", "arch", "driver", "profile"})

# A missing file is the one expected failure: no wheel for this platform, or a free-threaded Python,
# which loads no abi3 extension. Anything else that goes wrong below is an error and stays one.
if find_spec(f"{__package__}._C") is None:
    _C: Any = None
    matmul, linear = api.matmul, api.linear
else:
    from . import _C

    matmul, linear = _C.matmul, _C.linear

_start_lock = threading.Lock()
_load_lock = threading.Lock()
#: By device, identity, and whether launched dependent.
_loaded: dict[tuple[int, str, bool], Kernel] = {}


def load(device: int, entry: KernelEntry, image: memoryview | bytes, pdl: bool = False) -> Kernel:
    """Load a kernel's cubin on a device and check it against its launch record. With `pdl` every
    `launch` is a programmatic dependent one; of a `reads_ahead` kernel only behind one of ours, in
    a CUDA graph, where no kernel that may still run writes A or B. matmul launches so behind
    kernels of ours alone.

    Raises ValueError for a record this launcher does not know, RuntimeError when the driver or the
    cubin disagrees with it or there is no such device.
    """
    kernel: Kernel = _extension().load(
        device=device, image=bytes(image), pdl=pdl, **launch_record(entry)
    )
    return kernel


def launch(
    kernel: Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    workspace: Workspace | None = None,
) -> None:
    """Run this very kernel on the current stream: out[M,N] = a[M,K] @ b[K,N], 2-D, out row-major.

    A kernel with a workspace gets `workspace`, which the caller keeps while a graph may replay the
    launch, or else memory as for matmul.

    Raises ValueError when the tensors are not what the kernel takes: dtype, device, layout, sizes
    or alignment, and RuntimeError when the launch fails or there is no workspace. Never falls back.
    """
    _extension().launch(kernel, a, b, out, workspace.where if workspace else None)


def device_info(index: int) -> DeviceInfo:
    """What packs are matched against. Raises RuntimeError without a driver or such a device."""
    name, major, minor, sm_count, l2_bytes, driver = _extension().device_info(index)
    # The "a" features are Hopper's own: they exist on compute capability 9.0 and nowhere else.
    arch = "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"
    return DeviceInfo(name, arch, sm_count, l2_bytes, driver)


def describe(a: torch.Tensor, b: torch.Tensor) -> Problem | str:
    """The problem that matmul(a, b) looks up, or the reason why it goes to torch without asking."""
    if _C is None:
        return "no_extension"
    described = _extension().describe(a, b)
    return described if isinstance(described, str) else _problem(described)


def counters() -> dict[str, int]:
    """Calls since the process started: hits, kernel launches, fallbacks in all and by reason."""
    if _C is None:
        return {"hits": 0, "launches": 0, "fallbacks": api.calls()}
    counts = _C.counters()
    reasons = {f"fallback {name}": n for name, n in counts["fallbacks"].items() if n}
    fallbacks = sum(reasons.values())
    return {
        "hits": counts["hits"],
        "launches": counts["launches"],
        "fallbacks": fallbacks,
    } | reasons


def reset_table() -> None:
    """Forget every decision, not the loaded kernels; the environment's STRICT is read again."""
    if _C is not None:
        _C.reset_table()
        _C.set_strict(settings().strict)


def _extension() -> Any:
    """The started extension. Raises RuntimeError where there is none."""
    if _C is None:
        raise RuntimeError("hgemm_packs._C is not built for this Python")
    _start()
    return _C


_started = False


def _start(driver: str = DRIVER, device_type: int = CUDA) -> None:
    """Hand torch's entry points to C, once. Tests name another driver and CPU tensors."""
    global _started
    if _started:
        return
    with _start_lock:
        if _started:
            return
        here = settings()  # first of all: HGEMM_PACKS_LOG is for what is said below
        entry_points = api.torch_entry_points(device_type)
        if isinstance(entry_points, str):
            LOGGER.warning("every matmul goes to torch: %s", entry_points)
            _C.use_torch(api.torch_matmul(), api.torch_linear(), api.refuse, here.strict)
        else:
            read = _C.init(
                driver=driver,
                device_type=device_type,
                keep=functools.partial(workspace.keep, _C.relaxed, device_type),
                resolve=functools.partial(_resolve, "cuda" if device_type == CUDA else "cpu"),
                refuse=api.refuse,
                strict=here.strict,  # of the first call already, in every thread
                **entry_points,
            )
            if not read:
                LOGGER.warning("every matmul goes to torch: its tensors are not to be read from C")
            api.quiet_threads(_C.remember_quiet)
            _say_without_driver(driver)
        _started = True


def _problem(described: tuple[int, int, int, str, str, int, int]) -> Problem:
    m, n, k, layout, dtype, align, packed = described
    return Problem(m, n, k, layout, dtype, align=align, packed=bool(packed))


def _resolve(
    kind: str, described: tuple[int, int, int, str, str, int, int], device: int, capturing: int
) -> tuple[Kernel, Kernel | None] | str:
    """C's question about a problem it has not seen: its kernel and, where there is one, that for
    dependent launches, both loaded, or why torch runs it.

    While the caller's stream is being captured nothing may be loaded; "cold_capture" says that the
    answer would have been a kernel, and C asks again next time.
    """
    from . import select

    problem = _problem(described)
    prove = functools.partial(_prove, kind, problem)
    try:
        choice = select.resolve(problem, device)
        while choice.kernel is not None and choice.pack is not None:
            both = ((choice.kernel, False), (choice.dependent, True))
            keys = [(device, identity(entry), pdl) for entry, pdl in both if entry is not None]
            if capturing and any(key not in _loaded for key in keys):
                return "cold_capture"
            own, dependent = _load_chosen(choice.pack, choice.kernel, False, device, prove), None
            if own is not None and choice.dependent is not None:
                dependent = _load_chosen(choice.pack, choice.dependent, True, device, prove)
            if own is not None and (dependent is None) == (choice.dependent is None):
                return own, dependent
            choice = select.resolve(problem, device)  # without what was just quarantined
    except RuntimeError as error:
        _say_once(str(error))
        return "no_device"
    except OSError as error:  # files, of a network perhaps; torch can still multiply
        if error.errno is None:  # of no file: a TimeoutError that a signal handler raised
            raise
        _say_once(f"packs cannot be read: {error}")
        return "pack_refused"
    if choice.code in ALWAYS:
        _say_once("; ".join(each.text for each in choice.reasons if each.code == choice.code))
    _log(problem, choice)
    return choice.code


def _load_chosen(
    pack: Pack,
    entry: KernelEntry,
    pdl: bool,
    device: int,
    prove: Callable[[Kernel, KernelEntry], object],
) -> Kernel | None:
    """Load what select chose, once for each way of launching it, and `prove` it where the user
    wants that. A kernel that fails is never chosen again, and costs one warning, nor is any of a
    pack whose cubin is not what it says; where it only fails to load for dependent launches, it is
    still chosen for others."""
    from . import cache_folders, select
    from .errors import PackError
    from .selftest import SelfTestError

    key = device, identity(entry), pdl
    with _load_lock:
        kernel = _loaded.get(key)
        if kernel is not None:
            return kernel
        try:
            kernel = load(device, entry, pack.image(entry), pdl)
            if settings().selftest:
                prove(kernel, entry)
        except PackError as error:
            select.refuse(pack, error)
            return None
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise
            way = " behind our own kernels" if pdl else ""
            LOGGER.warning("kernel %s is not used%s: %s", entry.name, way, error)
            wholly = not pdl or isinstance(error, SelfTestError)
            (select.quarantine if wholly else select.quarantine_dependent)(entry, str(error))
            return None
        _loaded[key] = kernel
        cache_folders.touch(pack.path)  # last use, for `gc`; nothing outside the cache
        return kernel


def _say_without_driver(driver: str) -> None:
    """Without a driver there are no CUDA tensors, so that C never gets as far as to miss it. Only
    the file is opened: a started driver would not survive a fork."""
    import ctypes

    try:
        ctypes.CDLL(driver)
    except OSError:
        _say_once(f"{driver} cannot be opened")


_say_lock = threading.Lock()
_said: set[str] = set()


def _say_once(why: str) -> None:
    """One warning, however many problems and threads meet the same."""
    with _say_lock:
        new = why not in _said
        _said.add(why)
    if new:
        LOGGER.warning("every matmul goes to torch: %s", why)


def _prove(kind: str, problem: Problem, kernel: Kernel, entry: KernelEntry) -> None:
    """The self-test, where the caller's state of torch does not reach. Raises RuntimeError."""
    from . import neutral, selftest

    proof = functools.partial(selftest.prove, kernel, entry, problem)
    neutral.call_on(kind, kernel.device, _C.relaxed, proof)


def _log(problem: Problem, choice: Choice) -> None:
    LOGGER.debug("%s: %s", problem, "; ".join(str(reason) for reason in choice.reasons))
