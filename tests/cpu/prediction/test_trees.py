"""Trees in C against a walk in Python, features against the page of the format."""

from __future__ import annotations

import math
import random
import re
import struct
from pathlib import Path

import pytest

from hgemm_packs import launcher
from hgemm_packs.pack import features
from hgemm_packs.pack.manifest import DeviceProfile, DimRange
from hgemm_packs.pack.predictor import Candidate, Dims, Model, Predictor, check_predictor
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from tests import predictions

ROOT = Path(__file__).parents[3]
H200 = DeviceProfile("NVIDIA H200", 132, 62914560, 4800.0)
#: Numbers behind the threads: shared memory, units of 16 bytes, no genes.
REST = (0, 16, 16, 16, 0, 0, 0, 1)
#: As docs/pack_format.md has them: trees, and how many candidates they leave.
ROUNDS = ((12, 8), (40, 4), (100, 2))
MARGIN = 1.1


def random_tree(dice: random.Random, sees: int, depth: int) -> list[tuple[int, float, int]]:
    """Nodes in preorder, `right` counted from the tree's root."""
    if not depth or dice.random() < 0.2:
        return [(-1, dice.uniform(-1, 1), 0)]
    left, right = (random_tree(dice, sees, depth - 1) for _ in range(2))
    split = (dice.randrange(sees), dice.choice((0.5, 1.0, 6.0, 11.5, 64.0)), 1 + len(left))
    moved = [[(f, x, r and r + by) for f, x, r in side] for side, by in ((left, 1), (right, 1))]
    shifted = [(f, x, r and r + len(left)) for f, x, r in moved[1]]
    return [split, *moved[0], *shifted]


def random_model(dice: random.Random, sees: int, count: int = 20) -> Model:
    trees = [random_tree(dice, sees, 5) for _ in range(count)]
    return predictions.model(dice.uniform(-1, 1), *trees)


def single(number: float) -> float:
    """The float32 nearest to a number."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def evaluate(model: Model, values: tuple[float, ...], trees: int | None = None) -> float:
    """The model's value by its first trees, or by all, as docs/pack_format.md says it."""
    total = model.base
    for root in model.roots[:trees]:
        at = root
        while model.feature[at] >= 0:
            low = values[model.feature[at]] <= single(model.number[at])
            at = at + 1 if low else model.right[at]
        total += single(model.number[at])
    return total


def spread(model: Model, first: int) -> float:
    """A third of the mean size of the leaves of each tree from `first` on."""
    ends = (*model.roots[1:], len(model.feature))
    total = 0.0
    for root, end in list(zip(model.roots, ends, strict=True))[first:]:
        leaves = [abs(model.number[at]) for at in range(root, end) if model.feature[at] < 0]
        total += sum(leaves) / len(leaves)
    return total / 3.0


def takes(each: Candidate, p: Problem) -> bool:
    """Whether a candidate may be chosen: CTAs that share K in slices must run all at once."""
    named = dict(zip(features.NUMBERS, each.numbers, strict=True))
    tiles = math.ceil(p.m / named["tile_m"]) * math.ceil(p.n / named["tile_n"])
    at_once = named["slices"] == 1 or (
        tiles * named["cluster_k"] * named["slices"] <= H200.sm_count
    )
    inside = (d.admits(size) for d, size in zip(each.dims, (p.m, p.n, p.k), strict=True))
    return (each.layout, each.dtype) == (p.layout, p.dtype) and at_once and all(inside)


def random_candidate(dice: random.Random, index: int) -> Candidate:
    step = dice.choice((1, 8))
    dims = Dims(*(DimRange(step, dice.choice((256, 16384)), step) for _ in range(3)))
    tile = (dice.choice((8, 64, 128)), dice.choice((64, 128, 256)), dice.choice((64, 128)))
    rest = (*(dice.randint(1, 2) for _ in range(3)), dice.choice((1, 4)), index % 2, 384)
    numbers = (index % 2, *tile, dice.randint(2, 8), *rest, dice.choice((50_000, 200_000)))
    numbers += (*(dice.choice((2, 16)) for _ in range(3)), index % 3 == 0, index % 5 == 0)
    numbers += (dice.randint(0, 1), dice.choice((1, 4, 64)))
    kind = dice.choice(LAYOUTS), dice.choice(DTYPES)
    return Candidate(f"{index:064x}", *kind, dims, numbers)


def random_problem(dice: random.Random) -> Problem:
    sizes = (8 * round(2 ** dice.uniform(0, 8)) for _ in range(3))
    return Problem(*sizes, dice.choice(LAYOUTS), dice.choice(DTYPES))


