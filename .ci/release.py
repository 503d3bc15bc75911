"""Make a version: `make release VERSION=0.2.0`. Stops at the first thing that is not as it must be.

A clean checkout, every tier of tests, the changelog cut, wheel and sdist built and tried with every Python on
the machine, then a commit and a tag; nothing is sent anywhere.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIERS = ("check", "test", "test-wheel", "test-extras", "docs", "stress", "reproduce")
PLACES = {
    "pyproject.toml": r'(?m)^version = "(.+)"$',
    "src/residua/version.py": r'(?m)^__version__ = "(.+)"$',
    "CITATION.cff": r"(?m)^version: (.+)$",
}


def main(version: str) -> None:
    """All steps in order."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"{version!r} is no version; give VERSION=0.2.0")
    if _git("status", "--porcelain"):
        raise SystemExit("the checkout is not clean: commit or remove what is there first")
    if version in _git("tag", "--list").split():
        raise SystemExit(f"there is a version {version} already")
    for tier in TIERS:
        print(f"== make {tier}", flush=True)
        subprocess.run(["make", tier], cwd=ROOT, check=True)
    changelog = ROOT / "CHANGELOG.md"
    changelog.write_text(
        cut(changelog.read_text(encoding="utf-8"), version, datetime.now(UTC).date().isoformat()),
        encoding="utf-8",
    )
    for place, pattern in PLACES.items():
        path = ROOT / place
        path.write_text(numbered(path.read_text(encoding="utf-8"), pattern, version), encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        wheel, sdist = built(Path(name))
        if missing := lacking(wheel, sdist):
            raise SystemExit(f"the sdist lacks {', '.join(sorted(missing)[:5])}")
    subprocess.run(
        ["make", "test-wheel"], cwd=ROOT, check=True
    )  # the wheel of this version, installed and tried
    _git("commit", "--all", "--message", f"Version {version}")
    _git("tag", "--annotate", version, "--message", f"Version {version}")
    print(f"Version {version} is committed and tagged; push both when you mean it.")


def cut(text: str, version: str, date: str) -> str:
    """The changelog with what was unreleased under the version, and nothing unreleased."""
    head, mark, rest = text.partition("## [Unreleased]\n")
    entries = rest.partition("\n## [")[0].strip()
    if not mark or "- " not in entries:
        raise SystemExit("the changelog has nothing under [Unreleased]: what would this version be for?")
    return f"{head}{mark}\n## [{version}] - {date}\n{rest}"


def numbered(text: str, pattern: str, version: str) -> str:
    """A file with its version replaced; it must have one."""
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"no version matches {pattern}")
    return text[: found.start(1)] + version + text[found.end(1) :]


def built(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist of the checkout, by the build tool that is locked."""
    subprocess.run(
        [ROOT / ".venv" / "bin" / "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder],
        cwd=ROOT,
        check=True,
    )
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def lacking(wheel: Path, sdist: Path) -> set[str]:
    """Modules of the wheel that the sdist does not have."""
    with zipfile.ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if name.startswith("residua/")}
    with tarfile.open(sdist) as archive:
        source = {name.partition("/src/")[2] for name in archive.getnames()}
    return modules - source


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
