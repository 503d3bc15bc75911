"""Plots for notebooks: charts that altair accepts, of tables, plans and comparisons."""

import json

import numpy as np
import vl_convert

import residua as rs


def test_tables_plans_and_comparisons_are_drawn():
    schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    work = rs.marginals(schema, up_to=2)
    plan = rs.plan(work, rs.zcdp("0.1"))
    codes = np.stack([np.arange(500) % 10, np.arange(500) % 2], 1)
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    compared = rs.compare(plan, rs.plan(work, rs.zcdp("0.1"), method="identity"))
    for thing, marks in (
        (plan, 4),
        (compared, 2),
        (release.table("age"), 10),
        (release.table("age", "sex"), 20),
        (release.share("sex", within="age"), 20),
    ):
        chart = thing.plot().to_dict()
        assert (
            len(chart["data"]["values"] if "data" in chart else chart["layer"][0]["data"]["values"]) == marks
        )
        assert "<svg" in vl_convert.vegalite_to_svg(json.dumps(chart))
