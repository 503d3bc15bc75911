"""A report as files: the page, and its pictures where they are asked for."""

import os
from pathlib import Path

from residua import _files
from residua.errors import FileFormatError
from residua.report.charts import pictures_of
from residua.report.contents import Contents
from residua.report.page import page_of

Name = str | os.PathLike[str]


def write_report(contents: Contents, path: Name, plots: Name | None = None) -> None:
    """Write the page, and to the folder `plots` each of its pictures as an SVG file."""
    target = Path(path)
    if target.is_dir():
        raise FileFormatError(f"{target} is a folder; name a file for the report, such as report.html")
    pictures = pictures_of(contents)
    _files.write_text(target, page_of(contents, pictures))
    if plots is not None:
        folder = Path(plots)
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in pictures.items():
            _files.write_text(folder / f"{name}.svg", svg)
