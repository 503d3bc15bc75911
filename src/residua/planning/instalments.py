"""What can be planned in instalments, and what of a plan can be measured so."""

from residua.errors import SchemaError, WorkloadError
from residua.planning.drafts import Request
from residua.privacy import Budget
from residua.schema import Schema


def time_attribute(schema: Schema, over: str) -> int:
    """The place of an attribute whose cells come in order, by its name or that of a level of it."""
    at, _ = schema.resolve(over)
    attribute = schema.attributes[at]
    classes = schema.classes(over)
    if schema.units[at] > 1 or attribute.other is not None or (classes[1:] < classes[:-1]).any():
        raise SchemaError(
            f"{over!r} is no run of periods: name an attribute whose cells come one after the other, such as "
            "rs.Date(..., by='month'), without a cell for everything else"
        )
    return at


def refuse_instalments(request: Request, budget: Budget | None, *, plain: bool) -> None:
    """Nothing, or the error for what cannot be planned in instalments."""
    if request.over is None:
        if request.renew is not None:
            raise WorkloadError("renew goes with over, the attribute of periods; give over= too")
        return
    if not plain or request.method != "auto":
        raise WorkloadError(
            "instalments are planned for the least total variance, by method 'auto'; leave out targets, "
            "objective and method, or over"
        )
    if budget is not None and budget.law == "laplace":
        raise WorkloadError(
            f"instalments need Gaussian noise, which cannot give {budget!r}; give zcdp(rho) or "
            "approx_dp(epsilon, delta)"
        )
    if request.tied:
        raise WorkloadError(
            "conditions joined across attributes are planned by classes of cells, which are not measured in "
            "instalments; ask for them as rs.linear, or leave out over"
        )
    renew = request.renew
    if renew is not None and renew != "doubling" and (type(renew) is not int or renew < 1):
        raise WorkloadError(f"renew is a number of periods from 1 on, or 'doubling', not {renew!r}")
