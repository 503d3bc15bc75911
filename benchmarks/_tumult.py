"""Tumult's side of number_peers: a count and a sum at every level, each with the same share of rho.

Runs by the Python of an environment that has tmlt.analytics; reads a task and writes its answers as JSON.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, QueryBuilder, RhoZCDPBudget, Session

SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "ERROR"}


def answers(task: dict[str, Any], frame: Any) -> list[tuple[list[float], list[float]]]:
    """Counts and sums of the groups of every level, of one release."""
    rho, levels = task["rho"], range(len(task["keys"]))
    session = Session.from_dataframe(RhoZCDPBudget(rho), "people", frame, protected_change=AddOneRow())
    share = RhoZCDPBudget(rho / (2 * len(levels)))
    found = []
    for level in levels:
        keys = KeySet.from_dict({f"key{level}": list(range(task["sizes"][level]))})
        grouped = QueryBuilder("people").groupby(keys)
        asked = (grouped.count(name="x"), grouped.sum("income", low=0, high=task["high"], name="x"))
        tables = (session.evaluate(query, share).toPandas().sort_values(f"key{level}") for query in asked)
        count, total = (table["x"].astype(float).tolist() for table in tables)
        found.append((count, total))
    return found


def main() -> None:
    task = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[1]").config(map=SETTINGS).getOrCreate()
    names = [f"key{level}" for level in range(len(task["keys"]))]
    rows = list(zip(*task["keys"], task["income"], strict=True))
    frame = spark.createDataFrame(rows, [*names, "income"])
    print(json.dumps([answers(task, frame) for _ in range(task["runs"])]))


if __name__ == "__main__":
    main()
