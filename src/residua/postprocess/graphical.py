"""Graphical models of a release by mbi: their size, their fit, their rows. The only code that knows mbi.

What blocks measured reaches a model as uncorrelated numbers with one standard deviation.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np

from residua._arrays import Array, Flags, Integers, Subset
from residua._limits import MODEL_MEGABYTES
from residua.errors import Infeasible
from residua.postprocess.facts import Facts
from residua.postprocess.pieces import PieceError, PieceErrors, TableSet
from residua.schema import Schema

KNOWN = 0.1  # standard deviation, in records, that a known table is given to a model that cannot be exact
COMPONENTS = 200  # of the mixture that stands in for a model that is too large
LEARNING_RATE = 0.1
EMPTY = 0.05  # records that an empty cell starts with
TRIED = 400  # tables looked at for advice on which to leave out


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What is observed of one marginal: it is centred under `means`, turned, and kept where `seen`.

    Its numbers are independent with standard deviation `stddev`. Where every direction of the piece is
    equally uncertain nothing is turned: the squared distance is the same in any coordinates (claim P-108).
    `error` is None for a known table, which is observed cell by cell. As mbi calls it, an observation is a
    query: from a factor to the numbers observed.
    """

    subset: Subset
    means: tuple[Array, ...]
    error: PieceError | None
    seen: Flags | None
    scales: Array | None
    stddev: float

    def of(self, marginal: Any, arrays: Any = np) -> Any:
        """The numbers observed of a marginal, shape (numbers,); `arrays` is the package that it is of."""
        for axis, mean in enumerate(self.means):
            shape = [-1 if at == axis else 1 for at in range(marginal.ndim)]
            marginal = marginal - arrays.asarray(mean.reshape(shape)) * marginal.sum(axis=axis, keepdims=True)
        if self.error is None or self.seen is None or self.scales is None:
            return marginal.reshape(-1)
        turned = self.error.rotated(marginal[None], arrays=arrays).reshape(-1)
        return turned[np.flatnonzero(self.seen)] / arrays.asarray(self.scales)

    def __call__(self, factor: Any) -> Any:
        import jax.numpy as jnp

        return self.of(factor.datavector(flatten=False), jnp)

    def op_norm_sq(self) -> float:
        """A bound on the squared norm of the query, which sets the first step of the fit."""
        centring = (np.eye(len(mean)) - np.outer(mean, np.ones(len(mean))) for mean in self.means)
        bound = math.prod(float(np.linalg.norm(each, 2)) ** 2 for each in centring)
        return bound if self.scales is None else bound / float(self.scales.min()) ** 2


def observations(tables: TableSet, errors: PieceErrors, facts: Facts) -> Iterator[Observation]:
    """What is observed of every marginal that was measured, the total aside."""
    for subset in sorted(filter(None, tables.places), key=lambda part: (len(part), part)):
        sizes = tables.marginal(subset).shape
        if facts.margin(subset) is not None:
            yield Observation(subset, (), None, None, None, KNOWN)
        elif errors[subset].measured:
            yield _observed(subset, sizes, errors[subset])


def _observed(subset: Subset, sizes: Sequence[int], error: PieceError) -> Observation:
    means = error.means or tuple(np.full(size, 1.0 / size) for size in sizes)
    if error.even:
        return Observation(subset, means, error, None, None, float(np.sqrt(error.variance)))
    variances = error.variances(sizes)
    seen = variances > 0
    return Observation(subset, means, error, seen, np.sqrt(variances[seen]), 1.0)


def load_mbi() -> ModuleType:
    """The package mbi, or an error that says how to get it."""
    try:
        with warnings.catch_warnings():
            # Advice about settings of the whole process, which are not ours to change; 64 bits are set below.
            warnings.filterwarnings("ignore", message="JAX is running in float32 mode")
            warnings.filterwarnings("ignore", message="JAX persistent compilation cache is enabled")
            import mbi
    except ImportError as error:
        raise Infeasible(
            "synthetic rows need the package mbi; install it with pip install 'residua[synth]'"
        ) from error
    return mbi  # type: ignore[no-any-return]  # mbi has no types


