"""Root mean square error of all tables on one and two of 40 attributes, for seven types of queries.

QuerySmasher, Table 4, at privacy cost 1. WFF must agree to the last digit, our QuerySmasher must not be above
theirs. The counts say that affine and abs pairs come with prefixes on single attributes; what random queries
are is told in `_synthetic.py`, and those are compared up to the spread of draws.

Takes about five minutes, nearly all of it on random queries of sizes 40 and 50; `--fast` leaves those out.
"""

import sys

from _comparison import Comparison, only_fast
from _figures import Printed
from _synthetic import compare_kind, tables

LARGE = 40  # random queries from this size on take minutes

PRINTED = {
    (10, "marginal"): Printed("78,400", "23.48", "23.48", "23.48", "23.48"),
    (10, "prefix"): Printed("78,400", "36.23", "52.35", "39.70", "33.70"),
    (10, "range"): Printed("2,361,700", "48.95", "68.98", "41.36", "41.08"),
    (10, "circular"): Printed("7,804,000", None, None, "39.77", "39.77"),
    (10, "affine"): Printed("15,220", "62.48", None, "45.23", "28.25"),
    (10, "abs"): Printed("8,200", "85.99", None, "64.11", "35.85"),
    (10, "random"): Printed("235,200", None, None, "107.81", "104.43"),
    (20, "marginal"): Printed("312,800", "25.70", "25.70", "25.70", "25.70"),
    (20, "prefix"): Printed("312,800", "52.63", "80.01", "62.95", "49.51"),
    (20, "range"): Printed("34,406,400", "75.44", "109.56", "63.58", "63.32"),
    (20, "circular"): Printed("124,816,000", None, None, "63.01", "63.01"),
    (20, "affine"): Printed("31,220", "110.30", None, "70.31", "35.71"),
    (20, "abs"): Printed("16,400", "152.41", None, "102.54", "39.49"),
    (20, "random"): Printed("938,400", None, None, "234.89", "233.69"),
    (30, "marginal"): Printed("703,200", "26.46", "26.46", "26.46", "26.46"),
    (30, "prefix"): Printed("703,200", "63.10", "98.35", "79.09", "60.81"),
    (30, "range"): Printed("168,674,100", "93.22", "137.92", "79.02", "78.79"),
    (30, "circular"): Printed("631,836,000", None, None, "79.14", "79.14"),
    (30, "affine"): Printed("47,220", "149.68", None, "87.62", "44.36"),
    (30, "abs"): Printed("24,600", "207.22", None, "129.31", "48.14"),
    (30, "random"): Printed("2,109,600", None, None, "362.86", "362.01"),
    (40, "marginal"): Printed("1,249,600", "26.84", "26.84", "26.84", "26.84"),
    (40, "prefix"): Printed("1,249,600", "70.95", "112.33", "91.67", "68.78"),
    (40, "range"): Printed("524,504,800", "106.85", "160.16", "91.11", "90.91"),
    (40, "circular"): Printed("1,996,864,000", None, None, "91.72", "91.72"),
    (40, "affine"): Printed("63,220", "184.38", None, "101.10", "69.62"),
    (40, "abs"): Printed("32,800", "255.57", None, "150.21", "49.83"),
    (40, "random"): Printed("3,748,800", None, None, "490.66", "490.65"),
    (50, "marginal"): Printed("1,952,000", "27.07", "27.07", "27.07", "27.07"),
    (50, "prefix"): Printed("1,952,000", "77.29", "123.73", "102.09", "75.26"),
    (50, "range"): Printed("1,268,038,500", "118.00", "178.65", "101.15", "100.97"),
    (50, "circular"): Printed("4,875,100,000", None, None, "102.13", "102.13"),
    (50, "affine"): Printed("79,220", "215.98", None, "112.23", "79.33"),
    (50, "abs"): Printed("41,000", "299.62", None, "167.51", "52.80"),
    (50, "random"): Printed("5,856,000", None, None, "618.61", "616.54"),
}


def main(arguments: list[str] | None = None) -> int:
    fast = only_fast(arguments, __doc__, f"random queries of size {LARGE} and more")
    table = Comparison("QuerySmasher, Table 4: one-way and two-way tables, RMSE at privacy cost 1")
    for (size, kind), printed in PRINTED.items():
        if not (fast and kind == "random" and size >= LARGE):
            compare_kind(table, kind, size, [1.0] * tables(), printed, None)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
