"""Reading ahead: only where no kernel that may still run writes the operands."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from tests import reference
from tests.cpu.call.captured import EARLY, MEMSET, follow, launched, loaded, served, zeros
from tests.fake_driver import Started


def placed(
    memory: torch.Tensor, start: int, rows: int, cols: int, letter: str = "n", lead: int = 64
) -> tuple[torch.Tensor, int]:
    """A matrix that begins at an element of `memory`, and the element after its last."""
    outer, inner = (rows, cols) if letter == "n" else (cols, rows)
    stored = memory.as_strided((outer, inner), (lead, 1), start)
    return stored if letter == "n" else stored.t(), start + (outer - 1) * lead + inner


@pytest.mark.parametrize("before", ["ptr_v1", "tma2_v1", "tma2_ws_v2", "tma3_v1"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_reading_ahead_stays_clear_of_what_is_written_to_the_element(
    bare: Started, layout: str, before: str
) -> None:
    """C of the kernel before is 8 rows of 16 in steps of 32, packed where it is a tensor map, which
    begins at multiples of 16 bytes: from its first element to its last."""
    step, lead = (8, 16) if before == "tma3_v1" else (1, 32)
    first = loaded(0, False, before, align=(16, 16, 16 if step > 1 else 2))
    kernel = loaded(0, True, layout=layout, reads_ahead=True)
    memory = torch.randint(0, 2, (16384,), generator=torch.Generator().manual_seed(1)).half()
    (a, a_end), (b, b_end) = (
        placed(memory, start, *sizes, letter)
        for start, sizes, letter in ((4096, (24, 16), layout[0]), (8192, (16, 40), layout[1]))
    )
    written = 7 * lead + 16
    for start, end in ((4096, a_end), (8192, b_end)):
        inside, behind = (end - 1) // step * step, -(-end // step) * step
        before_it, into_it = start - written, start - written + step
        for c, pdl in ((before_it, 1), (into_it, 0), (inside, 0), (behind, 1)):
            bare.capture(7)
            launcher.launch(
                first, zeros(8, 16), zeros(16, 16), placed(memory, c, 8, 16, lead=lead)[0]
            )
            out = torch.full((24, 40), torch.nan, dtype=torch.float16)
            launcher.launch(kernel, a, b, out)
            assert bare.control.pdl == pdl, (start, c)
            reference.assert_exact(out, a, b)


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_matmul_reading_ahead_of_its_own_operands(fake: Started, reads_ahead: bool) -> None:
    served(fake, reads_ahead=reads_ahead, triggers_early=reads_ahead)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    eye = torch.eye(64, dtype=torch.float16)
    kept = []  # what is freed may come back as an operand

    def called(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, int]:
        kept.append(fake.matmul(a, b))
        reference.assert_exact(kept[-1], a, b)
        return kept[-1], int(fake.control.pdl)

    assert called(a, b)[1] == 0  # loads, eagerly
    fake.capture(7)
    found = []
    for left, right in ((a, b), (a, b), (-1, eye), (eye, -1), (a, b), (0, eye), (4, eye), (3, eye)):
        operands = (kept[x] if isinstance(x, int) else x for x in (left, right))
        found.append(called(*operands)[1])
    assert found == ([0, 1, 0, 0, 1, 1, 0, 1] if reads_ahead else [0, 1, 1, 1, 1, 1, 1, 1])
    assert not any(fake.fallbacks().values())
    fake.capture(0)
    assert called(a, b)[1] == 0


def test_reading_ahead_where_nothing_says_what_is_written(fake: Started) -> None:
    """A tensor map of a C with gaps between its rows, and parameters that the node has not as an
    array."""
    launched(served(fake, reads_ahead=True))
    mapped, seen = loaded(0, False, "tma3_v1"), loaded(0, False)
    wide = zeros(64, 64)
    for kernel, out, pdl in (
        (mapped, wide[:, :32], 0),
        (mapped, zeros(64, 32), 1),
        (seen, wide[:, :32], 1),
    ):
        fake.capture(7)
        launcher.launch(kernel, zeros(64, 64), zeros(64, 32), out)
        assert launched(fake) == pdl
    loaded(0, False)
    follow(fake, fake.control.loaded)
    assert launched(fake) == 0


@pytest.mark.parametrize("device", [-1, 0, 1])
def test_this_very_kernel_reading_ahead(bare: Started, device: int) -> None:
    """launcher.launch follows the same rule, whatever context is current."""
    kernel = loaded(0, True, reads_ahead=True)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    outs = [zeros(64, 64) for _ in range(3)]
    bare.set_device(device)

    def called(a: torch.Tensor, out: torch.Tensor) -> int:
        launcher.launch(kernel, a, b, out)
        return int(bare.control.pdl)

    assert [called(a, out) for out in outs] == [0, 0, 0]
    bare.capture(7)
    assert [called(a, out) for out in outs] == [0, 1, 1]
    assert [called(outs[2], outs[0]), called(a, outs[1])] == [0, 1]
    for nodes in ([MEMSET], [None], [bare.control.nodes[0]] * 2):
        follow(bare, *nodes)
        assert [called(a, outs[0]), called(a, outs[1])] == [0, 1]
    assert bare.current_device() == device


class Line:
    """Products under one capture, one after the other and each into memory of its own."""

    def __init__(self, bare: Started, size: int = 16) -> None:
        self.fake = bare
        self.ahead = loaded(0, True, **EARLY)
        self.a, _ = reference.cancelling(size, size, 64, "nn", torch.float16)
        self.a, self.eye = self.a[:, :size].contiguous(), torch.eye(size, dtype=torch.float16)
        self.outs: list[torch.Tensor] = []
        self.nodes: list[int] = []
        bare.capture(7)

    def call(self, written: int | None = None, side: int = 0, kernel: Any = None) -> int:
        """One more, which reads as A or B what an earlier one wrote; whether it is dependent."""
        operands = [self.a, self.eye]
        if written is not None:
            operands = [self.outs[written], self.eye][:: -1 if side else 1]
        out = torch.full_like(self.a, torch.nan)
        launcher.launch(kernel or self.ahead, *operands, out)
        reference.assert_exact(out, *operands)
        self.outs.append(out)
        self.nodes.append(self.fake.control.nodes[0])
        return int(self.fake.control.pdl)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("written", range(4))
def test_reading_ahead_stays_clear_of_all_that_may_still_run(
    bare: Started, written: int, side: int
) -> None:
    """Kernels that trigger early let others start at once: four of them may all be running. The
    plain launch begins when they have ended: behind it their C may be read, and its own not."""
    line = Line(bare)
    assert [line.call() for _ in range(4)] == [0, 1, 1, 1]
    assert [line.call(written, side), line.call(written, side)] == [0, 1]
    assert [line.call(4, side), line.call(4, side)] == [0, 1]


def test_reading_ahead_behind_what_was_loaded_for_plain_launches(bare: Started) -> None:
    line = Line(bare)
    plain = loaded(0, False, **EARLY)
    assert [line.call(), line.call(), line.call(kernel=plain)] == [0, 1, 0]
    assert [line.call(0), line.call(1), line.call(2)] == [1, 1, 0]


def test_reading_ahead_behind_one_of_ours_that_waits(bare: Started) -> None:
    """It lets others start when all before it has ended."""
    line = Line(bare)
    waits = loaded(0, True)
    assert [line.call(), line.call(), line.call(1, kernel=waits)] == [0, 1, 1]
    assert [line.call(0), line.call(1), line.call(2)] == [1, 1, 0]


def test_reading_ahead_behind_one_that_does_not_trigger_early(bare: Started) -> None:
    """It lets others start when the grid ahead has ended; but may itself start before."""
    line = Line(bare)
    late = loaded(0, True, reads_ahead=True)
    assert [line.call(), line.call(), line.call(kernel=late)] == [0, 1, 1]
    assert [line.call(0), line.call(1), line.call(2)] == [1, 1, 0]
    assert [line.call(), line.call(5, kernel=late)] == [1, 0]


def test_reading_ahead_behind_a_node_of_two_dependencies_or_none(bare: Started) -> None:
    line = Line(bare)
    assert [line.call(), line.call()] == [0, 1]
    for nodes in (line.nodes, []):
        follow(bare, *nodes)
        assert [line.call(), line.call(0), line.call(1)] == [0, 1, 1]
    for nodes in ([MEMSET, MEMSET], []):  # though launched dependent
        assert line.call() == 1
        bare.put_behind(*nodes)
        assert [line.call(0), line.call(1)] == [1, 1]


def test_reading_ahead_where_a_dependent_launch_follows_what_is_foreign(bare: Started) -> None:
    line = Line(bare)
    first = bare.control.loaded
    loaded(1, True, **EARLY)
    assert [line.call(), line.call()] == [0, 1]
    own = line.nodes[0]
    for node, pdl in ((own, 1), (MEMSET, 0), (own + 8, 0), (None, 0), (bare.control.loaded, 0)):
        assert line.call() == 1
        bare.put_behind(node)
        assert [line.call(), line.call()] == [pdl, 1]
    assert line.call() == 1
    bare.put_behind(first)  # ours, but without an array of parameters
    assert [line.call(), line.call()] == [0, 1]


def test_reading_ahead_where_the_driver_does_not_say_what_was_before(bare: Started) -> None:
    line = Line(bare)
    assert [line.call(), line.call()] == [0, 1]
    bare.control.fail_edges = 1
    assert [line.call(), line.call()] == [0, 0]
    waits = loaded(0, True)
    assert [line.call(kernel=waits), line.call()] == [1, 1]  # nobody asks
    bare.control.fail_edges = 0
    assert [line.call(), line.call()] == [1, 1]


def test_a_launch_that_reads_ahead_looks_back_on_64_nodes(bare: Started) -> None:
    line = Line(bare, 8)
    begun = [0] + [1] * 64
    assert [line.call() for _ in range(len(begun) * 2 + 2)] == begun * 2 + begun[:2]
    for _ in range(50):
        assert line.call() == 1
    assert line.call(130) == 0  # the first of the row
