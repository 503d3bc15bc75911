"""Groups of people: what aggregates over the table of records ask for, one table of answers each."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from residua._arrays import Array, Indices
from residua.errors import WorkloadError, retold
from residua.schema import Number
from residua.workload.explicit import Explicit
from residua.workload.groupings import Partition
from residua.workload.moments import cell_numbers, moment, moment_words, power_words, quantile_rows
from residua.workload.queries import Identity
from residua.workload.sql.cells import values_of
from residua.workload.sql.comparing import Unfit, number_of
from residua.workload.sql.conditions import constant, restrictions
from residua.workload.sql.factors import UNGROUPED, Grouper, as_case, finest, pieces
from residua.workload.sql.figures import AskedTables, Column, Crossing, Figure, Labels, joined
from residua.workload.sql.reading import bare, quoted, shown
from residua.workload.sql.scopes import Scope
from residua.workload.tables import Factor, Table, table_name
from residua.workload.views import classes_of

Powers = Mapping[str, int]
"""How often each column is a factor of a product."""

Scores = tuple[int, Array, int]
"""An attribute, rows of numbers for its cells, (rows, cells), and which power of its number they are."""

QUANTILES = (exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.Median, exp.WithinGroup)
SPREADS = (exp.StddevPop, exp.StddevSamp, exp.Stddev, exp.VariancePop, exp.Variance)
ONE_COLUMN = "sums and means are of a column, or of a product of columns"


class People(Scope):
    """The groups of one grouping set, those that a WHERE leaves; a row each."""

    def __init__(
        self,
        grouper: Grouper,
        members: Sequence[Factor],
        every: Sequence[Factor],
        where: exp.Expression | None,
        asked: AskedTables,
        subquery: Callable[[exp.Expression], Figure],
    ) -> None:
        self.columns, self.source, self.grouper = grouper.columns, grouper.columns.source, grouper
        self.members, self.coarser = finest(members), set(members)
        self.every, self.where, self.asked = set(every), where, asked
        self.subquery = subquery
        self.table, self.groups = self._table(None, ())
        self.rows = len(self.groups)

    def leaf(self, node: exp.Expression) -> Column | None:
        if node.find(exp.AggFunc, exp.Window, exp.Subquery) or node.find(exp.Column) is None:
            return None
        factor = self.grouper.grouped(node)
        if factor in self.members:
            return self._labels(self.members.index(factor), factor)
        if factor in self.coarser:  # a level above one that is grouped by
            owners = [member.attributes for member in self.members]
            return self._labels(owners.index(factor.attributes), factor)
        if factor in self.every:  # of another grouping set
            return Labels.of([None] * self.rows)
        raise self.refusal(node, f"{quoted(node)} {UNGROUPED}")

    def aggregate(self, node: exp.Expression) -> Column | None:
        with self.source.placing(node, Unfit):
            return self._aggregate(node)

    def _aggregate(self, node: exp.Expression) -> Column | None:
        condition = None
        if isinstance(node, exp.Filter):
            node, condition = node.this, node.expression.this
        match node:
            case exp.Count():
                return self._count(node, condition)
            case exp.CountIf():
                return self._total(_and(condition, node.this))
            case exp.Sum():
                return self._sum(node.this, condition)[0]
            case exp.Avg():
                top, bottom = self._sum(node.this, condition)
                return top.over(bottom)
        if isinstance(node, QUANTILES):
            return self._quantile(node, condition)
        if isinstance(node, exp.CovarPop | exp.Corr):
            return self._related(node, condition)
        if isinstance(node, SPREADS):
            return self._spread(node, condition)
        if isinstance(node, exp.AggFunc):
            raise self.unknown(node)
        return None

    def _count(self, node: exp.Expression, condition: exp.Expression | None) -> Figure:
        inner = exp.Star() if node.this is None else bare(node.this)
        if isinstance(inner, exp.Distinct):
            of = ", ".join(each.sql() for each in inner.expressions) or "a column"
            raise self.refusal(
                node, f"{quoted(node)}: one person alone can add a value; GROUP BY {of} counts each of them"
            )
        if isinstance(inner, exp.Star | exp.Literal):
            return self._total(condition)
        if isinstance(inner, exp.Case | exp.If):
            return self._branches(as_case(inner), condition, lambda value: None if value is None else 1.0)[0]
        return self._moment(self._powers(inner), 0, condition)

    def _powers(self, node: exp.Expression) -> dict[str, int]:
        """How often each column is a factor of a product."""
        if isinstance(node := bare(node), exp.Mul):
            return dict(Counter(self._powers(node.this)) + Counter(self._powers(node.expression)))
        return {self.columns.named(node, ONE_COLUMN): 1}

    def _moment(self, powers: Powers, times: int, condition: exp.Expression | None) -> Figure:
        """The sum of a product of columns to a power, over those who have a value in each of them."""
        scores = []
        for name, power in powers.items():
            attribute = self.columns.schema[name]
            condition = self._present(name, condition)
            if power * times or (isinstance(attribute, Number) and attribute.missing):
                with retold(WorkloadError, Unfit):
                    rows = cell_numbers(name, attribute, power=power * times)[None]
                scores.append((self.columns.schema.resolve(name)[0], rows, power * times))
        return self._total(condition, scores)

    def _present(self, name: str, condition: exp.Expression | None) -> exp.Expression | None:
        """The condition that a column has a value, besides another; a number adds nothing without one."""
        if self.columns.schema[name].other is None:
            return condition
        column = exp.Column(this=exp.to_identifier(name, quoted=True))
        return _and(condition, exp.Not(this=exp.Is(this=column, expression=exp.Null())))

    def _sum(self, node: exp.Expression, condition: exp.Expression | None) -> tuple[Figure, Figure]:
        """The sum of a column, a constant, a condition or a CASE, and the number of people it is over."""
        inner = bare(node)
        while isinstance(inner, exp.Cast):
            inner = bare(inner.this)
        if isinstance(inner, exp.Case | exp.If):
            return self._branches(as_case(inner), condition, lambda value: value)
        if isinstance(inner, exp.Predicate | exp.Not | exp.And | exp.Or):
            return self._total(_and(condition, inner)), self._total(condition)
        if isinstance(inner, exp.Literal):
            count = self._total(condition)
            return count.times(Figure.constant(number_of(str(inner.this)), self.rows)), count
        if isinstance(inner, exp.AggFunc):
            raise self.refusal(
                inner, f"{quoted(node)} is a sum within another; put the inner one in a subquery"
            )
        powers = self._powers(inner)
        return self._moment(powers, 1, condition), self._moment(powers, 0, condition)

    def _branches(
        self, node: exp.Expression, condition: exp.Expression | None, worth: Callable[[Any], Any]
    ) -> tuple[Figure, Figure]:
        """Sum and count of a CASE, branch by branch: those of the branches up to each, less those before."""
        top = bottom = before = Figure.constant(0.0, self.rows)
        reached: exp.Expression | None = None
        unit = np.ones(self.rows)
        others = node.args.get("default")
        for branch in (*node.args["ifs"], None):
            if branch is None:
                upto, result = self._total(condition), others
            else:
                own = branch.this if node.this is None else exp.EQ(this=node.this, expression=branch.this)
                also = exp.paren(own.copy())
                reached = own.copy() if reached is None else exp.Or(this=reached, expression=also)
                upto, result = self._total(_and(condition, reached)), branch.args["true"]
            here = joined(upto.values - before.values, (upto, unit), (before, -unit))
            before = upto
            value = None if result is None or isinstance(bare(result), exp.Null) else self._worth(result)
            if (number := worth(value)) is not None:
                top = joined(top.values + number * here.values, (top, unit), (here, number * unit))
                bottom = joined(bottom.values + here.values, (bottom, unit), (here, unit))
        return top, bottom

    def _worth(self, node: exp.Expression) -> float:
        value = constant(self.columns, node)
        if isinstance(value, str):
            raise self.refusal(node, f"{quoted(node)} is no number to sum")
        return float(value)

    def _spread(self, node: exp.Expression, condition: exp.Expression | None) -> Figure:
        """Variance or standard deviation of a column, from its first two moments."""
        powers = self._powers(node.this)
        count = self._moment(powers, 0, condition)
        squared = self._covariance({}, powers, powers, condition)
        if not isinstance(node, exp.StddevPop | exp.VariancePop):
            less = joined(count.values - 1, (count, np.ones(self.rows)))
            squared = squared.times(count.over(less))
        if isinstance(node, exp.VariancePop | exp.Variance):
            return squared
        return squared.mapped(np.sqrt, lambda x: 0.5 / np.sqrt(x))

    def _covariance(
        self, both: Powers, left: Powers, right: Powers, condition: exp.Expression | None
    ) -> Figure:
        """The mean of a product less the product of the means, over those who have all of the columns."""
        every = dict.fromkeys([*both, *left, *right], 0)
        count = self._moment(every, 1, condition)
        product = dict(Counter(left) + Counter(right))
        each = ({**every, **powers} for powers in (left, right, product))
        one, two, joint = (self._moment(powers, 1, condition).over(count) for powers in each)
        values = joint.values - one.values * two.values
        return joined(values, (joint, np.ones(self.rows)), (one, -two.values), (two, -one.values))

    def _related(self, node: exp.Expression, condition: exp.Expression | None) -> Figure:
        """Covariance or correlation of two columns."""
        left, right = self._powers(node.this), self._powers(node.expression)
        both = {**left, **right}
        found = self._covariance(both, left, right, condition)
        if isinstance(node, exp.CovarPop):
            return found
        one, two = (self._covariance(both, own, own, condition) for own in (left, right))
        return found.over(one.times(two).mapped(np.sqrt, lambda x: 0.5 / np.sqrt(x)))

    def _quantile(self, node: exp.Expression, condition: exp.Expression | None) -> Crossing:
        """Where cumulative counts reach their part of the total."""
        of, order = node.this, node.args.get("expression") or node.args.get("quantile")
        if isinstance(node, exp.Median):
            order = exp.Literal.number("0.5")
        if isinstance(node, exp.WithinGroup):
            of, order = node.expression.expressions[0].this, node.this.this
        q = number_of(str(bare(order).this)) if isinstance(order, exp.Literal) else None
        if q is None or not 0 < q < 1:
            raise self.refusal(
                node, f"{quoted(node)}: a quantile is of one order between 0 and 1, such as 0.5"
            )
        if isinstance(node, exp.WithinGroup) and node.expression.expressions[0].args.get("desc"):
            q = 1 - q
        name = self.columns.named(of, "quantiles are of one column")
        within = node.this if isinstance(node, exp.WithinGroup) else node
        smooth = isinstance(within, exp.PercentileCont | exp.Median)
        position, _ = self.columns.schema.resolve(name)
        with retold(WorkloadError, Unfit):
            rows, points, between = quantile_rows(name, self.columns.schema[name], [q], smooth=smooth)
        return Crossing(self._total(condition, [(position, rows, 0)]), points, between)

    def _total(self, condition: exp.Expression | None, scores: Sequence[Scores] = ()) -> Figure:
        """Counts, or sums of scores, of those in each group who meet a condition."""
        table, groups = self._table(condition, scores)
        found = self.asked.ask(table)
        width = math.prod(len(rows) for _, rows, _ in scores)
        if condition is None and width == 1 and np.array_equal(groups, self.groups):
            return found
        places = {group: at for at, group in enumerate(self.groups.tolist())}
        owners = [places[group // width] * width + group % width for group in groups.tolist()]
        return found.summed(np.array(owners, np.intp), self.rows * width)

    def _table(self, condition: exp.Expression | None, scores: Sequence[Scores]) -> tuple[Table, Indices]:
        """The table of an aggregate, and the number of the group (and score) that each of its rows is of."""
        schema, members = self.columns.schema, list(self.members)
        both = _and(self.where, condition)
        regions = [] if both is None else restrictions(self.columns, both)
        with self.source.placing(both or exp.Null(), WorkloadError):
            for each in scores:
                self._score(members, *each)
            names = [name for member in members for name in member.names(schema)]
            made = pieces(schema, members, regions)
            title = table_name(names, None if both is None else shown(both))
            table = Table(title, tuple(piece.factor for piece in made))
        return table, _groups(members, made)

    def _score(self, members: list[Factor], position: int, rows: Array, power: int) -> None:
        """Put scores among the members of a table: in the group of their attribute, or as one more."""
        shape, name, single = (rows.shape[1],), self.columns.schema.names[position], len(rows) == 1
        word = moment_words(power, name) if single else f"quantile of {name}"
        title = moment(power).word if single else "linear"
        words = [word] * len(rows)
        place = next((at for at, own in enumerate(members) if own.attributes == (position,)), len(members))
        if place < len(members):
            if not single:
                raise WorkloadError(f"quantiles of {name!r} by itself say nothing; group by another column")
            rows = members[place].queries.matrix() * rows[0]
            words = [f"{each} and {word}" for each in members[place].descriptions(self.columns.schema)]
        weights, adds = _weights(rows) if single else None, (power_words(power, name),) * len(rows)
        queries = Explicit(shape, rows, weights, tuple(words), title, adds)
        members[place : place + 1] = [Factor((position,), queries)]

    def _labels(self, place: int, asked: Factor) -> Labels:
        """The label of each row in a column that is grouped by, or in a coarser level of it."""
        member = self.members[place]
        rows = np.unravel_index(self.groups, [each.queries.count for each in self.members])[place]
        if asked is not member and asked != member:
            first = np.unique(classes_of(member.queries, 0).classes, return_index=True)[1]
            rows = classes_of(asked.queries, 0).classes[first][rows]
        attribute = self.columns.schema.attributes[asked.attributes[0]]
        if isinstance(asked.queries, Identity):
            known, ordered = values_of(attribute), attribute.numeric
        else:
            assert isinstance(asked.queries, Partition)
            known, ordered = _typed(asked.queries.labels_on(attribute) or ()), False
        plain = [each if each is None or isinstance(each, int | str) else str(each) for each in known]
        values = [plain[row] for row in rows.tolist()]
        return Labels(values, rows.astype(np.float64)) if ordered else Labels.of(values)


def _groups(members: Sequence[Factor], made: Sequence[Any]) -> Indices:
    """The number, among all products of members' rows, of each row of a table."""
    sizes = [member.queries.count for member in members]
    shape = [len(piece.kept) for piece in made]
    places = np.unravel_index(np.arange(int(np.prod(shape))), shape) if shape else ()
    found: list[Any] = [np.zeros(int(np.prod(shape)), dtype=np.intp)] * len(members)
    for piece, rows in zip(made, places, strict=True):
        own = [sizes[at] for at in piece.members]
        inner = np.unravel_index(piece.kept[rows], own) if own else ()
        for at, each in zip(piece.members, inner, strict=True):
            found[at] = each
    if not members:
        return np.zeros(1, dtype=np.intp)
    return np.asarray(np.ravel_multi_index(tuple(found), sizes), dtype=np.intp)


def _weights(rows: Array) -> Array:
    """Weights that make sums as important as counts, whatever their unit."""
    return np.full(len(rows), float(np.abs(rows).max()) ** -2.0)


def _and(one: exp.Expression | None, other: exp.Expression | None) -> exp.Expression | None:
    if one is None or other is None:
        return other if one is None else one
    return exp.And(this=exp.paren(one.copy()), expression=exp.paren(other.copy()))


def _typed(labels: Sequence[str]) -> list[Any]:
    """Labels as whole numbers where all of them are; 'NULL' is none."""
    whole = all(label.lstrip("-").isdecimal() for label in labels if label != "NULL")
    return [None if label == "NULL" else int(label) if whole else label for label in labels]