class Graphical:
    """A model structure: attributes, tables, what is observed of them, and how rows are made."""

    def __init__(
        self,
        schema: Schema,
        tables: TableSet,
        errors: PieceErrors,
        facts: Facts,
        oracle: str,
        iterations: int,
    ) -> None:
        self.mbi = load_mbi()
        self.attributes = tuple(sorted({at for subset in tables.places for at in subset}))
        self.names = [schema.names[at] for at in self.attributes]
        self.schema, self.oracle, self.iterations = schema, oracle, iterations
        self.observed = list(observations(tables, errors, facts))
        self.domain = self.mbi.Domain(self.names, [schema.sizes[at] for at in self.attributes])
        self.largest = [row for stack in tables.stacks for row in stack.rows() if row]
        self.constraints = [
            self.mbi.Constraint(self.domain.project(self._named(subset)), invalid=np.argwhere(~mask))
            for subset, mask in facts.allowed.items()
            if not mask.all()
        ]
        if oracle == "exact":
            self._refuse_large()

    def _named(self, subset: Subset) -> tuple[str, ...]:
        return tuple(self.schema.names[at] for at in subset)

    def megabytes(self, tables: Sequence[Subset]) -> float:
        """Size of the junction tree of a model of these tables."""
        cliques = [self._named(subset) for subset in tables]
        return float(self.mbi.junction_tree.hypothetical_model_size(self.domain, cliques))

    def _refuse_large(self) -> None:
        size = self.megabytes(self.largest)
        if size <= MODEL_MEGABYTES:
            return
        kept: list[Subset] = []
        sizes = self.schema.sizes
        for subset in sorted(self.largest[:TRIED], key=lambda each: math.prod(sizes[at] for at in each)):
            if self.megabytes([*kept, subset]) <= MODEL_MEGABYTES:
                kept.append(subset)
        left = [subset for subset in self.largest if subset not in kept]
        shown = ", ".join(" x ".join(self._named(subset)) for subset in left[:3])
        spelled = f"{size:,.0f}" if size < 1e9 else f"{size:.1e}"
        raise Infeasible(
            f"a graphical model of these {len(self.largest)} tables has a junction tree of "
            f"{spelled} megabytes, more than {MODEL_MEGABYTES:,.0f}. It becomes feasible with fewer "
            f"tables: {len(kept)} of them fit, without {shown}{' and others' if len(left) > 3 else ''} "
            "(tables=rs.table(...) + ... chooses them); or with oracle='approximate', a mixture of products"
        )

    def fit(self, tables: TableSet, start: TableSet, total: float) -> Any:
        """The model that is nearest to what is observed of these tables, with this many records.

        `start` has non-negative tables, from which an exact model starts.
        """
        with _wide():
            measured = [
                self.mbi.LinearMeasurement(
                    seen.of(tables.marginal(seen.subset)), self._named(seen.subset), seen.stddev, seen
                )
                for seen in self.observed
            ]
            return self._estimator().estimate(
                self.domain,
                measured,
                known_total=total,
                constraints=self.constraints,
                iters=self.iterations,
                warm_start=self._potentials(start) if self.oracle == "exact" else None,
            )

    def _potentials(self, tables: TableSet) -> Any:
        """Those of the tree of tables that tells most: the model itself where all tables form a tree.

        Tables are joined, those with the most information first, as long as they close no cycle (Chow and
        Liu 1968); the others start without any say.
        """
        import jax.numpy as jnp

        margins = {at: np.log(tables.marginal((at,)) + EMPTY) for at in self.attributes}
        logs = {subset: np.log(tables.marginal(subset) + EMPTY) for subset in self.largest}
        excess = {subset: logs[subset] - _added(subset, margins) for subset in self.largest}
        total = math.log(float(tables.marginal(())) + EMPTY)
        tells = {
            subset: float(np.sum(tables.marginal(subset) * (excess[subset] + (len(subset) - 1) * total)))
            for subset in self.largest
        }
        joined = {at: at for at in self.attributes}
        unsaid = set(self.attributes)
        arrays = {}
        for subset in sorted(self.largest, key=lambda each: -tells[each]):
            roots = {joined[at] for at in subset}
            values = np.zeros_like(logs[subset])
            if len(roots) == len(subset):
                values = excess[subset]
                joined = {at: min(roots) if root in roots else root for at, root in joined.items()}
            values = values + _added(subset, {at: margins[at] * (at in unsaid) for at in subset})
            unsaid -= {*subset}
            name = self._named(subset)
            arrays[name] = self.mbi.Factor(self.domain.project(name), jnp.asarray(values))
        return self.mbi.CliqueVector(self.domain, list(arrays), arrays)

    def _estimator(self) -> Any:
        if self.oracle == "exact":
            return self.mbi.estimation.MirrorDescent()
        import optax

        return self.mbi.extensions.MixtureOfProductsEstimator(
            optimizer=optax.adam(LEARNING_RATE), num_components=COMPONENTS
        )

    def tables_of(self, model: Any, like: TableSet) -> TableSet:
        """The model's own marginals on the same attribute sets."""
        with _wide():
            rows = [row for stack in like.stacks for row in stack.rows()]
            factors = {row: model.project(self._named(row)).datavector(flatten=False) for row in rows}
            return like.with_tables({row: np.asarray(each, np.float64) for row, each in factors.items()})

    def rows_of(self, model: Any, rows: int, seed: int) -> Integers:
        """Synthetic records as codes, (rows, attributes) in the order of `attributes`."""
        with _wide():
            if self.oracle == "exact":
                with _seeded(seed):
                    data = model.synthetic_data(rows).to_dict()
                return np.column_stack([np.asarray(data[name], dtype=np.int64) for name in self.names])
            products = [np.asarray(model.products[name], np.float64) for name in self.names]
            return _from_mixture(products, rows, seed)


def _added(subset: Subset, vectors: Mapping[int, Array]) -> Array:
    """Sums of one entry of each attribute's vector, shape (sizes...)."""
    return reduce(np.add.outer, (vectors[at] for at in subset), np.zeros(()))


def _from_mixture(products: Sequence[Array], rows: int, seed: int) -> Integers:
    """Records of a mixture of products with equal weights: (components, cells) for each attribute."""
    generator = np.random.default_rng(seed)
    components = generator.permutation(np.arange(rows) % len(products[0]))
    columns = []
    for each in products:
        edges = np.cumsum(each / each.sum(axis=1, keepdims=True), axis=1)
        place = (edges[components] < generator.random(rows)[:, None]).sum(axis=1)
        columns.append(np.minimum(place, each.shape[1] - 1))
    return np.column_stack(columns).astype(np.int64)


def _wide() -> Any:
    """Within it JAX computes in 64 bits: counts of many records need them."""
    import jax

    return jax.enable_x64(True)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within it numpy's global numbers are drawn from a seed, as mbi draws rows from them; restored after."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)
