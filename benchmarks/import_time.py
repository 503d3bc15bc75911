"""Processor seconds of `import residua`, and the ratio to importing only numpy.

Each is the least of five fresh interpreters. Fails above half a second.
"""

import resource
import subprocess
import sys

from _timing import Limits

LIMIT = 0.5
REPEATS = 5


def cpu_seconds(statement: str) -> float:
    """Processor seconds of an interpreter that runs one statement, the least of several."""
    return min(_once(statement) for _ in range(REPEATS))


def _once(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    limits = Limits()
    bare = cpu_seconds("import numpy")
    ours = cpu_seconds("import residua")
    print(f"numpy {bare:.3f} s, residua {ours:.3f} s, ratio {ours / bare:.2f}")
    limits.check(ours < LIMIT, f"import residua takes {ours:.2f} s of the processor, not {LIMIT} s")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
