"""What C asks of Python: how to start, which kernel runs a problem that it has not seen, and the
error that STRICT raises in place of a fallback.

`hgemm_packs` gives `start` to the launcher; from then on C calls what it is handed there, on a miss
and never on a hit. Kernels are loaded here, and proven where the user wants that.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import launcher, neutral, reasons, torch_state, workspace
from .pack.identity import identity
from .settings import LOGGER, is_invariant, is_off, read_switch, settings

if TYPE_CHECKING:
    from ._C import Kernel
    from .pack.folder import Pack
    from .pack.manifest import KernelEntry
    from .problem import Problem
    from .select import Selection

#: DLPack's number for the device type that packs are for.
CUDA = 2
DRIVER = "libcuda.so.1"
#: Refusals that every problem meets on a device, so that one warning is worth it.
#: Why a pack itself was refused has been said by `discover`.
ALWAYS = frozenset({"no_pack", "arch", "driver", "profile"})

_start_lock = threading.Lock()
_load_lock = threading.Lock()
#: By device, identity, and whether launched dependent.
_loaded: dict[tuple[int, str, bool], Kernel] = {}

_started = False
#: torch's name of the device type that kernels are for.
kind = "cuda"


def start(driver: str = DRIVER, device_type: int = CUDA) -> None:
    """Hand torch's entry points to C, once. Tests name another driver and CPU tensors."""
    global _started, kind
    if _started:
        return
    with _start_lock:
        if _started:
            return
        kind = "cuda" if device_type == CUDA else "cpu"
        extension = launcher._C
        here = settings()  # first of all: HGEMM_PACKS_LOG is for what is said below
        read_switch()
        if LOGGER.isEnabledFor(logging.DEBUG):
            extension.on_fallback(_note)
        entry_points = torch_state.torch_entry_points(device_type)
        if isinstance(entry_points, str):
            LOGGER.warning("every matmul goes to torch: %s", entry_points)
            extension.use_torch(
                torch_state.torch_matmul(),
                torch_state.torch_linear(),
                torch_state.torch_addmm(),
                refuse,
                here.strict,
            )
        else:
            from .autograd import record  # not before: it imports torch

            read = extension.init(
                driver=driver,
                device_type=device_type,
                keep=functools.partial(workspace.keep, extension.relaxed, device_type),
                resolve=functools.partial(_resolve, kind),
                refuse=refuse,
                record=record,
                strict=here.strict,  # of the first call already, in every thread
                **entry_points,
            )
            if not read:
                LOGGER.warning("every matmul goes to torch: its tensors are not to be read from C")
            torch_state.quiet_threads(extension.remember_quiet)
            _say_without_driver(driver)
        _started = True


def _resolve(
    kind: str,
    described: tuple[Any, ...],
    device: int,
    capturing: int,
    invariant: int = 0,
    unmeasured: int = 0,
) -> tuple[Kernel, Kernel | None, bool] | str:
    """C's question about a problem it has not seen: its kernel and, where there is one, that for
    dependent launches, both loaded, and whether they are predicted, or why torch runs it. Of an
    `unmeasured` problem C knows that no pack has a row.

    While the caller's stream is being captured nothing may be loaded; "cold_capture" says that the
    answer would have been a kernel, and C asks again next time. torch runs such a call, perhaps as
    its first product, because all before were ours.
    """
    answer = _choose(kind, described, device, capturing, bool(invariant), bool(unmeasured))
    if capturing and kind == "cuda" and isinstance(answer, str):
        torch_state.make_blas_handle(launcher._C.relaxed, device)
    return answer


def _choose(
    kind: str,
    described: tuple[Any, ...],
    device: int,
    capturing: int,
    invariant: bool,
    unmeasured: bool,
) -> tuple[Kernel, Kernel | None, bool] | str:
    from . import select

    problem = launcher.problem_of(described)
    prove = functools.partial(_prove, kind, problem)
    try:
        choice = select.resolve(problem, device, invariant=invariant, unmeasured=unmeasured)
        if choice.row is None and not unmeasured and not invariant:
            _tell_rows(choice, device)
        while choice.kernel is not None and choice.pack is not None:
            both = ((choice.kernel, False), (choice.dependent, True))
            keys = [
                (device, identity(entry), dependent)
                for entry, dependent in both
                if entry is not None
            ]
            if capturing and any(key not in _loaded for key in keys):
                return "cold_capture"
            own, dependent = load_chosen(choice.pack, choice.kernel, False, device, prove), None
            if own is not None and choice.dependent is not None:
                dependent = load_chosen(choice.pack, choice.dependent, True, device, prove)
            if own is not None and (dependent is None) == (choice.dependent is None):
                return own, dependent, choice.expected is not None
            # Without what was just quarantined.
            choice = select.resolve(problem, device, invariant=invariant)
    except RuntimeError as error:
        if not invariant:  # where the caller is told by an exception
            _say_once(str(error))
        return "no_device"
    except OSError as error:  # files, of a network perhaps; torch can still multiply
        if error.errno is None:  # of no file: a TimeoutError that a signal handler raised
            raise
        if not invariant:
            _say_once(f"packs cannot be read: {error}")
        return "pack_refused"
    if choice.code in ALWAYS and not invariant:
        _say_once("; ".join(each.text for each in choice.reasons if each.code == choice.code))
    _log(problem, choice)
    return choice.code


