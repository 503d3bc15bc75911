"""One table per script: our figure, the printed one, the difference, and verdicts that can fail the run.

A printed figure is given as its text, so that its last digit is known: it stands for every number that
rounds to it.
"""

import argparse
from decimal import Decimal

WIDTHS = "{:<42}{:>16}{:>15}{:>12}  {}"


def only_fast(arguments: list[str] | None, about: str | None, left_out: str) -> bool:
    """Whether `--fast` was given, which leaves out what takes minutes; `arguments` are the command line's."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fast", action="store_true", help=f"leave out {left_out}")
    return bool(parser.parse_args(arguments).fast)


class Comparison:
    """A table under construction; every row is printed as soon as it is known."""

    def __init__(self, title: str) -> None:
        self.failures: list[str] = []
        self.rows = 0
        print(title)
        print(WIDTHS.format("figure", "ours", "theirs", "difference", "verdict"), flush=True)

    def agrees(self, name: str, ours: float | Decimal, theirs: str, note: str = "") -> None:
        """A figure that must be the printed one to its last digit."""
        self._row(name, ours, theirs, "agrees" if _side(ours, theirs) == 0 else "FAILED: must agree", note)

    def at_most(self, name: str, ours: float | Decimal, theirs: str, note: str = "") -> None:
        """A figure of merit: smaller is better, larger than printed is a failure."""
        verdict = {-1: "better", 0: "equal", 1: "FAILED: worse"}[_side(ours, theirs)]
        self._row(name, ours, theirs, verdict, note)

    def nearly(self, name: str, ours: float, theirs: str, tolerance: float, note: str = "") -> None:
        """A figure of merit of a search that may end elsewhere: larger by more than a part is a failure."""
        side = _side(ours, theirs)
        above = ours / float(theirs) - 1
        verdict = "better" if side < 0 else "equal" if side == 0 else f"{above:.1%} above, allowed"
        self._row(name, ours, theirs, verdict if above <= tolerance else "FAILED: worse", note)

    def at_least(self, name: str, ours: float | Decimal, theirs: str, note: str = "") -> None:
        """A lower bound: larger is tighter, smaller than printed is a failure."""
        verdict = {-1: "FAILED: looser", 0: "equal", 1: "tighter"}[_side(ours, theirs)]
        self._row(name, ours, theirs, verdict, note)

    def beside(self, name: str, ours: float | Decimal, theirs: str, reason: str) -> None:
        """A printed figure that cannot be held against us, for a reason that is printed with it."""
        self._row(name, ours, theirs, "not judged", reason)

    def impossible(self, name: str, bound: float, theirs: str, note: str = "") -> None:
        """A printed figure that our lower bound refutes: the bound must be above all that rounds to it."""
        verdict = "proved impossible" if _side(bound, theirs) == 1 else "FAILED: not refuted"
        self._row(name, bound, theirs, verdict, note)

    def close(self, name: str, ours: float, exact: float, tolerance: float, note: str = "") -> None:
        """A figure with a closed form: it must agree within a relative tolerance."""
        verdict = "agrees" if abs(ours / exact - 1) <= tolerance else "FAILED: must agree"
        self._print(name, f"{ours:.9g}", f"{exact:.9g}", f"{ours - exact:+.1e}", verdict, note)

    def exit_code(self) -> int:
        """0 where every row holds, otherwise 1; prints which do not."""
        print(f"{self.rows} figures, {len(self.failures)} failed")
        for name in self.failures:
            print(f"  failed: {name}")
        return 1 if self.failures or not self.rows else 0

    def _row(self, name: str, ours: float | Decimal, theirs: str, verdict: str, note: str) -> None:
        digits = len(Decimal(theirs).as_tuple().digits) + 2
        mine = Decimal(ours)
        difference = f"{mine - Decimal(theirs):+.1e}"
        self._print(name, f"{mine:.{digits}g}", theirs, difference, verdict, note)

    def _print(self, name: str, ours: str, theirs: str, difference: str, verdict: str, note: str) -> None:
        self.rows += 1
        if verdict.startswith("FAILED"):
            self.failures.append(f"{name}: ours {ours}, theirs {theirs}")
        print(WIDTHS.format(name, ours, theirs, difference, f"{verdict}{note and '; '}{note}"), flush=True)


def _side(ours: float | Decimal, theirs: str) -> int:
    """-1 below everything that rounds to the printed figure, 0 among it, 1 above."""
    printed = Decimal(theirs)
    exponent = printed.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{theirs!r} is not a finite number")
    half = Decimal((0, (5,), exponent - 1))
    off = Decimal(ours) - printed
    return 0 if abs(off) <= half else 1 if off > 0 else -1
