"""A private look at how many records persons have, to choose how many of them are counted."""

import os

from residua._measure import measure
from residua.engines.contributions import RecordsPerPerson
from residua.errors import LedgerError, asks_for
from residua.ledger import Ledger
from residua.noise import Source
from residua.planning import plan
from residua.privacy import Budget, MissingId, Unit
from residua.release import Release
from residua.schema import Integer, Schema
from residua.workload import identity, prefix, table


@asks_for("ledger", LedgerError, "looking at the data is paid for by a ledger, such as ledger='budget.db'")
def contributions(
    data: object,
    budget: Budget,
    *,
    id: str,
    ledger: Ledger | str | os.PathLike[str] | None,
    most: int = 20,
    missing_id: MissingId = "error",
    period: str | None = None,
    noise: Source | None = None,
) -> Release:
    """A release of how many persons have 1, 2, .. records; the last number is of those with `most` or more.

    Each person is one record of one attribute, `records`, whatever their number, so that little of a budget
    is enough. The ledger is debited as for any release; it protects the same `id`.

    data: object
        A file, a table, a relation or a DataFrame, as for `rs.measure`.
    id: str
        The column that says whose record each is.
    period: str, optional
        That of the data, which a ledger that is kept by periods needs.

    >>> import residua as rs
    >>> visits = {"patient_id": [1, 1, 1, 2, 3, 3]}
    >>> look = rs.contributions(
    ...     visits, rs.zcdp(50), id="patient_id", most=3, ledger=None, noise=rs.simulated(seed=1)
    ... )
    >>> look.table("records").values.round().tolist()
    [1.0, 1.0, 1.0]
    """
    schema = Schema(records=Integer(1, most, outside="clip"))
    work = table(schema, records=identity, name="records") + table(schema, records=prefix, name="at most")
    found = plan(work, budget, unit=Unit(id=id, missing_id=missing_id))
    return measure(found, data, ledger=ledger, noise=noise, period=period, engine=RecordsPerPerson())