@pytest.mark.parametrize("seed", range(5))
def test_the_best_candidate_is_that_of_a_walk_in_python(seed: int) -> None:
    dice = random.Random(seed)
    sees = len(features.FEATURES)
    found = Predictor(
        H200.name,
        ("sm90_a", "sm90_b"),
        MARGIN,
        tuple(random_candidate(dice, index) for index in range(220)),
        random_model(dice, sees, 20 if seed % 2 else 150),
        random_model(dice, len(features.OF_PROBLEM)),
        random_model(dice, sees),
    )
    check_predictor(found)
    ready = launcher.predictor(found, H200)
    none = dropped = 0
    ends = set()
    for _ in range(200):
        p = random_problem(dice)
        taking = [index for index, each in enumerate(found.candidates) if takes(each, p)]
        rows = [launcher.features(ready, index, p) for index in range(len(found.candidates))]
        seen = {index: row for index, row in enumerate(rows) if row is not None}
        assert [*seen] == taking
        answer = launcher.predict(ready, p)
        if not taking:
            none += 1
            assert answer is None
            continue
        of_torch = evaluate(found.torch, seen[taking[0]][: len(features.OF_PROBLEM)])
        left, gives_up = taking, False
        for turn, (trees, count) in enumerate(ROUNDS):
            first = {i: evaluate(found.ours, seen[i], trees) for i in left}
            left = sorted(sorted(left), key=first.__getitem__)[:count]
            off = evaluate(found.doubt, seen[left[0]]) if turn else 0.0
            hope = of_torch - first[left[0]] - off + spread(found.ours, trees)
            gives_up |= hope < math.log(MARGIN)
        times = {index: evaluate(found.ours, seen[index]) for index in left}
        best = min(left, key=times.__getitem__)
        dropped += len(taking) - len(left)
        assert answer is not None
        index, ours, torch, doubt, given_up = answer
        assert times[index] == times[best] and ours == times[best]
        assert (torch, given_up) == (of_torch, gives_up)
        assert doubt == evaluate(found.doubt, seen[index])
        ends.add(given_up)
    assert none < 100 and dropped > 100 and 0 in ends
    assert 1 in ends or seed % 2 == 0, "150 trees may move a sum far"


