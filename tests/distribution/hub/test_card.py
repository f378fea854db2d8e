"""The card says what the manifest says, and nothing in a manifest can write on it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.distribution.card import BAR_WIDTH, EDGES, card
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import Baseline, DeviceProfile, PackInfo, Timing, WinPolicy
from hgemm_packs.problem import Problem, regime
from tests import packs


def lines_of(text: str, start: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    below = text.split(f"{start}\n", 1)[1].split("\n#", 1)[0].splitlines()
    rows = [line for line in below if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[2:]]


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """Four problems of two regimes: two wins, one within the noise, one without a kernel."""
    kernels = packs.good_kernels()
    rows = [
        packs.row(packs.WIN_SMALL, kernels[0], lcb=1.5)._replace(
            hot=Timing(10.0, 20.0, 15.0, 2.0, 1.5), cold=Timing(10.0, 16.0, 15.0, 1.6, 1.5)
        ),
        packs.row(packs.NOISE, kernels[0], lcb=1.01),
        packs.row(packs.WIN, kernels[1]),
        packs.row(packs.CUBLAS, None)._replace(hot=Timing(10.0, 12.0, 9.0, 1.2, 1.0)),
    ]
    source = packs.source(kernels, rows)
    return write_pack(
        tmp_path / "pack",
        source,
        kernels,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )


def test_measured_table_is_that_of_the_manifest(pack: Pack) -> None:
    text = card(pack, "owner/name")
    mean = math.prod

    def shown(values: list[float]) -> str:
        return f"{mean(values) ** (1 / len(values)):.3f}"

    assert {regime(p.m, p.n, p.k) for p in (packs.WIN_SMALL, packs.NOISE)} == {"tiny"}
    assert {regime(p.m, p.n, p.k) for p in (packs.WIN, packs.CUBLAS)} == {"mid"}
    win = 1.12
    assert lines_of(text, f"### {packs.H200.name}, f16, nn") == [
        ["tiny", "2", "1", shown([2, 1]), shown([1.6, 1]), shown([1.5, 11.2 / 11.5]), "1.600"],
        ["mid", "2", "1", shown([win, 1]), shown([win, 1]), shown([11.2 / 10, 9 / 12]), "1.120"],
        [
            "all",
            "4",
            "2",
            shown([2, 1, win, 1]),
            shown([1.6, 1, win, 1]),
            shown([1.5, 11.2 / 11.5, 1.12, 0.75]),
            "1.120",
        ],
    ]


def test_each_profile_has_tables_of_its_own(tmp_path: Path) -> None:
    kernels = packs.good_kernels()
    mine = packs.row(packs.WIN, kernels[1])
    other = DeviceProfile("NVIDIA H100", 132, 52428800, 3352.0)
    rows = [mine, mine._replace(profile=other.name, kernel=None)]
    source = packs.source(kernels, rows)
    source = replace(source, device_profiles=(*source.device_profiles, other))
    made = write_pack(
        tmp_path / "pack",
        source,
        kernels,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    text = card(made, "owner/name")
    served = {
        name: lines_of(text, f"### {name}, f16, nn")[-1][:3] for name in (mine.profile, other.name)
    }
    assert served == {mine.profile: ["all", "1", "1"], other.name: ["all", "1", "0"]}
    assert Packed(made.path).measured == [Problem(*mine.key)]


def test_bars_count_the_problems_with_a_kernel(pack: Pack) -> None:
    bars = card(pack, "owner/name").split("from the left figure on:\n\n```\n")[1].split("\n```")[0]
    counts = {line.split()[0]: line.split()[1:] for line in bars.splitlines()}
    assert list(counts) == [f"{edge:.2f}x" for edge in EDGES]
    full = "#" * BAR_WIDTH
    assert {edge: rest for edge, rest in counts.items() if rest != ["0"]} == {
        "1.10x": [full, "1"],
        "2.00x": [full, "1"],
    }


def test_versions_and_use(pack: Pack) -> None:
    text = card(pack, "owner/name")
    facts = dict(lines_of(text, "## Versions"))
    assert facts["driver"] == "CUDA 13.0 or newer"
    assert facts["devices"] == "NVIDIA H200, 132 SMs"
    assert facts["built with"] == "NVRTC 13.0.88, generator 0.1.0"
    assert facts["kernels"].endswith(pack.manifest.blob.sha256)
    assert f"hgemm-packs fetch owner/name --allow sha256:{pack.manifest_sha256}\n" in text
    assert "native GPU code" in text and "docs/trust.md" in text


def test_front_matter_is_what_the_hub_reads(pack: Pack, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    data = ModelCard(card(pack, "owner/name")).data.to_dict()
    assert data == {
        "license": "apache-2.0",
        "library_name": "hgemm_packs",
        "tags": ["hgemm-packs", "sm_90a"],
    }
    info = PackInfo("own", "1", 'Mine: "all" rights #1', "2026-11-20T00:00:00Z")
    own = packs.write_good(tmp_path / "own", pack=info)
    data = ModelCard(card(own, "owner/name")).data.to_dict()
    assert (data["license"], data["license_name"]) == ("other", 'Mine: "all" rights #1')


def test_text_of_a_manifest_stays_text(tmp_path: Path) -> None:
    rule = "x | <script>alert(1)</script> [click](http://e) `rm` & | y"
    pack = packs.write_good(
        tmp_path / "pack",
        policy=WinPolicy(0.02, rule),
        baseline=Baseline("2.11.0+cu130", "13.1.0", "580.159", "![a](b)"),
    )
    text = card(pack, "owner/name")
    cells = dict(lines_of(text, "## Versions"))
    for shown in (cells["a row is used if"], cells["measured"]):
        assert not set("|<>[]`") & set(shown)
    assert "&#60;script&#62;" in cells["a row is used if"]


def test_pack_without_rows_has_a_card(tmp_path: Path) -> None:
    kernels = packs.good_kernels()
    pack = write_pack(
        tmp_path / "pack",
        packs.source(kernels, []),
        kernels,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    text = card(pack, "owner/name")
    assert "the table of 0 measured problems" in text
    assert "###" not in text


def test_regime_is_the_first_that_fits() -> None:
    named = {
        (64, 64, 64): "tiny",
        (512, 512, 8192): "deep-K",
        (4096, 4096, 256): "small-K",
        (128, 8192, 4096): "skinny",
        (1024, 1024, 1024): "mid",
        (2880, 2880, 2880): "2e10..1e11",
        (8192, 8192, 8192): ">=1e11",
    }
    assert {shape: regime(*shape) for shape in named} == named


def test_newcomer_03_the_card_installs_what_its_commands_need(pack: Pack) -> None:
    """It said [hub] alone, and the next line was refused for want of rich."""
    text = card(pack, "owner/name")
    assert "pip install 'hgemm-packs[cli,hub]'\nhgemm-packs fetch owner/name" in text


def test_who_wrote_a_kernel_of_free_source_is_on_the_card(pack: Pack, tmp_path: Path) -> None:
    assert "of free source" not in card(pack, "owner/name")
    kernels = packs.good_kernels()
    kernels[0].entry_fields["genome"] = {"by": "org_model", "judged": "b" * 64}
    source = packs.source(kernels, packs.good_rows(kernels))
    free = write_pack(tmp_path / "free", source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
    name = kernels[0].entry_fields["name"]
    assert [name, "of free source, by org_model"] in lines_of(
        card(free, "owner/name"), "## Versions"
    )
