"""How many threads BLAS uses: one for small matrices, where two get in each other's way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

LARGE = 2_000  # rows from which a second thread surely makes a decomposition faster


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Within it, BLAS uses one thread for matrices of up to 2,000 rows, otherwise every processor."""
    with _controller().limit(limits=1 if rows <= LARGE else processors(), user_api="blas"):
        yield


@cache
def _controller() -> Any:
    """What knows the BLAS libraries that are loaded; looking for them takes milliseconds."""
    import scipy.linalg  # noqa: F401  # brings its own BLAS, which would not be found before
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
