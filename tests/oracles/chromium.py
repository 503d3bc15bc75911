"""A headless Chromium over its debugging pipe, and axe-core, which judges pages in it."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(sys.prefix) / "browser" / "node_modules" / "axe-core" / "axe.min.js"
REMEDY = "make test-extras installs it where it may (apt as root; npm)"
DESKTOP, PHONE = (1280, 900), (360, 740)
SCHEMES = ("light", "dark")
KEYS = ("Tab", "Enter", "Space", "End", "Home", "ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown")
CODES = dict(zip(KEYS, (9, 13, 32, 35, 36, 37, 38, 39, 40), strict=True))
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

    def show(self, page: Path | str, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Open a page and return when it is loaded and drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0], height=size[1], deviceScaleFactor=1, mobile=size == PHONE,
        )  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.setBypassCSP", enabled=False)
        self._go("about:blank")
        self._go(page if isinstance(page, str) else page.as_uri())
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

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Return when an expression is true on the page; what is waited for is said where it never is."""
        end = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < end, f"never came: {expression}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, as a person without a mouse would."""
        for key in keys:
            text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
            name = {"Space": " "}.get(key, key)
            code = CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            for kind in ("keyDown", "keyUp"):
                typed = {"text": text} if text and kind == "keyDown" else {}
                self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **typed)

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

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


def violations(browser: Browser) -> list[str]:
    """What axe-core finds wrong, each with the first element it is about."""
    browser.ask(AXE.read_text() + ";0")
    found = browser.ask(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
        ".then(all => all.violations.map(each => each.id + ': ' + each.help + ' | ' + each.nodes[0].html))"
    )
    assert isinstance(found, list)
    return found
