"""Reports in a real browser: quick to open, nothing asked of any network, readable and accessible."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua.demo import census

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(sys.prefix) / "browser" / "node_modules" / "axe-core" / "axe.min.js"
REMEDY = "make test-extras installs it where it may (apt as root; npm)"
DESKTOP, PHONE = (1280, 900), (360, 740)
SCHEMES = ("light", "dark")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# Where somebody wants to look at the pages, they name a folder here and run the tests.
SCREENSHOTS = os.environ.get("RESIDUA_SCREENSHOTS")


class Browser:
    """A headless Chromium, spoken to over its debugging pipe."""

    def __init__(self, profile: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()

        def plug() -> None:  # the browser reads commands from 3 and answers on 4, whatever our numbers are
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs, ours)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        with open(f"{profile}.log", "wb") as log:
            self._process = subprocess.Popen(
                [str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
                preexec_fn=plug, close_fds=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        os.close(theirs)
        os.close(ours)
        self._numbers, self._rest = itertools.count(1), b""
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    _session: str | None = None

    def call(self, method: str, **arguments: object) -> dict:
        """The answer of the browser to one command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, event: str) -> None:
        """Return when an event has come."""
        while not any(each.get("method") == event for each in self.events):
            self.events.append(self._message())

    def _message(self) -> dict:
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser has gone"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def show(self, page: Path, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Open a page and return when it is loaded and drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0], height=size[1], deviceScaleFactor=1, mobile=size == PHONE,
        )  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.setBypassCSP", enabled=False)
        self._go("about:blank")
        self._go(page.as_uri())
        self.ask("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")

    def _go(self, address: str) -> None:
        """Open an address and return when it is loaded, whatever events earlier pages may still send."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        here = f"document.readyState === 'complete' && location.href === {json.dumps(address)}"
        self.wait("Page.loadEventFired")
        while not self.ask(here):
            time.sleep(0.005)

    def busy(self) -> float:
        """Processor seconds that the page's thread has worked; others on the machine do not count."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    def ask(self, expression: str) -> object:
        """The value of a JavaScript expression on the page."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def photograph(self, path: Path) -> None:
        """A picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        sent = [each for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in sent]

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    missing = [what for what, there in (("chromium", CHROMIUM), ("axe-core", AXE.exists())) if not there]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"there is no {' and no '.join(missing)} on the build machine; {REMEDY}")
    if missing:
        pytest.skip(f"platform: there is no {' and no '.join(missing)} here; {REMEDY}")
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page about a plan, one about a release, and one about a release of 500 tables."""
    folder = tmp_path_factory.mktemp("pages")
    work = census()
    plan = rs.plan(work, rs.zcdp("0.05"), method="querysmasher")
    plan.report(folder / "plan.html")
    codes = np.arange(5000)[:, None] % np.array([18, 2, 9, 3])
    rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1)).report(folder / "release.html")
    wide = rs.Schema.of_sizes([10] * 33)
    many = rs.plan(rs.marginals(wide, ways=2), rs.zcdp(1))
    assert many.workload.tables == 528
    records = np.arange(2000)[:, None] * np.arange(3, 36) % 10
    rs.measure(many, records, ledger=None, noise=rs.simulated(seed=1)).report(folder / "many.html")
    return {name: folder / f"{name}.html" for name in ("plan", "release", "many")}


def violations(browser: Browser) -> list[str]:
    """What axe-core finds wrong, each with the first element it is about."""
    browser.ask(AXE.read_text() + ";0")
    found = browser.ask(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
        ".then(all => all.violations.map(each => each.id + ': ' + each.help + ' | ' + each.nodes[0].html))"
    )
    assert isinstance(found, list)
    return found


def work_to_open(browser: Browser, page: Path) -> float:
    """Processor seconds that a page takes, counted from a small one."""
    browser.show(page.parent / "plan.html")
    before = browser.busy()
    browser.show(page)
    return browser.busy() - before


def test_a_report_of_500_tables_opens_with_less_work_than_its_numbers_as_plain_html(browser, pages):
    """Two seconds on a quiet machine, where a page without our care takes seven and more."""
    row = "<tr><th>a0 = 0 and a1 = 0<td>203<td>13.69<td>176 to 229<td>\n"
    tables = 528 * f"<details open><summary>a0 x a1</summary><table>{100 * row}</table></details>\n"
    plain = pages["many"].with_name("plain.html")
    plain.write_text(f"<!doctype html><title>plain</title>{tables}", encoding="utf-8")
    other = work_to_open(browser, plain)
    seconds = work_to_open(browser, pages["many"])
    shown = browser.ask("document.querySelectorAll('details tbody tr').length")
    size = pages["many"].stat().st_size
    print(f"\n528 tables, {shown} numbers, {size / 1e6:.2f} MB: {seconds:.2f} s of work, plain {other:.2f} s")
    assert shown == 528 * 100
    assert size < 10_000_000
    assert 0 < seconds < other


@pytest.mark.parametrize("name", ["plan", "release", "many"])
def test_a_report_asks_nothing_of_any_network(browser, pages, name):
    browser.show(pages[name])
    assert browser.requests() == [pages[name].as_uri()]
    blocked = browser.ask("fetch('https://example.org/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", ["plan", "release"])
def test_a_report_is_accessible(browser, pages, name, size, scheme):
    browser.show(pages[name], size, scheme)
    browser.ask("document.querySelectorAll('details').forEach(each => { each.open = true })")
    if SCREENSHOTS:
        browser.photograph(Path(SCREENSHOTS) / f"{name}-{size[0]}-{scheme}.png")
    assert violations(browser) == []


def test_a_report_of_500_tables_is_accessible(browser, pages):
    browser.show(pages["many"])
    # All folds are alike, and axe-core takes minutes for 50,000 rows.
    browser.ask(
        "document.querySelectorAll('#tables details').forEach((each, at) => at < 25 || each.remove())"
    )
    assert violations(browser) == []


@pytest.mark.parametrize("name", ["plan", "release", "many"])
def test_a_report_is_never_wider_than_a_phone(browser, pages, name):
    browser.show(pages[name], PHONE)
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE[0]


def test_pictures_follow_the_theme(browser, pages):
    colour = "getComputedStyle(document.querySelector('figure svg text')).fill"
    seen = []
    for scheme in SCHEMES:
        browser.show(pages["release"], scheme=scheme)
        ink = browser.ask("getComputedStyle(document.body).color")
        assert browser.ask(colour) == ink
        seen.append(ink)
    assert seen[0] != seen[1]


def test_a_table_is_found_by_its_name_and_unfolded_by_its_link(browser, pages):
    browser.show(pages["many"])
    browser.ask("document.getElementById('find').value = 'a0 x'")
    browser.ask("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert browser.ask("document.querySelectorAll('details:not([hidden])').length") == 32
    assert browser.ask("document.getElementById('found').textContent") == "32 of 528 tables"
    browser.ask("location.hash = '#t-20'; new Promise(done => setTimeout(done, 50))")
    assert browser.ask("document.getElementById('t-20').open") is True


def test_the_script_raises_no_error(browser, pages):
    browser.show(pages["release"])
    raised = [each for each in browser.events if each.get("method") == "Runtime.exceptionThrown"]
    assert raised == []
