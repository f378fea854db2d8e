"""The pages of the public names: each has a docstring that says what is raised, and an example."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import hgemm_packs
from hgemm_packs import nn
from hgemm_packs.distribution import packs

NAMES = [name for name in hgemm_packs.__all__ if name != "packs"]
PUBLIC: dict[str, Any] = {
    **{name: getattr(hgemm_packs, name) for name in NAMES},
    **{f"nn.{name}": getattr(nn, name) for name in nn.__all__},
    **{
        f"packs.{name}": getattr(packs, name)
        for name in packs.__all__
        if inspect.isfunction(getattr(packs, name))
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_newcomer_10_every_public_function_has_an_example(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    _, mark, example = text.partition("Example:\n\n")
    assert mark, text
    code = [line[4:] for line in example.splitlines() if line.startswith("    ")]
    compile("\n".join(code), name, "exec")
    assert code and (name == "disabled" or "Raises" in text or "raises" in text)


@pytest.mark.skipif(importlib.util.find_spec("pdoc") is None, reason="pdoc is not installed")
def test_newcomer_10_the_pages_are_made(tmp_path: Path) -> None:
    api_pages = importlib.import_module("api_pages")
    pages = api_pages.write(tmp_path / "api")
    assert {str(page.relative_to(tmp_path / "api")) for page in pages} == {
        "index.html",
        "hgemm_packs.html",
        "hgemm_packs/nn.html",
        "hgemm_packs/distribution/packs.html",
    }
    text = (tmp_path / "api" / "hgemm_packs.html").read_text(encoding="utf-8")
    for name in NAMES:
        assert f'id="{name}"' in text
    assert "[M, K] @ [K, N]" in text
