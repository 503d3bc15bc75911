"""Root mean square error of hybrid tables: prefix on numeric attributes, counts on categorical ones.

QuerySmasher, Table 2, on the schemas of Adult, CPS and Loans at privacy cost 1. WFF must agree to the last
digit, our QuerySmasher must not be above theirs. Takes seconds.
"""

import sys

from _comparison import Comparison
from _figures import Printed, compare_row, dataset

import residua as rs

WAYS = {"1-way": (1,), "2-way": (2,), "3-way": (3,), "<=3-way": (1, 2, 3)}

PRINTED = {
    ("Adult", "1-way"): Printed("588", "5.11", "5.648", "5.804", "5.047"),
    ("Adult", "2-way"): Printed("148,137", "17.63", "21.111", "22.493", "17.632"),
    ("Adult", "3-way"): Printed("20,894,536", "47.19", "60.025", "66.934", "47.055"),
    ("Adult", "<=3-way"): Printed("21,043,261", "48.90", "61.613", "66.794", "47.853"),
    ("CPS", "1-way"): Printed("163", "3.18", "3.347", "3.589", "3.135"),
    ("CPS", "2-way"): Printed("7,000", "6.36", "6.625", "7.841", "6.194"),
    ("CPS", "3-way"): Printed("72,556", "8.12", "8.634", "10.267", "7.903"),
    ("CPS", "<=3-way"): Printed("79,719", "8.39", "8.623", "10.594", "8.140"),
    ("Loans", "1-way"): Printed("532", "4.73", "5.127", "5.330", "4.670"),
    ("Loans", "2-way"): Printed("118,974", "14.91", "17.149", "18.736", "14.822"),
    ("Loans", "3-way"): Printed("14,539,522", "36.11", "42.938", "49.823", "36.095"),
    ("Loans", "<=3-way"): Printed("14,659,028", "36.65", "44.338", "49.721", "36.410"),
}


def workload(name: str, ways: str) -> rs.Workload:
    """All hybrid tables on so many attributes."""
    return rs.all_tables(dataset(name), WAYS[ways], numeric=rs.prefix, categorical=rs.identity)


def main() -> int:
    table = Comparison("QuerySmasher, Table 2: hybrid tables, RMSE at privacy cost 1")
    for (name, ways), printed in PRINTED.items():
        compare_row(table, f"{name} {ways}", workload(name, ways), printed)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
