"""Write every abusive pack below a folder: `python -m tests.abuse DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import packs
from tests.abuse.cases import CASES


def main(folder: str) -> None:
    for case in CASES:
        pack = Path(folder) / case.name
        packs.write_good(pack).close()
        case.change(pack)
        print(f"{case.name}: {case.code}")


if __name__ == "__main__":
    main(*sys.argv[1:])
