"""Laws about the repository itself: its locks, its text, its commands and the cost of importing it."""

import ast
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# Written in pieces so that this file does not break its own law.
HOME_FOLDERS = ("root", "tmp", "work", "home", "opt", "Users")
MACHINE_PATH = re.compile(rf"(?<![\w.)}}\]/-])/(?:{'|'.join(HOME_FOLDERS)})(?=/|\b(?!\w))")
REGISTRY_HOST = re.compile(
    "|".join((r"py" r"pi\.org", r"python" r"hosted\.", r"npm" r"js\.", r"deb" r"ian\.org"))
)

HEAVY = ("pyarrow", "duckdb", "pandas", "polars", "scipy.optimize")


def requirements(lock: Path) -> list[str]:
    """The entries of a lock, each with its continuation lines."""
    text = "\n".join(line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#"))
    return [entry for entry in re.sub(r"\\\n", " ", text).splitlines() if entry.strip()]


def repository_files() -> list[Path]:
    """Every file that is, or without an ignore rule would be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("platform: not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_there_are_locks_to_check():
    assert {lock.stem for lock in LOCKS} == {"run", "dev", "extras"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_is_exact_versions_with_hashes_and_nothing_else(lock):
    entry = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+( ; [^/@]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert requirements(lock)
    for requirement in requirements(lock):
        assert entry.fullmatch(requirement), requirement[:120]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_names_no_index_no_address_and_no_path(lock):
    assert not re.search(r"://|file:|--index|--extra-index|--find-links|(^|\s)[./~]", lock.read_text())


def test_the_locks_agree_on_every_version():
    pins: dict[str, set[str]] = {}
    for lock in LOCKS:
        for requirement in requirements(lock):
            pin, _, marker = requirement.split(" --hash", 1)[0].partition(" ; ")
            name, version = pin.strip().split("==")
            pins.setdefault(f"{name} ; {marker.strip()}", set()).add(version)
    assert not {name: versions for name, versions in pins.items() if len(versions) > 1}


def test_no_file_names_a_machine_or_a_registry():
    found = []
    for path in repository_files():
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), start=1):
            if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found


@pytest.mark.parametrize("folder", HOME_FOLDERS)
def test_the_search_for_machine_paths_finds_them_and_only_them(folder):
    assert MACHINE_PATH.search(f'open("/{folder}/x")')
    assert MACHINE_PATH.search(f"in /{folder}.")
    assert not MACHINE_PATH.search(f"src/residua/{folder}load/x.py")
    assert not MACHINE_PATH.search(f"total/{folder}")


def test_the_commands_in_the_readme_are_targets_of_the_makefile():
    commands = set(
        re.findall(r"(?:^ {4}|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    )
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test"} <= commands <= targets


def test_the_example_in_the_readme_is_short_and_runs(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 15
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_every_file_that_the_readme_points_to_exists():
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\((\S+?)\)|src=\"(\S+?)\"", text)
    assert len(links) > 10
    for link in (first or second for first, second in links):
        assert (ROOT / link).exists(), link


def test_no_annotation_joins_a_type_with_a_quoted_one():
    """`ArrayLike | "SparseMatrix"` is an error from numpy 2.5 on, where ArrayLike is no ordinary type."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                sides = (side for side in (node.left, node.right) if isinstance(side, ast.Constant))
                found += [f"{path.name}:{node.lineno}" for side in sides if isinstance(side.value, str)]
    assert not found


def test_the_build_machine_tries_the_wheel():
    assert "test-wheel" in (ROOT / ".ci" / "run").read_text()


def test_importing_residua_takes_less_than_half_a_second_of_cpu_or_twice_what_numpy_takes():
    """Half a second on a quiet machine; on a busy one numpy, which is most of it, takes longer as well."""
    seconds: dict[str, list[float]] = {"numpy": [], "residua": []}
    for package in [*seconds] * 3:
        before = cpu_seconds_of_children()
        subprocess.run([sys.executable, "-c", f"import {package}"], check=True)
        seconds[package].append(cpu_seconds_of_children() - before)
    assert min(seconds["residua"]) < max(0.5, 2 * min(seconds["numpy"]))


def test_importing_residua_loads_no_heavy_package():
    program = f"import sys, residua; print(*(name for name in {HEAVY} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
