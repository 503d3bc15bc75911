"""How many threads BLAS uses: one for small matrices, where two get in each other's way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 2_000  # rows from which a second thread surely makes a decomposition faster


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Within it, BLAS uses one thread for matrices of up to 2,000 rows, otherwise every processor."""
    import scipy.linalg  # noqa: F401  # brings its own BLAS, which a limit set before would not reach
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1 if rows <= LARGE else processors(), user_api="blas"):
        yield


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