def _tell_rows(choice: Selection, device: int) -> None:
    """Let C know the rows of this device's packs, from its first problem without one on, and what
    to decide others by: it need not ask about these. An unaligned or strided problem is called that
    whatever packs there are; C would say so of aligned ones, too, that no pack was measured here.
    """
    from . import profiles, select

    packs = select.find_packs().packs
    if choice.code in ("strided", "unaligned"):
        here = launcher.device_info(device)
        told = any(True for _ in profiles.find_measured(packs, here))
    else:
        told = choice.code in ("not_measured", "predicted")
    if told:
        launcher.know_rows(device, [pack.manifest.row_lines for pack in packs])
        if not LOGGER.isEnabledFor(logging.DEBUG):  # which has the reasons of every decision
            select.tell_predictor(device)


def load_chosen(
    pack: Pack,
    entry: KernelEntry,
    dependent: bool,
    device: int,
    prove: Callable[[Kernel, KernelEntry], object],
) -> Kernel | None:
    """Load what select chose, once for each way of launching it, and `prove` it where the user
    wants that. A kernel that fails is never chosen again, and costs one warning, nor is any of a
    pack whose cubin is not what it says; where it only fails to load for dependent launches, it is
    still chosen for others."""
    from . import select
    from .errors import PackError
    from .pack import cache_folders
    from .selftest import SelfTestError

    key = device, identity(entry), dependent
    with _load_lock:
        kernel = _loaded.get(key)
        if kernel is not None:
            return kernel
        try:
            kernel = launcher.load(device, entry, pack.image(entry), dependent)
            if settings().selftest:
                prove(kernel, entry)
        except PackError as error:
            select.refuse(pack, error)
            return None
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise
            way = " behind our own kernels" if dependent else ""
            LOGGER.warning("kernel %s is not used%s: %s", entry.name, way, error)
            wholly = not dependent or isinstance(error, SelfTestError)
            (select.quarantine if wholly else select.quarantine_dependent)(entry, str(error))
            return None
        _loaded[key] = kernel
        cache_folders.touch(pack.path)  # last use, for `gc`; nothing outside the cache
        return kernel


def _say_without_driver(driver: str) -> None:
    """Without a driver there are no CUDA tensors, so that C never gets as far as to miss it. Only
    the file is opened: a started driver would not survive a fork."""
    import ctypes

    if is_off():
        return
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
    from . import selftest

    proof = functools.partial(selftest.prove, kernel, entry, problem)
    neutral.call_on(kind, kernel.device, launcher._C.relaxed, proof)


def _log(problem: Problem, choice: Selection) -> None:
    if LOGGER.isEnabledFor(logging.DEBUG):
        LOGGER.debug("%s: %s", problem, "; ".join(str(reason) for reason in choice.reasons))


def _note(reason: str) -> None:
    """Log the first fallback for each reason that C decides; `_log` has the others."""
    if reason in reasons.WORDS:
        LOGGER.debug("torch runs a call: %s: %s (said once)", reason, reasons.WORDS[reason])


def refuse(reason: str, described: tuple[Any, ...] | None, device: int) -> None:
    """Instead of a fallback. Always raises: InvariantError in the batch-invariant mode, else, under
    HGEMM_PACKS_STRICT=1, FallbackError."""
    from . import select
    from .errors import FallbackError, InvariantError

    invariant = is_invariant()
    error = InvariantError if invariant else FallbackError
    say = reasons.invariant_refusal if invariant else reasons.refusal
    if described is None:
        raise error(say(reason))

    problem = launcher.problem_of(described)
    try:
        choice = select.resolve(problem, device, invariant=invariant)
        steps = "; ".join(str(step) for step in choice.reasons)
    except (RuntimeError, OSError) as failure:  # of a driver, device or file that cannot be used
        steps = str(failure)
    raise error(say(reason, f"{problem} on device {device}", f" ({steps})"))