def test_names_and_values_are_those_of_the_page() -> None:
    header = (ROOT / "csrc" / "launcher" / "feature_values.h").read_text()
    assert tuple(re.findall(r"^  X\((\w+), [01]\)", header, re.M)) == features.FEATURES
    numbers = (0, 64, 128, 64, 4, 1, 2, 2, 3, 1, 384, 100_000, 16, 4, 2, 1, 1, 1, 4)
    wide = DimRange(1, 1 << 24, 1)
    candidate = Candidate("a" * 64, "tn", "bf16", Dims(wide, wide, wide), numbers)
    found = Predictor(
        H200.name, ("sm90_a",), 1.0, (candidate,), *(predictions.leaf(0.0) for _ in range(3))
    )
    ready = launcher.predictor(found, H200)
    m, n, k, sms = 100, 1000, 4100, 132
    row = launcher.features(ready, 0, Problem(m, n, k, "tn", "bf16"))
    assert row is not None
    values = dict(zip(features.FEATURES, row, strict=True))
    floor = 2.0 + max(2 * m * n * k / (7.5e6 * sms), 2 * (m * k + k * n + m * n) / 4.8e6)
    assert launcher.floor_us(ready, Problem(m, n, k, "tn", "bf16")) == pytest.approx(floor)
    tiles, parts = 2 * 8, 2 * 3
    ctas = tiles * parts
    fill = 100 / 128 * 1000 / 1024
    steps = math.ceil(4100 / (64 * 6))
    wanted = {
        "log2_m": math.log2(m),
        "log2_flop": math.log2(2 * m * n * k),
        "log2_floor": math.log2(floor),
        "a_transposed": 1,
        "b_transposed": 0,
        "bf16": 1,
        "log2_mn": math.log2(m * n),
        "log2_m_over_n": math.log2(m / n),
        "log2_k_over_side": math.log2(k * k / (m * n)),
        "log2_intensity": math.log2(m * n * k / (m * k + k * n + m * n)),
        "log2_row_bytes": 3,
        "log2_a_bytes": 3,  # rows of A have 200 bytes, of B 2000, of C 2000
        "log2_b_bytes": 4,
        "log2_c_bytes": 4,
        "fill_m_64": 100 / 128,
        "use_128x256": 100 / 128 * 1000 / 1024 * 4 / sms,
        "parts_of_k": 6,
        "ctas_per_sm": 2,
        "log2_ctas": math.log2(ctas),
        "waves": 1,
        "wave_use": ctas / (2 * sms),
        "fill": fill,
        "use": fill * ctas / sms,
        "log2_steps": math.log2(steps),
        "log2_sm_bytes": math.log2(2 * (64 + 128) * 64 * steps),
        "log2_sm_flop": math.log2(2 * 64 * 128 * 64 * steps),
        "cluster_k": 2,
        "a_bytes": 16,
        "b_bytes": 4,
        "c_bytes": 2,
        "pingpong": 1,
        "wide": 1,
        "smem_bytes": 100_000,
        "outputs_a_thread": 64 * 128 / 384,
        "filled_waves": ctas / (2 * sms),
        "log2_compute_over_floor": math.log2(2 * 64 * 128 * 64 * steps / 7.5e6 / floor),
        "log2_sm_bytes_over_floor": math.log2(2 * (64 + 128) * 64 * steps / floor),
        "log2_traffic_over_floor": math.log2(2 * k * (m * 8 / 2 + n * 2) / floor),
        "raster_n": 1,
        "group": 4,
        "log2_wave_bytes": math.log2(2 * k * (2 * 64 + 8 * 128)),  # all tiles are one wave
        "log2_read_over_floor": math.log2(2 * k * (2 * 64 + 8 * 128) / floor),
    }
    assert {name: values[name] for name in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("raster_n", "group", "rows", "cols"),
    [
        (1, 4, 4, 33),  # 132 of 63 x 40 tiles at a time, four rows of tiles in step
        (0, 4, 33, 4),
        (1, 1, 4, 40),  # rows of 40 tiles
        (0, 64, 4, 40),  # more columns than there are
    ],
)
def test_what_tiles_of_a_wave_span(raster_n: int, group: int, rows: int, cols: int) -> None:
    numbers = (0, 64, 128, 64, 4, 1, 2, 2, 1, 1, 384, 100_000, 16, 16, 16, 0, 0, raster_n, group)
    every = DimRange(1, 1 << 24, 1)
    candidate = Candidate("a" * 64, "nn", "f16", Dims(every, every, every), numbers)
    found = Predictor(
        H200.name, ("sm90_a",), 1.0, (candidate,), *(predictions.leaf(0.0) for _ in range(3))
    )
    ready = launcher.predictor(found, H200)
    problem = Problem(4000, 5000, 512, "nn", "f16")
    row = launcher.features(ready, 0, problem)
    assert row is not None
    values = dict(zip(features.FEATURES, row, strict=True))
    span = 2 * 512 * (rows * 64 + cols * 128)
    assert values["log2_wave_bytes"] == pytest.approx(math.log2(span))
    read = span * 63 * 40 / 132
    floor = launcher.floor_us(ready, problem)
    assert values["log2_read_over_floor"] == pytest.approx(math.log2(read / floor))


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("does not end", {"ours": Model(0.0, (0,), (0, -1, -1), (1.0, 1.0, 1.0), (1, 0, 0))}),
        ("does not end", {"ours": Model(0.0, (0,), (0, -1, -1), (1.0, 1.0, 1.0), (9, 0, 0))}),
        ("does not end", {"ours": Model(0.0, (0, 9), (-1,), (1.0,), (0,))}),
        ("does not end", {"ours": Model(0.0, (0,), (59, -1, -1), (1.0, 1.0, 1.0), (2, 0, 0))}),
        ("does not end", {"torch": Model(0.0, (0,), (23, -1, -1), (1.0, 1.0, 1.0), (2, 0, 0))}),
        # Nodes that two others share would be placed twice, and others nowhere.
        (
            "does not end",
            {"ours": Model(0.0, (0,), (0, 0, 0, -1, -1), (1.0,) * 5, (2, 3, 4, 0, 0))},
        ),
        ("does not end", {"ours": Model(0.0, (0,), (-1, -1, -1), (1.0,) * 3, (0, 0, 0))}),
        ("no tile", {"numbers": (0, 0, 64, 64, 1, 1, 1, 1, 1, 1, 384, *REST)}),
        ("no tile", {"numbers": (0, 64, 64, 64, 1, 1, 1, 1, 1, 1, 0, *REST)}),
        ("no tile", {"numbers": (0, 64, 64, 64, 1, 1, 1, 1, 1, 1, 384, *REST[:-1], 0)}),
    ],
)
def test_c_takes_no_trees_that_it_could_not_leave(words: str, changes: dict[str, object]) -> None:
    # The reader of packs refuses these before; C trusts nobody with its memory.
    wide = DimRange(1, 1024, 1)
    numbers = changes.get("numbers", (0, 64, 64, 64, 1, 1, 1, 1, 1, 1, 384, *REST))
    candidate = Candidate("a" * 64, "nn", "f16", Dims(wide, wide, wide), numbers)  # type: ignore[arg-type]
    models = {name: predictions.leaf(0.0) for name in ("ours", "torch", "doubt")}
    models |= {name: each for name, each in changes.items() if isinstance(each, Model)}
    found = Predictor(H200.name, ("sm90_a",), 1.0, (candidate,), **models)
    with pytest.raises(ValueError, match=words):
        launcher.predictor(found, H200)
