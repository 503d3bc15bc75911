"""The documentation: every block runs, and the site builds without a warning, such as of a page left out."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
NEEDS = "<!-- needs: "  # an extra: such pages are run by tests/extras
ELSEWHERE = {"guides/first-release.md"}  # run by test_cli_guide


def needs(page: str) -> str | None:
    """The extra that the blocks of a page need."""
    first = (DOCS / page).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix(NEEDS).removesuffix(" -->") if first.startswith(NEEDS) else None


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and needs(page) is None])
def test_every_block_of_a_page_runs(page, run_page):
    run_page(DOCS / page)


def test_every_extra_that_a_page_needs_exists():
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE))
    assert {needs(page) for page in PAGES} - {None} <= extras


def test_every_public_name_is_in_the_reference():
    import residua

    text = "".join((DOCS / page).read_text() for page in PAGES if page.startswith("reference/"))
    missing = [name for name in residua.__all__ if not re.search(rf"residua\.{name}\b", text)]
    assert missing == ["__version__"]


def test_every_file_and_every_test_that_a_claim_names_exists():
    rooms = ("src/residua", "tests", "reproductions", "benchmarks")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    tests = "".join(path.read_text(encoding="utf-8") for path in files if "tests" in path.parts)
    for page in (DOCS / "math").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert any(path.as_posix().endswith(f"/{name}") for path in files), (page.name, name)
        for name in re.findall(r"`(test_\w+)`", text):
            assert f"def {name}(" in tests, (page.name, name)


def test_every_decision_is_listed_by_its_title():
    listed = (DOCS / "decisions/README.md").read_text(encoding="utf-8")
    for page in (DOCS / "decisions").glob("0*.md"):
        number, _, title = (
            page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(": ")
        )
        assert f"- [{number}]({page.name}): {title}\n" in listed


def test_every_page_of_claims_is_listed_once_and_every_claim_has_a_number_of_its_own():
    index = (DOCS / "math/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (.+?) \| \[.+?\]\((.+?)\)", index, flags=re.MULTILINE)
    letters = [letter for cell, _ in listed for letter in cell.split(", ")]
    assert len(letters) == len({*letters})
    assert sorted(page for _, page in listed) == sorted(
        path.name for path in (DOCS / "math").glob("*.md") if path.name != "index.md"
    )
    numbers = []
    for cell, page in listed:
        text = (DOCS / "math" / page).read_text(encoding="utf-8")
        found = re.findall(r"^\*\*([A-Z]-\d+)\.", text, flags=re.MULTILINE)
        assert {letter[0] for letter in cell.split(", ")} <= {number[0] for number in found}, page
        numbers += found
    assert len(numbers) == len({*numbers})


def test_every_page_is_called_by_its_heading_in_the_menu():
    spec = spec_from_file_location("navigation", DOCS / "navigation.py")
    navigation = module_from_spec(spec)
    spec.loader.exec_module(navigation)
    nav = [{"Home": "index.md"}, {"Guides": ["guides/cluster.md"]}, {"Maths": ["math/index.md"]}]
    done = navigation.on_config({"docs_dir": str(DOCS), "nav": nav})["nav"]
    assert done[0] == {"Home": "index.md"}
    assert done[1]["Guides"][0] == {"Bring your own cluster": "guides/cluster.md"}
    assert {"Several stakeholders": "guides/stakeholders.md"} in done[1]["Guides"]
    assert len(done[2]["Maths"]) == len([*(DOCS / "math").glob("*.md")])
