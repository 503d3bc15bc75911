"""Completes the navigation: a section whose pages share a folder gets the folder's other pages, by name.

Every page is called by its heading: the site would take the file's name where a comment comes first.
"""

import re
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """The configuration of the site with every page of every section's folder in the navigation."""
    docs = Path(config["docs_dir"])
    for section in config["nav"]:
        for pages in section.values():
            if isinstance(pages, list):
                folder = docs / Path(pages[0]).parent
                every = sorted(path.relative_to(docs).as_posix() for path in folder.glob("*.md"))
                named = [*pages, *(page for page in every if page not in pages)]
                pages[:] = [{_heading(docs / page): page} for page in named]
    return config


def _heading(page: Path) -> str:
    """The first heading of a page."""
    [heading] = re.findall(r"^# (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[:1]
    return str(heading)
