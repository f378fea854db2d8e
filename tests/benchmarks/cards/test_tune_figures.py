"""What the page of figures says of tables that a machine makes for itself."""

from __future__ import annotations

from benchmarks.publish import protocol_texts

TUNE = {
    **{"seconds": 60.0, "share_of_gain_60s": 0.9923, "killed_lost": 0},
    **{"renamed_vs_official": 1.0107, "first": {"problems": [{}] * 21}},
    "renamed": {"problems": [{}] * 24},
    "like": {
        "card": "H200",
        "search": {
            **{"problems": 84, "device": "NVIDIA H100 80GB HBM3", "wall_s": 248.1},
            **{"wins": 63, "gain": 1.0886},
        },
        "like": {"wall_s": 131.8, "wins": 69, "gain": 1.095},
    },
}


def test_each_figure_of_tune_is_told() -> None:
    tuned = protocol_texts.describe_tune({"tune": TUNE})
    for expected in (
        "60 s of `tune` on 21 products of a model, none of them in the table, of what every kernel "
        "timed would give | 99.2% |",
        "a first table's, 24 problems, the GPU's profile renamed | 1.011x |",
        "on an NVIDIA H100 80GB HBM3 by search: wall time, wins, gain | 248 s, 63, 1.089x |",
        "the same by `generate --like H200` | 132 s, 69, 1.095x |",
    ):
        assert expected in tuned
