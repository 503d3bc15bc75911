"""The wheel as users get it: built, installed for every Python on the machine, tried away from the checkout.

Run as `make test-wheel`, or with the path of a wheel that was built before. A Python is any `python3.x` on
the PATH, and any that pyenv keeps, from the oldest that the package supports on; one of each version is
tried. What cannot run is passed over with a word.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "run.txt"
SUITE = Path(__file__).parent / "test_wheel.py"
NAME = re.compile(r"python3\.(\d+)")
QUESTION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")

Version = tuple[int, int]


def declared() -> set[Version]:
    """The versions that the package says it supports."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        lines = tomllib.load(file)["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line) for line in lines)
    return {(3, int(match[1])) for match in found if match}


def candidates(environment: Mapping[str, str], oldest: Version) -> Iterator[Path]:
    """What may be a Python of this version or a later one."""
    for folder in environment.get("PATH", "").split(os.pathsep):
        if folder and Path(folder).is_dir():
            for path in sorted(Path(folder).iterdir()):
                named = NAME.fullmatch(path.name)
                if named and (3, int(named[1])) >= oldest:
                    yield path
    pyenv = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))


def asked(python: Path) -> Version | str:
    """The version of a Python that can make environments, or why it is none."""
    try:
        found = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if found.returncode:
        lines = found.stderr.strip().splitlines() or ["it does not run"]
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]
    major, minor = found.stdout.split()
    return int(major), int(minor)


def pythons(environment: Mapping[str, str], oldest: Version) -> dict[Version, Path]:
    """The first Python of each version; says what is passed over."""
    found: dict[Version, Path] = {}
    for python in candidates(environment, oldest):
        version = asked(python)
        if isinstance(version, str):
            print(f"passed over {python}: {version}")
        elif version >= oldest:
            found.setdefault(version, python)
    return dict(sorted(found.items()))


def wheel_in(folder: Path) -> Path:
    """The wheel, built from the checkout by what is installed beside this interpreter."""
    command = [
        sys.executable,
        *PIP,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        ROOT,
    ]
    subprocess.run(command, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(python: Path, wheel: Path, folder: Path) -> bool:
    """Whether the wheel and what it needs could be installed in a new environment."""
    inside = folder / "bin" / "python"
    install = [inside, *PIP, "install", "--no-compile", "--only-binary=:all:"]
    steps = (
        [python, "-m", "venv", folder],
        [*install, "--no-deps", "--require-hashes", "-r", LOCK],
        [*install, "--no-deps", wheel],
    )
    return all(subprocess.run(step, check=False).returncode == 0 for step in steps)


def tried(folder: Path) -> bool:
    """Whether demo and suite pass in an environment, run where nothing of the checkout can be seen."""
    outside = folder / "outside"
    outside.mkdir()
    suite = shutil.copy(SUITE, outside)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for command in (
        [folder / "bin" / "residua", "demo", outside / "demo"],
        [folder / "bin" / "python", "-W", "error", suite],
    ):
        run = subprocess.run(command, cwd=outside, env=clean, capture_output=True, text=True, check=False)
        if run.returncode:
            print(run.stdout[-2000:], run.stderr[-4000:], sep="\n")
            return False
    return True


def main(given: Path | None = None) -> int:
    """0 where the wheel works with every Python that was found and that the package supports."""
    supported = declared()
    found = pythons(os.environ, min(supported))
    failed = []
    with tempfile.TemporaryDirectory() as name:
        wheel = given or wheel_in(Path(name))
        for version, python in found.items():
            words = f"Python {version[0]}.{version[1]}"
            folder = Path(name) / words.replace(" ", "-")
            if not installed(python, wheel, folder):
                print(f"{words}: what the package needs cannot be installed")
                failed += [words] if version in supported else []
            elif tried(folder):
                print(f"{words}: the demo and the suite pass")
            else:
                print(f"{words}: FAILED")
                failed.append(words)
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
