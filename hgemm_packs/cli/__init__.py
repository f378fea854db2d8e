"""The `hgemm-packs` command: `app` has its verbs, in the groups of `hgemm-packs --help`.

Only this package imports typer, rich and matplotlib, and only when the command runs. Verbs that
compile need the generator's pins; a missing one is named, never guessed around.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `hgemm-packs` script."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"hgemm-packs: {error.name} is missing: pip install 'hgemm-packs[cli]'")
    from .app import run

    run()
