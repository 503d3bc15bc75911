"""Largest variance of marginals at privacy cost 1, and two small examples in full.

Xiao, He, Zhang and Kifer, ResidualPlanner, Tables 3, 10, 12 and 19 to 21, and examples C.1 and C.2. Ours must
agree with their planner to the last printed digit, or be better where their conic solver stopped early: Table
19 prints 4.142 and 1.008 with ECOS beside 4.141 and 1.000 with Gurobi, Table 21 474.244 beside 474.243. Every
plan comes with a bound that holds for all mechanisms, so what agrees is the optimum itself.

One row (d = 6) is printed cut off after three decimals, where all others can be read as rounded: no mechanism
reaches a largest variance of 26.9045, and ours is 26.90458. It is cut off there too.

Takes about ten seconds.
"""

import sys
from decimal import ROUND_DOWN, Decimal

import numpy as np
from _comparison import Comparison
from residualplanner_tables import at_most_three, workload

import residua as rs
from residua.methods.draft import Draft
from residua.methods.scales.targets import block_targets

GAP = 2e-9  # of the largest variance: eight figures are printed at most
CUT_OFF = {"Table 12 d=6"}

# size of each of five attributes: HDMM, ResidualPlanner
TABLE_10 = {
    2: ("8.091", "4.148"),
    4: ("44.693", "9.760"),
    8: ("180.343", "15.643"),
    16: ("588.115", "20.067"),
    32: ("1649.341", "22.811"),
    64: ("5560.807", "24.345"),
    128: ("12229.480", "25.157"),
    256: ("8168.716", "25.574"),
    512: ("32159.958", "25.786"),
    1024: ("277825.955", "25.893"),
}
# attributes of size 10: HDMM, ResidualPlanner; none where they ran out of memory or time
TABLE_12 = {
    2: ("13.745", "3.306"),
    4: ("132.620", "10.480"),
    6: ("461.132", "26.904"),
    8: ("1000.000", "56.961"),
    10: ("1000.000", "105.031"),
    12: ("1000.000", "175.496"),
    14: ("1000.000", "272.738"),
    15: ("1000.000", "332.769"),
    20: (None, "768.941"),
    30: (None, "2540.440"),
    50: (None, "11597.037"),
    100: (None, "91960.917"),
}
# workload: HDMM, ResidualPlanner with ECOS, with Gurobi
TABLES_19_TO_21 = {
    ("19", "CPS"): {
        "1-way": ("13.672", "4.346", "4.346"),
        "2-way": ("47.741", "7.897", "7.897"),
        "3-way": ("71.549", "7.706", "7.706"),
        "4-way": ("15.538", "4.142", "4.141"),
        "5-way": ("1.000", "1.008", "1.000"),
        "<=3-way": ("415.073", "13.216", "13.216"),
        "small": ("223.579", "11.774", "11.774"),
    },
    ("20", "Adult"): {
        "1-way": ("41.772", "12.047", "12.047"),
        "2-way": ("599.843", "67.802", "67.802"),
        "3-way": ("5675.238", "236.843", "236.843"),
        "4-way": ("26959.322", "575.213", "575.213"),
        "5-way": ("79817.002", "1030.948", "1030.948"),
        "<=3-way": ("6677.253", "253.605", "253.605"),
        "small": ("2586.980", "126.902", "126.902"),
    },
    ("21", "Loans"): {
        "1-way": ("33.256", "10.640", "10.640"),
        "2-way": ("437.478", "52.217", "52.217"),
        "3-way": ("3095.997", "156.638", "156.638"),
        "4-way": ("13776.417", "320.778", "320.778"),
        "5-way": ("26056.289", "474.244", "474.243"),
        "<=3-way": ("4317.709", "180.817", "180.817"),
    },
}
TABLE_3 = {
    ("Adult", "1-way"): "12.047",
    ("Adult", "2-way"): "67.802",
    ("Adult", "3-way"): "236.843",
    ("Adult", "<=3-way"): "253.605",
    ("CPS", "1-way"): "4.346",
    ("CPS", "2-way"): "7.897",
    ("CPS", "3-way"): "7.706",
    ("CPS", "<=3-way"): "13.216",
    ("Loans", "1-way"): "10.640",
    ("Loans", "2-way"): "52.217",
    ("Loans", "3-way"): "156.638",
    ("Loans", "<=3-way"): "180.817",
}
# noise parameters by number of attributes, and variances of marginals on 0 to 5 attributes
C_1 = (("7.594", "10.125", "13.5", "18", "24", "32"), ("7.594",) * 6)
C_2 = (
    ("8.154", "10.871", "14.495", "19.327", "12.477", "4.159"),
    ("8.154", "8.154", "8.154", "8.154", "5.528", "2.718"),
)


