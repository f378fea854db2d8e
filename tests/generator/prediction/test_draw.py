"""What a seed draws: the same again, inside its bounds, and nothing of what is held out."""

from __future__ import annotations

from collections import Counter

from hgemm_packs.generator.campaigns import unseen
from hgemm_packs.generator.prediction import draw
from hgemm_packs.problem import set_bytes


def test_layers_have_any_m_of_given_weights() -> None:
    among = draw.weights()
    found = draw.layers(3, 400, among)
    assert found == draw.layers(3, 400, among) != draw.layers(4, 400, among)
    assert len(set(found)) == 400
    assert {(p.n, p.k) for p in found} <= set(among) and {p.layout for p in found} == {"nt"}
    # As many between 1 and 90 as between 91 and 8192, which is log-uniform.
    small = sum(p.m <= 90 for p in found)
    assert 160 < small < 240 and min(p.m for p in found) >= 1 and max(p.m for p in found) <= 8192


def test_sizes_are_aligned_or_not() -> None:
    for aligned in (True, False):
        found = draw.sizes(7, 300, aligned=aligned)
        assert len(set(found)) == 300 == len(found)
        assert all((p.n % 8 == 0 and p.k % 8 == 0) == aligned for p in found)
        assert all(p.m % 8 == 0 for p in found if aligned and p.layout[0] == "t")
        assert all(max(p.m, p.n, p.k) <= draw.LARGEST for p in found)
        assert all(set_bytes(p) <= draw.MOST_BYTES for p in found)
        assert len(Counter((p.layout, p.dtype) for p in found)) == 8


def test_training_leaves_half_of_all_weights_to_judge_by() -> None:
    trained, held_out = draw.split_weights(0)
    assert not set(trained) & set(held_out)
    assert sorted(trained + held_out) == draw.weights()
    assert abs(len(trained) - len(held_out)) <= 1
    wanted = unseen.Draw(layers=200, sizes=0, unaligned=0, alone=200, seed=1)
    problems, alone = unseen.draw_problems(wanted)
    layers = [*problems, *(p for p in alone if (p.n, p.k) in set(draw.weights()))]
    assert len(layers) >= 300 and {(p.n, p.k) for p in layers} <= set(trained)


def test_free_weights_are_of_no_model() -> None:
    found = draw.free_weights(3, 400)
    assert found == draw.free_weights(3, 400) != draw.free_weights(4, 400)
    assert len(set(found)) == 400 and not set(found) & set(draw.weights())
    sides = [side for pair in found for side in pair]
    assert all(side % 64 == 0 and 64 <= side <= 65536 for side in sides)
    assert all(2 * n * k <= draw.MOST_BYTES for n, k in found)
    # As many below 4096 as above, which is log-uniform but for the largest steps.
    assert 330 < sum(side < 4096 for side in sides) < 470
