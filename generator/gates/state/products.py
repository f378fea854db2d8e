"""Launches into a C that holds the right product, an old or a nearly right one; operands that
change in place where a look at few elements, or a checksum, would not notice.

Called by `gate`. A kernel that compares before it computes, and leaves what it finds, is caught
here whatever it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from hgemm_packs.generator.gates.state.launches import Tally, from_what_c_held
from hgemm_packs.generator.gates.state.scenes import Scene
from hgemm_packs.pack.manifest import KernelEntry

ROUNDS, CHANGES = 6, 4
#: Blocks of C of which one element is wrong, beside the kernel's tile: what a warp or an
#: instruction makes.
PIECES = ((16, 8), (64, 16), (64, 64))

Change = tuple[str, Callable[[], None]]


def check_left(scene: Scene, entry: KernelEntry, tally: Tally) -> None:
    """C holds a product already, wholly, nearly or in parts."""
    right = scene.c_right.clone()
    old = torch.empty_like(right)
    kept = scene.a.clone(), scene.b.clone()
    scene.a.copy_(_drawn(scene, scene.a))
    scene.queue()
    old.copy_(scene.c)
    for matrix, values in zip((scene.a, scene.b), kept, strict=True):
        matrix.copy_(values)

    def one_off(rows: int, columns: int) -> torch.Tensor:
        """The right product but for one element of each block, by its last bit or as it was."""
        off = _one_of_each(scene, right, rows, columns)
        bits = right.view(torch.int16)
        by_a_bit = torch.where(off, bits ^ 1, bits).view(right.dtype)
        return by_a_bit if scene.dice.randrange(2) else torch.where(off, old, right)

    def mixed(rows: int, columns: int) -> torch.Tensor:
        """Blocks of the right product and of the old one."""
        high, wide = (-(-s // b) for s, b in zip(right.shape, (rows, columns), strict=True))
        take = torch.rand((high, wide), generator=_source(scene), device=right.device) < 0.5
        whole = take.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        return torch.where(whole[: right.shape[0], : right.shape[1]], right, old)

    tile = entry.grid.tile_m, entry.grid.tile_n
    contents = [("the right product", lambda: right), ("an old product", lambda: old)]
    for _ in range(ROUNDS):
        for size in (tile, *PIECES):
            contents.append(("the right product but for one element", partial(one_off, *size)))
        contents.append(("the right product in parts", partial(mixed, *PIECES[0])))
        contents.append(("the right product in parts", partial(mixed, *tile)))
    from_what_c_held(scene, tally, contents)


def check_changed(scene: Scene) -> None:
    """Operands change in place, C keeps the product of those before; each time float64 says what C
    must be. Raises NumericError."""
    for name, change in changes(scene):
        change()
        scene.keep()
        scene.queue()
        scene.judge(f"after {name}")
    scene.checker.settle()


def changes(scene: Scene) -> Iterator[Change]:
    """Changes of A and B, each with its name, to be made in their order."""
    a, b = scene.a, scene.b
    for turn in range(CHANGES):
        dim, lines = ((-2, "rows"), (-1, "columns"))[turn % 2]
        for name, matrix in (("A", a), ("B", b)):
            yield f"one element of {name} changed", partial(_write_one, scene, matrix)
            yield f"two elements of {name} exchanged", partial(_exchange_two, scene, matrix)
            yield f"two {lines} of {name} exchanged", partial(_exchange, scene, matrix, dim)
    for high in (8, 16, 32, 64):
        yield f"{high} rows of A in turn cleared", partial(_clear_bands, scene, high)
        yield "one column of B changed", partial(_write_line, scene, b, -1)
        yield "all of B changed", partial(_redraw, scene, b)
    yield "one row of A changed", partial(_write_line, scene, a, -2)
    yield "all of A changed", partial(_redraw, scene, a)


def _source(scene: Scene) -> torch.Generator:
    return scene.checker.generator


def _drawn(scene: Scene, like: torch.Tensor) -> torch.Tensor:
    values = torch.randn(like.shape, generator=_source(scene), device=like.device)
    return values.to(like.dtype)


def _one_of_each(scene: Scene, c: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """A mask of one element, at random, of each block of C."""
    high, wide = -(-c.shape[0] // rows), -(-c.shape[1] // columns)
    place, source = c.device, _source(scene)
    down = torch.randint(rows, (high, wide), generator=source, device=place)
    along = torch.randint(columns, (high, wide), generator=source, device=place)
    down += torch.arange(high, device=place)[:, None] * rows
    along += torch.arange(wide, device=place) * columns
    mask = torch.zeros((high * rows, wide * columns), dtype=torch.bool, device=place)
    mask[down, along] = True
    return mask[: c.shape[0], : c.shape[1]]


def _of(scene: Scene, matrix: torch.Tensor) -> torch.Tensor:
    """One matrix of an operand that has several."""
    return matrix[scene.dice.randrange(matrix.shape[0])] if matrix.dim() == 3 else matrix


def _write_one(scene: Scene, operand: torch.Tensor) -> None:
    one = _of(scene, operand)
    one[scene.dice.randrange(one.shape[0]), scene.dice.randrange(one.shape[1])] = 24.0


def _exchange_two(scene: Scene, operand: torch.Tensor) -> None:
    """Sums over the operand stay, and so do sums of squares."""
    one = _of(scene, operand)
    row, other = scene.dice.randrange(one.shape[0]), scene.dice.randrange(one.shape[0])
    column = scene.dice.randrange(one.shape[1])
    pair = one[[row, other], [column, column - 1]].flip(0)
    one[[row, other], [column, column - 1]] = pair


def _exchange(scene: Scene, operand: torch.Tensor, dim: int) -> None:
    """Two rows, or two columns."""
    one = _of(scene, operand).movedim(dim, 0)
    first, second = scene.dice.randrange(one.shape[0]), scene.dice.randrange(one.shape[0])
    one[[first, second]] = one[[second, first]].clone()


def _write_line(scene: Scene, operand: torch.Tensor, dim: int) -> None:
    one = _of(scene, operand).movedim(dim, 0)
    at = scene.dice.randrange(one.shape[0])
    one[at] = _drawn(scene, one[at])


def _redraw(scene: Scene, operand: torch.Tensor) -> None:
    operand.copy_(_drawn(scene, operand))


def _clear_bands(scene: Scene, rows: int) -> None:
    """A has new values, but every second band of rows is zero: a look at the product there tells
    nothing of B."""
    _redraw(scene, scene.a)
    for first in range(scene.dice.randrange(2) * rows, scene.a.shape[-2], 2 * rows):
        scene.a[..., first : first + rows, :] = 0
