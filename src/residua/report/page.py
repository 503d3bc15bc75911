"""A report as files: one page of HTML that asks nothing of any network, and its pictures if asked for."""

import hashlib
import os
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

from residua import _files
from residua._text import counted
from residua.errors import FileFormatError
from residua.report import markup as html
from residua.report.charts import pictures_of
from residua.report.contents import Contents
from residua.report.sections import Pictures, sections_of

Name = str | os.PathLike[str]


def page_of(contents: Contents, pictures: Pictures) -> str:
    """The whole page; `pictures` are SVG texts by name."""
    sections = list(sections_of(contents, pictures))
    links = "".join(f'<li><a href="#{place}">{html.text(heading)}</a></li>' for place, heading, _ in sections)
    body = "\n".join(html.section(place, heading, inner) for place, heading, inner in sections)
    script = _asset("script.js")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        f"<title>{html.text(contents.title)}</title>\n<style>\n{_asset('style.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{html.text(contents.title)}</h1>\n{_subtitle(contents)}</header>\n"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main>\n{body}\n</main>\n'
        f"<footer>{html.text(contents.identity['report written by'].capitalize())} wrote this page. It is "
        f"one file and loads nothing from anywhere.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("residua.report").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """What the browser may do: nothing but this page's own style and script; no request can leave it."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _subtitle(contents: Contents) -> str:
    tables = counted(contents.tables, "table", "tables")
    numbers = counted(contents.numbers, "number", "numbers")
    if not contents.released:
        words = f"What {tables} with {numbers} would cost in privacy, and how wrong each number would be."
        return f'<p class="soft">{words} No data was touched.</p>\n'
    time = dict(contents.history).get("measured", "")
    line = f'<p class="soft">{tables} with {numbers}, measured {html.text(time)}.</p>\n'
    if contents.simulated:
        line += (
            '<p class="warning">Simulated: the noise of this release is predictable. It protects nobody '
            "and must not be published.</p>\n"
        )
    return line


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
