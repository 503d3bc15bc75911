"""Makes the pictures of the documentation, and the gallery's reports, from the real pages.

Run by `make docs-pictures`, in the environment of the extras; needs Chromium.
"""

import base64
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS.parent / "tests" / "oracles"))

from chromium import Browser  # noqa: E402  # the browser that pages are tested in

from residua import Release, demo  # noqa: E402

SIZE, NARROW = (1200, 860), (780, 860)
IDLE = "!!document.querySelector('.bars tbody tr') && !document.getElementById('cancel')"
CHANGE = "element.dispatchEvent(new Event('input')); element.dispatchEvent(new Event('change'))"


@contextmanager
def studio(folder: Path) -> Iterator[str]:
    """The address of the studio with the demo's spec."""
    shutil.copy(demo.SPEC, folder / "census.yaml")
    command = [sys.executable, "-m", "residua.cli", "studio", "--no-open", "census.yaml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)


def photograph(browser: Browser, name: str, selector: str | None = None) -> None:
    """What is in view, or one part of the page, as a picture of the documentation."""
    clip = {"x": 0, "y": 0, "width": SIZE[0], "height": SIZE[1]}
    if selector is not None:
        box = f"(box => [box.x, box.y + scrollY, box.width, box.height])(document.querySelector({selector!r})"
        x, y, width, height = browser.ask(f"{box}.getBoundingClientRect())")
        clip = {"x": x - 8, "y": y - 8, "width": width + 16, "height": min(height + 16, 1000)}
    shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip | {"scale": 1})
    (DOCS / "pictures" / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def pictures(browser: Browser, address: str) -> None:
    """Of the studio: at a budget, in rehearsal, with targets."""
    browser.show(address, SIZE)
    browser.until(IDLE)
    photograph(browser, "studio")
    browser.ask("document.getElementById('rehearsed').value = 6; document.getElementById('roll').click()")
    browser.until("!!document.querySelector('.crosstab')")
    photograph(browser, "studio-rehearsal", "#rehearsal")
    browser.ask("document.getElementById('fix-accuracy').click()")
    browser.until("!!document.querySelector('.target') && !document.querySelector('.stale')")
    browser.until(IDLE)
    handle = "const element = document.getElementById('target-Counties'); element.value -= 8"
    browser.ask(f"{handle}; {CHANGE}")
    browser.until("!!document.getElementById('change')")
    browser.until(IDLE)
    photograph(browser, "studio-targets", "#errors")


def main() -> None:
    """Make them all."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        demo.main(folder / "demo")
        release = Release.load(folder / "demo" / "census.release")
        release.report(DOCS / "gallery" / "census.html", title=f"A census of {demo.PEOPLE:,} invented people")
        release.plan.report(DOCS / "gallery" / "plan.html", title="The same census, before any data")
        browser = Browser(folder / "profile")
        try:
            with studio(folder) as address:
                pictures(browser, address)
            browser.show(DOCS / "gallery" / "census.html", SIZE)
            photograph(browser, "report")
            browser.show(DOCS / "gallery" / "census.html", NARROW)  # it stands beside words
            photograph(browser, "counties", "#t-3")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
