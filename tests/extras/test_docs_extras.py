"""Pages of the documentation whose blocks need an optional extra."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if path.read_text(encoding="utf-8").startswith("<!-- needs: ")
)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(page, run_page):
    run_page(DOCS / page)
