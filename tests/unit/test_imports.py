"""The runtime below the launcher needs the standard library alone."""

from __future__ import annotations

import subprocess
import sys


def test_reading_packs_imports_nothing_but_the_standard_library() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import hgemm_packs.select, hgemm_packs.report, hgemm_packs.distribution.trust\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['hgemm_packs']\n", done.stderr
