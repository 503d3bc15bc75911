"""Rules for every test: the hypothesis profiles, no skip without a known reason; and what many tests use."""

import os
import re
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from residua.strategy.strategy import Strategy

# A skip must say which of these it is; any other skip fails the run, so no test disappears quietly.
ALLOWED_SKIPS = (
    "data: ",  # needs files that are not in the repository, such as the Adult extract
    "platform: ",  # cannot be tried on this operating system, interpreter or checkout
)

# deadline=None: no test depends on time. The build machine draws the same examples every run.
settings.register_profile("developer", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("build" if os.environ.get("CI") == "true" else "developer")


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def complaint(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """What is wrong with a skip, or None where the report is no skip or an allowed one."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if reason.startswith(ALLOWED_SKIPS):
        return None
    return f"unexpected skip ({reason}): its reason must start with one of {ALLOWED_SKIPS}"


class NoUnexpectedSkips:
    """Turns a skip of a test, or of a whole module, into a failure unless its reason is an allowed one."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        return fail_unexpected_skip((yield))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return fail_unexpected_skip((yield))


def fail_unexpected_skip(report: Report) -> Report:
    """The same report, failed if it was an unexpected skip."""
    problem = complaint(report)
    if problem is not None:
        report.outcome = "failed"
        report.longrepr = problem
    return report


def pytest_configure(config: pytest.Config) -> None:
    # Registered as a plugin, not as hooks of this file, so that examples in src are covered too.
    config.pluginmanager.register(NoUnexpectedSkips(), "no-unexpected-skips")


@pytest.fixture
def answered_by() -> Callable[["Strategy"], str]:
    """Names the answerer that was chosen for a strategy by its structure, such as `nested`."""
    return lambda strategy: type(strategy.answerer).__name__.lower()


def second() -> float:
    """What this machine, busy as it is now, makes of a plain loop that takes a second on a quiet one."""
    began = time.process_time()
    total = 0
    for at in range(1_000_000):
        total += at * at % 7
    return 10 * (time.process_time() - began)


@pytest.fixture
def pace() -> Callable[[], float]:
    """How many times longer than on a quiet machine work takes on this one now."""
    return second


@pytest.fixture
def within() -> Callable[[float], AbstractContextManager[None]]:
    """Asserts that a block takes at most so many seconds, which are longer on a slow or busy machine."""

    @contextmanager
    def measured(seconds: float) -> Generator[None, None, None]:
        began = time.process_time()
        yield
        took = time.process_time() - began
        assert took < seconds or took < seconds * second()

    return measured


FENCE = re.compile(r"^```([a-z]*)(?: title=\"(.*?)\")?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def run_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], None]:
    """Does what a page of the documentation tells people to do, block by block, in an empty folder.

    `python` blocks share their names; `sh` blocks are lines of `residua`; a block with a title is the content
    of that file; and `text` titled Output is what the block before it printed.
    """

    def run(page: Path) -> None:
        from typer.testing import CliRunner

        from residua.cli import app

        monkeypatch.chdir(tmp_path)
        names: dict[str, object] = {"__name__": "page"}
        for kind, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if title == "Output":
                assert capsys.readouterr().out.strip() == text.strip(), page.name
            elif title:
                Path(title).write_text(text, encoding="utf-8")
            elif kind == "python":
                capsys.readouterr()
                exec(compile(text, str(page), "exec"), names)
            elif kind == "sh":
                for line in text.splitlines():
                    name, *words = shlex.split(line, comments=True)
                    assert name == "residua", line
                    result = CliRunner().invoke(app, words)
                    assert result.exit_code == 0, (line, result.output)
            else:
                assert kind == "text", f"{page.name}: a block of {kind or 'no kind'} that nobody runs"

    return run
