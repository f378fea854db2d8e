"""Pages in a headless browser: each must load without an error in its console.

    python -m benchmarks.publish.browser

`make test-browser` calls this. The pages are the committed report of a search and, where it was
built, the API's pages. Screenshots go to docs/screenshots/. The browser is Debian's chromium; it
reads files and no network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Pages by the names of their screenshots. The first must be there.
PAGES = {
    "report": REPOSITORY / "benchmarks" / "results" / "generator" / "run" / "report.html",
    # index.html sends the browser on to this, and a picture is taken of no such page.
    "api": REPOSITORY / "build" / "api" / "hgemm_packs.html",
}
SCREENSHOTS = REPOSITORY / "docs" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = "1100,1100"
MOST_BYTES = 200_000
TIMEOUT_S = 120.0
#: Words in the browser's log that are of a page and not of the machine.
CONSOLE = ":CONSOLE"


def find_browser() -> str:
    """Its path. Raises SystemExit where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit("no browser here: apt-get install chromium")
    return found


def open_page(browser: str, page: Path, screenshot: Path) -> list[str]:
    """Load a page and take its picture; what its console says, a line each."""
    with tempfile.TemporaryDirectory() as profile:
        words = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--enable-logging=stderr", "--v=0", f"--user-data-dir={profile}"),
            *(f"--window-size={SIZE}", f"--screenshot={screenshot}", page.as_uri()),
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode or not screenshot.is_file():
        return [f"the browser ended with {done.returncode}: {done.stderr[-500:]}"]
    return [line for line in done.stderr.splitlines() if CONSOLE in line]


def main() -> int:
    browser, bad = find_browser(), 0
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        if name != "report" and not page.is_file():
            print(f"{name}: not built")
            continue
        screenshot = SCREENSHOTS / f"{name}.png"
        said = open_page(browser, page, screenshot)
        size = screenshot.stat().st_size if screenshot.is_file() else 0
        if size > MOST_BYTES:
            said.append(f"the screenshot has {size} bytes")
        print(
            "\n".join([f"{name}: {'errors' if said else 'no error'}, {size / 1e3:.0f} kB", *said])
        )
        bad += bool(said)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
