"""The state gate on stand-ins: kernels that keep nothing pass, every keeper is caught where it
shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.gates.checker import NumericError
from hgemm_packs.generator.gates.state import gate, launches, remains
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import GridRule, KernelEntry
from hgemm_packs.workspace import Workspace
from tests import fake_driver
from tests.generator.gates import test_batched_gate, test_grouped_gate
from tests.generator.gates.state import keepers
from tests.generator.gates.state.keepers import Device, Keeper
from tests.generator.gates.test_numeric_epilogue import entry_of
from tests.generator.gates.test_numeric_epilogue import honest as epilogues
from tests.generator.redteam.cheats import Cheat, Tensor, honest, made_up, split_k, zero

CPU = torch.device("cpu")

FEW = 64  # launches in a row


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Products are small, and threads of a busy machine wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def put_through(
    keeper: Keeper,
    entry: KernelEntry | None = None,
    seed: int = 1,
    in_a_row: int = FEW,
    planned: Sequence[Sequence[int]] = (),
) -> tuple[gate.Kept, Device]:
    device = Device()
    entry = entry or made_up()
    launch = keeper(device)
    kept = gate.check(
        entry, launch, CPU, seed, None, device, device, in_a_row=in_a_row, planned=planned
    )
    return kept, device


def always(kernel: Cheat) -> Keeper:
    return lambda device: kernel


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("kernel", [honest, split_k])
def test_kernels_that_keep_nothing_pass(kernel: Cheat, layout: str) -> None:
    kept, device = put_through(always(kernel), made_up(layout, "bf16" if layout == "tn" else "f16"))
    assert kept == gate.Kept(FEW, True)
    assert set(device.fills) == set(launches.PATTERNS) | set(remains.LEFT)
    assert device.others == 2 * launches.TURNS
    turns, sizes = device.fills[: 2 * launches.TURNS], device.fills[2 * launches.TURNS :]
    assert set(turns) == set(launches.PATTERNS)
    assert sizes == len(sizes) // len(remains.LEFT) * list(remains.LEFT)
    assert not device.at_work


def test_planned_sizes_are_launched_over_what_was_left() -> None:
    """A size of which one problem alone leaves the end of a step as it was."""
    keeper = keepers.end_of_a_step_from_shared(5008, 1 << 20)
    put_through(keeper)
    with pytest.raises(NumericError, match="over what was left in shared memory, 9x16x5008"):
        put_through(keeper, planned=[(9, 16, 5008)])


@pytest.mark.parametrize("align", [2, 4, 8])
def test_kernels_of_operands_at_any_address_pass(align: int) -> None:
    entry = made_up("nt", align={"a": align, "b": align, "c": align})
    assert put_through(always(honest), entry)[0].places


IN_A_ROW, TURN = f"{FEW} launches in a row", "in turn with other kernels"
BUSY, HELD, AFTER = "on a busy device", "C held", "after "
KEEPERS: dict[str, tuple[Keeper, str | tuple[str, ...]]] = {
    "counts in shared memory": (keepers.bomb(FEW - 1), IN_A_ROW),
    "counts where nobody can clear": (keepers.counts_unseen(FEW), IN_A_ROW),
    "counts on": (keepers.counts_unseen(FEW + 80), TURN),
    "adds to what shared memory holds": (keepers.sums_from_shared, TURN),
    "takes the end of a step from shared memory at one remainder": (
        keepers.end_of_a_step_from_shared(24),
        "over what was left in shared memory",
    ),
    "waits for a flag in shared memory": (keepers.waits_for_a_flag_in_shared, TURN),
    "a barrier too few": (keepers.slow_neighbours, BUSY),
    "looks at a quarter of C": (keepers.stale_by(keepers.quarter), HELD),
    "looks at a corner of C": (keepers.stale_by(keepers.corner), HELD),
    "looks at a diagonal of C": (keepers.stale_by(keepers.diagonal), HELD),
    "looks at C without its last bit": (keepers.stale_by(keepers.all_but_a_bit), HELD),
    "remembers by addresses": (keepers.remembers_by(keepers.addresses), AFTER),
    "remembers by sums": (keepers.remembers_by(keepers.sums), AFTER),
    "remembers by first rows": (keepers.remembers_by(keepers.first_rows), AFTER),
    "remembers by every fourth": (keepers.remembers_by(keepers.every_fourth), AFTER),
    "remembers by sums of columns": (keepers.remembers_by(keepers.column_sums), AFTER),
    "base of A rounded down": (keepers.base_rounded_down(0, 128), "A at a multiple of 16 bytes"),
    "base of B rounded down": (keepers.base_rounded_down(1, 32), "B at a multiple of 16 bytes"),
    # By luck the first C of a scene is where rounding leaves it, and the next is not.
    "base of C rounded down": (
        keepers.base_rounded_down(2, 128),
        ("first", "before other", "C at", "over what was left"),
    ),
    "base rounded to lines": (keepers.base_rounded_down(0, 256), "A at a multiple of"),
    "stores before C": (keepers.writes_before_c_rounded, "C at a multiple of 16 bytes"),
    "leading stride rounded": (always(keepers.lead_rounded_up), "A at a multiple of 16 bytes"),
    "reads behind A": (keepers.reaches(0, behind=1), "A at the end of a mapping"),
    "reads far behind B": (keepers.reaches(1, behind=512), "B at the end of a mapping"),
    "writes behind C": (keepers.reaches(2, behind=1), "C at the end of a mapping"),
    "reads before A": (keepers.reaches(0, before=1), "A at the start of a mapping"),
    "reads before B": (keepers.reaches(1, before=64), "B at the start of a mapping"),
    "writes before C": (keepers.reaches(2, before=2), "C at the start of a mapping"),
    "is wrong at once": (always(zero), "first"),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("keeper", "words"), KEEPERS.values(), ids=KEEPERS)
def test_a_keeper_is_caught_by_the_check_it_meets(
    keeper: Keeper, words: str | tuple[str, ...], seed: int
) -> None:
    with pytest.raises(NumericError) as caught:
        put_through(keeper, seed=seed)
    assert str(caught.value).startswith(words)


def test_a_fault_names_operand_side_and_problem() -> None:
    with pytest.raises(NumericError) as caught:
        put_through(keepers.reaches(1, behind=1))
    assert str(caught.value) == (
        "B at the end of a mapping, 21x24x344: CUDA error: an illegal memory access was encountered"
    )


def test_as_many_launches_in_a_row_as_a_counter_of_16384_needs() -> None:
    def make(device: Device) -> Callable[..., None]:
        return keepers.bomb(16384)(device)

    with pytest.raises(NumericError, match="16640 launches in a row"):
        put_through(make, in_a_row=launches.IN_A_ROW)


@pytest.mark.parametrize("epilogue", ["bias_gelu", "residual", "gated_silu"])
def test_kernels_with_an_epilogue_pass_and_their_addend_meets_the_ends(epilogue: str) -> None:
    entry = entry_of(epilogue)
    assert put_through(lambda device: epilogues(epilogue), entry)[0].places
    if epilogue == "gated_silu":
        return

    def reaching(device: Device) -> Callable[..., None]:
        def launch(a: Tensor, b: Tensor, c: Tensor, more: Tensor) -> None:
            device.touch(more, 0, 1)
            epilogues(epilogue)(a, b, c, more)

        return launch

    with pytest.raises(NumericError, match=r"^the addend at the end of a mapping"):
        put_through(reaching, entry)


def _once_wrong_in_c(right: Callable[..., None]) -> Keeper:
    """Keeps a C that holds what it would make of the first row."""

    def make(device: Device) -> Callable[..., None]:
        def launch(*arguments: Tensor) -> None:
            c = arguments[-1]
            before = c.clone()
            right(*arguments)
            if torch.equal(c.flatten()[:8], before.flatten()[:8]):
                c.copy_(before)

        return launch

    return make


@pytest.mark.parametrize(
    ("entry", "right"),
    [(test_grouped_gate.entry(), test_grouped_gate.right)]
    + [(test_batched_gate.entry(layout), test_batched_gate.right) for layout in ("nt", "tn")],
    ids=["groups", "batches", "batches of tn"],
)
def test_groups_and_batches(entry: KernelEntry, right: Callable[..., None]) -> None:
    kept, device = put_through(lambda device: right, entry)
    assert kept == gate.Kept(FEW, False)
    assert len(device.fills) == 2 * launches.TURNS
    with pytest.raises(NumericError, match=f"^{HELD} "):
        put_through(_once_wrong_in_c(right), entry)
    with pytest.raises(NumericError, match=f"^{TURN}: "):
        put_through(lambda device: _adds(device, right), entry)


def _adds(device: Device, right: Callable[..., None]) -> Callable[..., None]:
    """Adds what shared memory holds to an element of C."""

    def launch(*arguments: Tensor) -> None:
        right(*arguments)
        arguments[-1].view(-1)[3] += keepers.float_of(device.shared)
        device.shared = 0

    return launch


def test_a_workspace_meets_both_ends(
    monkeypatch: pytest.MonkeyPatch, clean_process: None, driver_library: Path
) -> None:
    """On the stand-in driver: its kernel adds through words that no arm has given it."""
    fake = fake_driver.start(monkeypatch, driver_library)
    cubin = fake_driver.image("kernel", "tma2_ws_v2", "nt")
    entry = fake_driver.entry(
        "tma2_ws_v2", "nt", cubin=cubin, grid=GridRule(16, 16, False, fake_driver.SLICES)
    )
    kernel = launcher.load(0, entry, cubin)
    sides: list[str] = []

    class Pages(Device):
        def workspace(  # type: ignore[override]
            self, arm: KernelArm, sizes: tuple[int, int], side: str
        ) -> Callable[..., None]:
            words = torch.full((1 << 16,), -1, dtype=torch.int32)
            size = arm.kernel.workspace(*sizes) // 4
            own = words[:size] if side == "start" else words[-size:]

            def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
                launcher.launch(kernel, a, b, c, Workspace(own))
                assert int(fake.control.parts) == own.data_ptr()
                sides.append(side)

            return launch

    device = Pages()
    gate.check(entry, KernelArm(kernel), CPU, 3, 264, device, device, FEW)
    assert sides == ["start", "end"] * 2
