"""The rule that a skip must give an allowed reason, tried on small test runs of its own."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def outcomes_of(pytester: pytest.Pytester):
    """A function from the text of a test module to the counts of its outcomes under our conftest."""
    pytester.makeconftest(CONFTEST.read_text())

    def run(source: str, *options: str) -> dict[str, int]:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options).parseoutcomes()

    return run


def test_a_skip_with_an_allowed_reason_stays_a_skip(outcomes_of):
    source = """
        import pytest

        @pytest.mark.skip(reason="platform: no such processor")
        def test_marked(): ...

        def test_called():
            pytest.skip("data: the Adult extract is not here")
    """
    assert outcomes_of(source) == {"skipped": 2}


def test_a_skip_with_any_other_reason_fails(outcomes_of):
    source = """
        import pytest

        @pytest.mark.skip(reason="flaky")
        def test_marked(): ...

        def test_called():
            pytest.skip("not today")

        @pytest.fixture
        def thing():
            pytest.skip("database: not today")

        def test_skipped_by_its_fixture(thing): ...

        def test_run(): ...
    """
    outcomes = outcomes_of(source)
    assert outcomes.pop("passed") == 1
    assert outcomes.pop("failed", 0) + outcomes.pop("errors", 0) == 3
    assert not outcomes


def test_a_module_skipped_as_a_whole_is_an_error(outcomes_of):
    assert outcomes_of("import pytest; pytest.importorskip('no_such_package')") == {"errors": 1}


def test_a_skipped_example_in_a_docstring_fails(outcomes_of):
    source = '''
        def half(x):
            """
            >>> half(2)  # doctest: +SKIP
            1
            """
    '''
    assert outcomes_of(source, "--doctest-modules") == {"failed": 1}


def test_an_expected_failure_is_no_skip(outcomes_of):
    source = """
        import pytest

        @pytest.mark.xfail(reason="known")
        def test_wrong():
            assert False
    """
    assert outcomes_of(source) == {"xfailed": 1}
