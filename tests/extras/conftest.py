"""What tests of pages need: one browser for all of them."""

import os
from collections.abc import Iterator

import pytest
from chromium import AXE, CHROMIUM, REMEDY, Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    missing = [what for what, there in (("chromium", CHROMIUM), ("axe-core", AXE.exists())) if not there]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"there is no {' and no '.join(missing)} on the build machine; {REMEDY}")
    if missing:
        pytest.skip(f"platform: there is no {' and no '.join(missing)} here; {REMEDY}")
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()
