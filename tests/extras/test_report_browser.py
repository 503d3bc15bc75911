"""Reports in a real browser: quick to open, nothing asked of any network, readable and accessible."""

import base64
import os
import re
from pathlib import Path

import numpy as np
import pytest
from chromium import DESKTOP, PHONE, SCHEMES, Browser, violations

import residua as rs
from residua.demo import census

# Where somebody wants to look at the pages, they name a folder here and run the tests.
SCREENSHOTS = os.environ.get("RESIDUA_SCREENSHOTS")


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
    shown = browser.ask("document.querySelectorAll('details.table td:not(.total)').length")
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


def test_a_report_on_paper_has_everything_and_nothing_to_click(browser, pages):
    browser.show(pages["release"], (672, 950))  # what is left of A4 between its margins
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll({})].filter(each => each.checkVisibility()).length"
    assert browser.ask(shown.format("'nav, .tools, #copy'")) == 0
    assert browser.ask("document.documentElement.scrollWidth") <= 672
    folds = "[...document.querySelectorAll('details > div')]"
    assert browser.ask(f"{folds}.every(each => each.getBoundingClientRect().height > 0)")
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    browser.call("Emulation.setEmulatedMedia", media="")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 14


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
    assert browser.ask("document.querySelectorAll('details.table:not([hidden])').length") == 32
    assert browser.ask("document.getElementById('found').textContent") == "32 of 528 tables"
    browser.ask("location.hash = '#t-20'; new Promise(done => setTimeout(done, 50))")
    assert browser.ask("document.getElementById('t-20').open") is True


def test_the_script_raises_no_error(browser, pages):
    browser.show(pages["release"])
    raised = [each for each in browser.events if each.get("method") == "Runtime.exceptionThrown"]
    assert raised == []
