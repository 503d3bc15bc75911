"""Habits of the project: one version everywhere, releases cut rightly, hosted builds that run what we run."""

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from residua import __version__

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("release_script", ROOT / ".ci" / "release.py")
assert SPEC is not None
assert SPEC.loader is not None
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


def test_every_place_has_the_same_version():
    for place, pattern in release.PLACES.items():
        assert re.findall(pattern, (ROOT / place).read_text(encoding="utf-8")) == [__version__], place


def test_a_version_is_written_in_its_place_only():
    text = 'name = "x"\nversion = "0.1.0"\nother = "0.1.0"\n'
    assert release.numbered(text, release.PLACES["pyproject.toml"], "0.2.0") == text.replace(
        'version = "0.1.0"', 'version = "0.2.0"'
    )
    with pytest.raises(SystemExit, match="no version"):
        release.numbered("nothing", release.PLACES["CITATION.cff"], "0.2.0")


def test_the_changelog_is_cut_and_an_empty_one_is_refused():
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- This.\n\n## [0.1.0] - 2025-01-01\n\n- That.\n"
    after = release.cut(text, "0.2.0", "2026-01-02")
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-01-02\n\n### Added\n\n- This.\n" in after
    with pytest.raises(SystemExit, match="nothing under"):
        release.cut(after, "0.3.0", "2026-01-03")
    release.cut((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "9.9.9", "2030-01-01")


def test_a_release_needs_a_version_and_runs_every_tier():
    with pytest.raises(SystemExit, match="is no version"):
        release.main("next")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(release.TIERS) <= targets
    [line] = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    assert set(line.split()) <= set(release.TIERS)


def test_the_sdist_alone_builds_the_same_wheel(tmp_path):
    wheel, sdist = release.built(tmp_path / "dist")
    assert release.different(wheel, sdist) == set()


def test_a_tier_that_passed_on_the_same_files_is_not_run_again(tmp_path, monkeypatch):
    run = []

    def failing(command, **named):
        run.append(command[1])
        if command[1] == "stress" and run.count("stress") == 1:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(release.subprocess, "run", failing)
    with pytest.raises(subprocess.CalledProcessError):
        release.run_tiers(tmp_path / "tiers" / "these")
    before = len(run)
    release.run_tiers(tmp_path / "tiers" / "these")
    assert run[before - 1 :] == ["stress", "stress", "reproduce"]
    assert set(run) == set(release.TIERS)
    release.run_tiers(tmp_path / "tiers" / "others")
    assert run[before + 2 :] == list(release.TIERS)


def test_the_hosted_build_runs_what_the_build_machine_runs():
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands["linux"] == [".ci/run"]
    [words] = commands["pythons"]
    run = (ROOT / ".ci" / "run").read_text()
    assert set(words.split()[2:]) <= set(re.search(r"^make (.+)$", run, flags=re.MULTILINE)[1].split())
    makefile = (ROOT / "Makefile").read_text()
    tests = re.search(r"^TESTS := (.+)$", makefile, flags=re.MULTILINE)[1]
    assert any(tests in command for command in commands["windows"])
    assert {"3.11", "3.14"} <= set(jobs["pythons"]["strategy"]["matrix"]["python"])


def test_hooks_before_commits_run_the_locked_tools():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert all(hook["language"] == "system" for hook in hooks)
    assert {hook["entry"].split()[0] for hook in hooks} == {".venv/bin/ruff", "make"}


def test_the_citation_says_what_the_package_says():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["license"] == project["license"]
    assert set(cited["keywords"]) == set(project["keywords"])
    assert cited["cff-version"] == "1.2.0"
