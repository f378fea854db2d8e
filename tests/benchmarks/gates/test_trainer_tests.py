"""What other people's trainers and tools were seen to do with ours: `make trainers` was run."""

from __future__ import annotations

import ast
import json
import re

from benchmarks.folders import RESULTS
from benchmarks.gates.gpu_tests import REPOSITORY

FOREIGN = {"trl", "verifiers", "flashinfer_bench", "flashinfer_bench.data"}


def skipped_without(path: str) -> set[str]:
    """Tests of a file that `make test` skips: those that want a foreign package, themselves or by a
    fixture of the file."""
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    functions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    wants = {
        each.name
        for each in functions
        if FOREIGN
        & set(re.findall(r'importorskip\("([\w.]+)"', ast.unparse(each).replace("'", '"')))
    }
    return {
        each.name
        for each in functions
        if each.name.startswith("test_")
        and (each.name in wants or wants & {argument.arg for argument in each.args.args})
    }


def test_every_test_that_ci_skips_has_passed_with_its_package() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"TRAINER_TESTS := (.*?[^\\])\n", makefile, re.DOTALL)
    assert listed is not None
    paths = listed[1].replace("\\\n", " ").split()
    wanted = {name for path in paths for name in skipped_without(path)}
    assert len(wanted) == 7
    record = json.loads((RESULTS / "trainer_tests.json").read_text(encoding="utf-8"))
    passed = {
        name.split("::")[1].split("[")[0]
        for name, outcome in record["tests"].items()
        if outcome == "passed"
    }
    assert wanted <= passed
    assert record["counts"] == {"passed": len(record["tests"])}
    assert re.fullmatch("[0-9a-f]{40}", record["commit"])
