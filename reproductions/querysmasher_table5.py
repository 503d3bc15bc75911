"""Root mean square error of one-way ranges, two-way affine queries and three-way prefixes together.

QuerySmasher, Table 5, for d attributes of n cells each at privacy cost 1. WFF must agree to the last digit,
our QuerySmasher must not be above theirs. Takes about a minute.
"""

import sys

from _comparison import Comparison
from _figures import OWN_CHOICE, ideal

import residua as rs

# (n, d): RP+, WFF, QS; HDMM cannot answer these queries
PRINTED = {
    (10, 10): ("22.49", "25.37", "20.41"),
    (10, 20): ("57.17", "65.13", "51.63"),
    (10, 30): ("99.66", "113.98", "93.50"),
    (10, 40): ("148.46", "170.18", "138.38"),
    (10, 50): ("202.72", "232.72", "187.24"),
    (20, 10): ("36.82", "47.04", "34.60"),
    (20, 20): ("97.22", "125.94", "95.63"),
    (20, 30): ("172.22", "224.36", "167.16"),
    (20, 40): ("259.00", "338.53", "249.29"),
    (20, 50): ("355.93", "466.26", "340.55"),
    (30, 10): ("47.08", "64.37", "44.46"),
    (30, 20): ("126.20", "175.18", "126.19"),
    (30, 30): ("224.99", "314.28", "221.80"),
    (30, 40): ("339.60", "476.12", "331.86"),
    (30, 50): ("467.86", "657.56", "454.37"),
}


def workload(size: int, attributes: int) -> rs.Workload:
    """One-way ranges, two-way affine queries, three-way prefixes."""
    schema = rs.Schema.of_sizes([size] * attributes)
    work = rs.all_tables(schema, 1, rs.ranges) + rs.all_tables(schema, 2, rs.affine)
    return work + rs.all_tables(schema, 3, rs.prefix)


def compare_size(table: Comparison, size: int, attributes: int) -> None:
    """One row of the paper's table."""
    rp_plus, wff, qs = PRINTED[size, attributes]
    name, work = f"n={size} d={attributes}", workload(size, attributes)
    table.beside(f"{name} RP+", ideal(work, "residualplanner+").rmse, rp_plus, OWN_CHOICE)
    table.agrees(f"{name} WFF", ideal(work, "fourier").rmse, wff)
    found = ideal(work, "querysmasher")
    table.at_most(f"{name} QS", found.rmse, qs, f"gap {found.gap:.0e}")


def main() -> int:
    table = Comparison("QuerySmasher, Table 5: mixed tables, RMSE at privacy cost 1")
    for size, attributes in PRINTED:
        compare_size(table, size, attributes)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
