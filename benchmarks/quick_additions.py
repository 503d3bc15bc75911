"""A table added to a survey of 20 columns, planned at quick effort: what somebody at a screen waits for.

Three surveys (single columns, all pairs, a choice of tables), 27 additions to each, in one interpreter that
has planned before. Fails if one takes more than 2 processor seconds, or if a plan of quick effort is more
than 5% above that of normal effort where `--normal` asks for both. Seconds are indicative; the limits are for
an idle machine.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from _ordinary import categories
from _timing import Limits, timed

import residua as rs

WORST, LOSS = 2.0, 1.05
BUDGET = rs.zcdp("0.1")

PLACE = rs.Hierarchy(("state", "county"), [(f"s{at // 8}", f"c{at}") for at in range(40)])
SCHEMA = rs.Schema(
    {
        "age": rs.Integer(0, 99),
        "sex": rs.Categorical("F", "M"),
        "region": categories(12)["q1"],
        "place": PLACE,
        "hours": rs.Integer(0, 60),
        "children": rs.Integer(0, 19),
        "income": rs.Number(0, 200_000, step=1000),
        **categories(5, 5, 5, 4, 4, 7, 3, 2, 10, 6, 3, 2, 8),
    }
)
PLAIN = [name for name in SCHEMA.names if name != "income"]


def table(**families: Any) -> rs.Workload:
    return rs.table(SCHEMA, families)


def counts(*names: str) -> rs.Workload:
    return rs.table(SCHEMA, list(names))


def sql(text: str) -> rs.Workload:
    return rs.sql(SCHEMA, text)


def chosen() -> rs.Workload:
    """Single columns, and tables as an office would choose them."""
    found = singles() + counts("age", "sex") + counts("region", "q1") + counts("sex", "q3", "q4")
    return found + counts("hours", "sex") + counts("place", "sex") + table(age=rs.prefix, sex=rs.identity)


def singles() -> rs.Workload:
    return sum((counts(name) for name in PLAIN[1:]), start=counts(PLAIN[0]))


def pairs() -> rs.Workload:
    named = [(one, two) for at, one in enumerate(PLAIN) for two in PLAIN[:at]]
    return sum((counts(*both) for both in named), start=singles())


SURVEYS: dict[str, Callable[[], rs.Workload]] = {"singles": singles, "chosen": chosen, "pairs": pairs}
TENS = rs.buckets(*(range(at, at + 10) for at in range(0, 100, 10)))
ADDITIONS: dict[str, Callable[[], rs.Workload]] = {
    "pair": lambda: counts("q1", "q2"),
    "three columns": lambda: counts("sex", "region", "q3"),
    "three columns of 12,000 cells": lambda: counts("age", "region", "q9"),
    "four columns": lambda: counts("sex", "region", "q3", "q6"),
    "cumulative ages": lambda: table(age=rs.prefix),
    "cumulative ages by sex": lambda: table(age=rs.prefix, sex=rs.identity),
    "cumulative ages by region": lambda: table(age=rs.prefix, region=rs.identity),
    "cumulative ages and hours": lambda: table(age=rs.prefix, hours=rs.prefix),
    "ranges of ages": lambda: table(age=rs.ranges),
    "ranges of ages by sex": lambda: table(age=rs.ranges, sex=rs.identity),
    "ranges of hours by q1": lambda: table(hours=rs.ranges, q1=rs.identity),
    "age groups by sex": lambda: table(age=TENS, sex=rs.identity),
    "five-year windows": lambda: table(age=rs.width(5)),
    "five-year windows by region": lambda: table(age=rs.width(5), region=rs.identity),
    "states by sex": lambda: table(place=rs.level("state"), sex=rs.identity),
    "counties by age": lambda: counts("place", "age"),
    "sums of hours and children": lambda: rs.table(SCHEMA, {("hours", "children"): rs.affine}),
    "differences of both": lambda: rs.table(SCHEMA, {("hours", "children"): rs.abs_diff}),
    "income by sex": lambda: table(sex=rs.identity, income=[rs.total, rs.sum]),
    "income by region and q1": lambda: table(region=rs.identity, q1=rs.identity, income=rs.sum),
    "income by cumulative age": lambda: table(age=rs.prefix, income=rs.sum),
    "a condition": lambda: sql("SELECT region, COUNT(*) FROM t WHERE age >= 65 GROUP BY region"),
    "two conditions": lambda: sql(
        "SELECT region, COUNT(*) FROM t WHERE age >= 65 AND hours < 20 GROUP BY region"
    ),
    "one or the other": lambda: sql(
        "SELECT region, COUNT(*) FROM t WHERE age >= 65 OR hours < 20 GROUP BY region"
    ),
    "one of three": lambda: sql(
        "SELECT sex, COUNT(*) FROM t WHERE age >= 65 OR hours < 20 OR q1 = 'answer 1' GROUP BY sex"
    ),
    "some answers": lambda: sql(
        "SELECT q3, COUNT(*) FROM t WHERE q9 IN ('answer 1', 'answer 2') AND sex = 'F' GROUP BY q3"
    ),
    "cases": lambda: sql(
        "SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'old' END, sex, COUNT(*) "
        "FROM t GROUP BY 1, 2"
    ),
}


def main() -> int:
    normal, limits, worst = "--normal" in sys.argv, Limits(), 0.0
    words = [each for each in sys.argv[1:] if each != "--normal"]
    rs.plan(singles() + ADDITIONS["one of three"](), BUDGET, effort="quick")  # loads all that is used
    for survey, make in SURVEYS.items():
        before = make()
        for name, add in ADDITIONS.items():
            if not all(word in f"{survey} {name}" for word in words):
                continue
            work = before + add()
            found = timed(partial(rs.plan, work, BUDGET, effort="quick"))
            plan, worst = found.result, max(worst, found.cpu)
            line = f"{survey:9}{name:32}{found.cpu:6.2f} s  rmse {plan.rmse:10.4f}"
            if normal:
                better = timed(partial(rs.plan, work, BUDGET))
                line += f"  normal {better.cpu:6.2f} s {better.result.rmse:10.4f}"
                limits.check(plan.rmse <= LOSS * better.result.rmse, f"{survey}, {name}: far worse")
            print(line, flush=True)
            limits.check(found.cpu <= WORST, f"{survey}, {name}: {found.cpu:.2f} processor seconds")
    print(f"worst {worst:.2f} processor seconds")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
