"""Make a version: `make release VERSION=0.2.0`. Stops at the first thing that is not as it must be.

A clean checkout, every tier of tests, the changelog cut, wheel and sdist built and tried with every Python on
the machine, then a commit and a tag; nothing is sent anywhere. The two files are left in dist/.

Some tiers take hours. One that passed on the very files of this checkout is noted in .tiers/ and not run
again, so what stopped can go on; whatever stops after the changelog was cut leaves the checkout as it was.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"
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
    run_tiers(ROOT / ".tiers" / _git("rev-parse", "HEAD^{tree}").strip())
    try:
        write_version(version)
        wheel, sdist = built(ROOT / "dist")
        if apart := different(wheel, sdist):
            raise SystemExit(f"wheel and sdist differ in {', '.join(sorted(apart)[:5])}")
        subprocess.run([PYTHON, "-u", "tests/wheel/every_python.py", wheel], cwd=ROOT, check=True)
        _git("commit", "--all", "--message", f"Version {version}")
    except BaseException:
        _git("checkout", "--", ".")
        raise
    _git("tag", "--annotate", version, "--message", f"Version {version}")
    print(f"Version {version} is committed and tagged; push both, and {wheel} and {sdist}, when you mean it.")


def run_tiers(passed: Path) -> None:
    """Run every tier that has not passed on these files."""
    passed.parent.mkdir(exist_ok=True)
    for tier in TIERS:
        if passed.exists() and tier in passed.read_text(encoding="utf-8").split():
            print(f"== make {tier}: passed on these files before", flush=True)
            continue
        print(f"== make {tier}", flush=True)
        began = time.monotonic()
        subprocess.run(["make", tier], cwd=ROOT, check=True)
        print(f"== make {tier}: passed in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
        with open(passed, "a", encoding="utf-8") as notes:
            notes.write(f"{tier}\n")


def write_version(version: str) -> None:
    """Cut the changelog, and put the version in its places."""
    changelog, today = ROOT / "CHANGELOG.md", datetime.now(UTC).date().isoformat()
    changelog.write_text(cut(changelog.read_text(encoding="utf-8"), version, today), encoding="utf-8")
    for place, pattern in PLACES.items():
        path = ROOT / place
        path.write_text(numbered(path.read_text(encoding="utf-8"), pattern, version), encoding="utf-8")


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
    """Wheel and sdist of the checkout, by the build tool that is locked, and nothing else in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    _hatchling(ROOT, "-t", "wheel", "-t", "sdist", "-d", folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def different(wheel: Path, sdist: Path) -> set[str]:
    """What a wheel built from the sdist alone has other than this one: then trying one tries both."""
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sdist) as archive:
            archive.extractall(name, filter="data")
        [source] = Path(name).iterdir()
        _hatchling(source, "-t", "wheel", "-d", Path(name, "again"))
        [again] = Path(name, "again").glob("*.whl")
        return {name for name, _ in set(_members(wheel)) ^ set(_members(again))}


def _members(wheel: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _hatchling(source: Path, *words: str | Path) -> None:
    subprocess.run([ROOT / ".venv" / "bin" / "hatchling", "build", *words], cwd=source, check=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
