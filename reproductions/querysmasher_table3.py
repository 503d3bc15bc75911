"""Root mean square error of pairs asked for `i + j <= c` or `|i - j| <= c`.

QuerySmasher, Table 3, on the schemas of Adult, CPS and Loans at privacy cost 1. WFF must agree to the last
digit, our QuerySmasher must not be above theirs. What the workloads are is not all in the text; the printed
numbers of queries and the WFF column, which has a closed form, settle it:

- tables of one attribute are there too, prefix if it is numeric and counts if it is categorical;
- pairs of more than 5,151 cells (101 x 51; the next are 99 x 85) are asked two-way prefixes instead.

Takes some minutes.
"""

import sys
from itertools import combinations

from _comparison import Comparison
from _figures import Printed, compare_row, dataset

import residua as rs

LARGEST_PAIR = 5_151
FAMILIES = {"affine": rs.affine, "abs_diff": rs.abs_diff}

PRINTED = {
    ("CPS", "affine"): Printed("805", "10.012", None, "7.147", "5.935"),
    ("CPS", "abs_diff"): Printed("731", "10.476", None, "7.387", "5.900"),
    ("Adult", "affine"): Printed("99,830", "19.395", None, "21.559", "16.435"),
    ("Adult", "abs_diff"): Printed("99,200", "19.441", None, "21.587", "16.254"),
    ("Loans", "affine"): Printed("66,318", "18.082", None, "18.671", "14.305"),
    ("Loans", "abs_diff"): Printed("65,682", "18.148", None, "18.714", "14.330"),
}


def workload(name: str, family: str) -> rs.Workload:
    """Hybrid tables of one attribute, and all pairs."""
    kinds = dataset(name)
    # The families on pairs are for numbers: the categories are numbered.
    schema = rs.Schema(
        {each: rs.Integer(0, size - 1) for each, size in zip(kinds.names, kinds.sizes, strict=True)}
    )
    numeric = [each for each in schema.names if each.startswith("n")]
    categorical = [each for each in schema.names if each.startswith("c")]
    work = rs.all_tables(schema, 1, rs.prefix, attributes=numeric)
    work += rs.all_tables(schema, 1, rs.identity, attributes=categorical)
    sizes = dict(zip(schema.names, schema.sizes, strict=True))
    for one, two in combinations(schema.names, 2):
        if sizes[one] * sizes[two] > LARGEST_PAIR:
            work += rs.table(schema, {one: rs.prefix, two: rs.prefix})
        else:
            work += rs.table(schema, {(one, two): FAMILIES[family]})
    return work


def main() -> int:
    table = Comparison("QuerySmasher, Table 3: affine and abs_diff pairs, RMSE at privacy cost 1")
    for (name, family), printed in PRINTED.items():
        compare_row(table, f"{name} {family}", workload(name, family), printed)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
