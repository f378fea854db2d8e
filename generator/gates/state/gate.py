"""The state gate on a device: the same product again and again, whatever else happens and wherever
it lies.

`check` runs after the numeric gate, on finalists. What decides is here and in the modules beside it
and runs on any device, so that its tests need no GPU; what needs a driver comes as `around` and
`memory`. Faults of memory come last, for they cost the device's context.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.gates.checker import Checker, Launch
from hgemm_packs.generator.gates.sizes import Shape
from hgemm_packs.generator.gates.state import launches, places, products, remains, scenes
from hgemm_packs.generator.gates.state.launches import Quiet, Surroundings, Tally
from hgemm_packs.generator.gates.state.mapped import Mappings
from hgemm_packs.generator.gates.state.neighbours import Neighbours
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import KernelEntry

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel


GATE: Final = "state"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a kernel that passed was put through."""

    launches_in_a_row: int
    places: bool  # whether operands were laid out at other addresses and at the ends of mappings


def check(
    entry: KernelEntry,
    launch: Launch,
    device: torch.device,
    seed: int,
    max_ctas: int | None = None,
    around: Surroundings | None = None,
    memory: places.Mapped | None = None,
    in_a_row: int = launches.IN_A_ROW,
    planned: Sequence[Shape] = (),
) -> Kept:
    """All checks of one kernel on `device`. Raises NumericError for the first failure, with the
    name of its check.

    `launch` and `max_ctas` are as for the numeric gate of the kernel's kind. Without `around` the
    device does nothing else; without `memory` no operand meets the end of a mapping. Kernels of
    groups and batches keep their addresses. `planned` are problems that the size gate asks for.
    """
    make = scenes.maker(entry, launch, device, seed, max_ctas)
    around = around or Quiet()
    tally = Tally(device)
    short, whole = make(*scenes.small(entry)), make(*scenes.middle(entry))
    for scene in (short, whole):
        scene.begin("first")
    # In a row before anything is filled: a counter in shared memory would begin anew.
    launches.in_a_row(short, tally, in_a_row)
    tally.settle()
    launches.in_turn(whole, around, tally)
    products.check_left(whole, entry, tally)
    launches.while_busy((short, whole), around, tally)
    tally.settle()
    for scene in (short, whole):
        scene.judge("last")
        scene.checker.settle()
    products.check_changed(whole)
    plain = not entry.is_grouped and not entry.is_batched
    if plain:
        run = Checker(entry, launch, device, seed, max_ctas)
        remains.check(run, around, tally, planned)
        tally.settle()
        places.check_bases(run)
        if memory is not None:
            places.check_edges(run, memory)
    return Kept(in_a_row, plain)


def check_kernel(
    entry: KernelEntry, kernel: Kernel, index: int, seed: int, planned: Sequence[Shape] = ()
) -> Kept:
    """The same of a loaded kernel on CUDA device `index`, with all that the driver can do. A fault
    of memory loses the context of this process."""
    device = torch.device("cuda", index)
    launch: Callable[..., None] = KernelArm(kernel, entry.epilogue)
    if entry.is_grouped:
        launch = functools.partial(launcher.launch_grouped, kernel)
    around = Neighbours(index, launcher.device_info(index).sm_count, seed)
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(Mappings(index))
        return check(entry, launch, device, seed, kernel.max_ctas, around, memory, planned=planned)
