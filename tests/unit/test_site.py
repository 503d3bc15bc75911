"""The documentation as a site: it builds, and its search works, from a server and from files."""

import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from chromium import CHROMIUM, REMEDY, Browser

ROOT = Path(__file__).parents[2]
FOUND = "document.querySelectorAll('.md-search-result__item').length > 0"
TYPED = "document.querySelector('[data-md-component=search-query]').dispatchEvent(new Event('keyup'))"
TITLES = "[...document.querySelectorAll('.md-search-result__item h1')].map(each => each.textContent)"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert find_spec("mkdocs") is not None, "mkdocs is not installed; make .venv"
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    told = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement of the theme, not about our pages
    built = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def titles(browser: Browser, address: str | Path) -> list[str]:
    """The pages that a search for hierarchies finds."""
    browser.show(address)
    browser.ask("document.querySelector('[data-md-component=search-query]').focus()")
    browser.write("hierarchy")
    browser.until(f"({TYPED}, {FOUND})")  # typed again, should the search have begun late
    return browser.ask(TITLES)


def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists()


@pytest.mark.skipif(CHROMIUM is None, reason=f"platform: there is no chromium here; {REMEDY}")
def test_search_finds_pages_on_a_server_and_in_files(site, tmp_path):
    browser = Browser(tmp_path / "profile")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served = titles(browser, f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    assert "Trees of places: claims" in served
    assert titles(browser, site / "index.html") == served
    elsewhere = [each for each in browser.requests() if not each.startswith(("file:", "data:"))]
    browser.close()
    assert elsewhere == []