def planned(work: rs.Workload, weights: list[float] | None = None) -> Draft:
    """The cheapest plan in which weight times variance is at most 1."""
    return block_targets(work, [1 / weight for weight in weights or [1.0] * len(work.parts)], GAP)


def largest(work: rs.Workload) -> tuple[float, str]:
    """The largest variance at privacy cost 1, and a note of what is proved."""
    draft = planned(work)
    cost = draft.strategy.cost()
    return cost, f"within {cost / draft.lower_bound - 1:.0e} of the best of {draft.scope}"


def compare_row(table: Comparison, name: str, work: rs.Workload, printed: str, hdmm: str | None) -> float:
    """One figure that must agree to its last digit."""
    ours, note = largest(work)
    shown = Decimal(ours)
    if name in CUT_OFF:
        note = f"{ours:.5f} cut off; {note}"
        shown = shown.quantize(Decimal("0.001"), rounding=ROUND_DOWN)
    table.agrees(f"{name} ResPlan", shown, printed, note if hdmm is None else f"{note}; HDMM prints {hdmm}")
    return ours


def compare_example(
    table: Comparison, name: str, printed: tuple[tuple[str, ...], tuple[str, ...]], weights: list[float]
) -> None:
    """Noise parameters and variances of all marginals on five attributes of size 3, by their number."""
    work = rs.marginals(rs.Schema.of_sizes([3] * 5), up_to=5)
    draft = planned(work, weights)
    strategy = draft.strategy.scaled(1 / draft.strategy.cost())
    parameters, variances = printed
    for layer in strategy.layers:
        size = layer.subsets.shape[1]
        # Their noise is that of uncentred cells: the block costs (2/3)^size over it.
        ours = float(np.mean(layer.noise)) * (2 / 3) ** size
        table.agrees(f"{name} sigma^2, {size} attributes", ours, parameters[size])
    for size, part in enumerate(work.parts):
        group = next(iter(rs.Workload(work.schema, (part,)).groups()))
        table.agrees(f"{name} variance, {size} attributes", strategy.largest(group), variances[size])


def main() -> int:
    table = Comparison("ResidualPlanner, Tables 3, 10, 12, 19 to 21: largest variance at privacy cost 1")
    compare_example(table, "C.1", C_1, [1.0] * 6)
    compare_example(table, "C.2", C_2, [1.0, 1.0, 1.0, 1.0, 1.0, 3.0])
    for size, (hdmm, planner) in TABLE_10.items():
        compare_row(table, f"Table 10 n={size}", at_most_three([size] * 5), planner, hdmm)
    for attributes, (none, planner) in TABLE_12.items():
        compare_row(table, f"Table 12 d={attributes}", at_most_three([10] * attributes), planner, none)
    found: dict[tuple[str, str], float] = {}
    for (number, name), rows in TABLES_19_TO_21.items():
        for kind, (hdmm, ecos, gurobi) in rows.items():
            title = f"Table {number} {name} {kind}"
            found[name, kind] = compare_row(table, f"{title} Gurobi", workload(name, kind), gurobi, hdmm)
            table.at_most(f"{title} ECOS", found[name, kind], ecos)
    for key, planner in TABLE_3.items():
        table.agrees(f"Table 3 {' '.join(key)} ResPlan", Decimal(found[key]), planner)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
