"""What the benchmarks share: seconds of one call, and a list of broken limits."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timed(Generic[Result]):
    """A result, with the wall and processor seconds it took."""

    result: Result
    wall: float
    cpu: float


def timed(call: Callable[[], Result]) -> Timed[Result]:
    """The call's result and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return Timed(result, time.perf_counter() - wall, time.process_time() - cpu)


class Limits:
    """Limits of a benchmark: which were broken, and the exit code that says so."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def check(self, holds: bool, otherwise: str) -> None:
        """Remember `otherwise` unless the limit holds."""
        if not holds:
            self.broken.append(otherwise)

    def exit_code(self) -> int:
        """0 where every limit held, otherwise 1; prints those that did not."""
        for limit in self.broken:
            print(f"FAILED: {limit}")
        if not self.broken:
            print("all limits held")
        return 1 if self.broken else 0
