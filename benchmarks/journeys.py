"""How many files planning, measuring and answering pass through: those with a function that is executed.

Prints the files of three journeys with the functions and lines of each that run; names and limits are looked
up before, and what runs while modules are imported does not count.

    python benchmarks/journeys.py
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import residua as rs
from residua import Ledger, measure, plan, stddev

SOURCE = str(Path(rs.__file__).parent)
PEOPLE = {"age": [3, 5, 5, 8], "sex": ["F", "M", "F", "M"], "work": ["no", "yes", "yes", "no"]}

Passed = dict[str, tuple[set[CodeType], set[int]]]
"""By file of the package, the code of the functions and the lines that ran."""


def passed(journey: Callable[[], object]) -> Passed:
    """The files that a journey passes through."""
    found: Passed = defaultdict(lambda: (set(), set()))

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE) or code.co_name == "<module>":
            return None
        if event == "call" and importing(frame):
            return None
        codes, lines = found[code.co_filename[len(SOURCE) + 1 :]]
        codes.add(code)
        lines.add(frame.f_lineno)
        return traced

    sys.settrace(traced)
    try:
        journey()
    finally:
        sys.settrace(None)
    return dict(found)


def importing(frame: FrameType) -> bool:
    """Whether a module of the package is being loaded, and calls this."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(SOURCE):
            return True
        above = above.f_back
    return False


def journeys(folder: Path) -> dict[str, Passed]:
    """The three journeys: marginals at a budget, marginals for a target, and data to answers."""
    schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"), work=rs.Categorical("yes", "no"))
    work, budget, target = rs.marginals(schema, up_to=2), rs.zcdp("0.1"), stddev(5)
    made: list[rs.Plan] = []
    found = {"planning marginals": passed(lambda: made.append(plan(work, budget)))}
    found["planning targets"] = passed(lambda: plan(work, targets=target))
    ledger = Ledger.create(folder / "budget.db", rs.zcdp(1), dataset="people")

    def answered() -> object:
        table = measure(made[0], PEOPLE, ledger=ledger).table("sex", "work")
        return table.values, table.stddev

    return found | {"measuring and answering": passed(answered)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, files in journeys(Path(folder)).items():
            lines = sum(len(own) for _, own in files.values())
            print(f"{name}: {len(files)} files, {lines:,} lines")
            for file, (codes, own) in sorted(files.items()):
                print(f"  {file:<36} {len(codes):>4} functions {len(own):>5} lines")


if __name__ == "__main__":
    main()
