"""A bound for what a person can change, found again: second moments, entry by entry (claims B-013, X-004).

A change that a person makes at random has second moments `M` over joint records; no mechanism that costs a
person 1 has a total variance below the square of the sum of the roots of the eigenvalues of `M^1/2 G M^1/2`,
`G` the Gram matrix of the queries.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Array
from residua.privacy.unit import Person
from residua.schema import Attribute, Number
from residua.verify.bound import Bracket, gram_of, weighed
from residua.verify.variances import kron
from residua.workload import Workload

CHANCES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.7, 0.85, 1.0)  # of records that are alike, or unlike, more often
MOST_VALUES = 65  # of each bin of a number
RANK = 1e-12  # of the largest eigenvalue: below, what rounding leaves of zero
BETWEEN = 1e-3  # relative: what values between those may cost more


def over_changes(work: Workload, person: Person) -> Bracket | None:
    """What is proved to be impossible at a person's cost of 1, and possible; None where records are many.

    What is possible is not known where records are bounded by an attribute.
    """
    used = list(work.attributes)
    records = {at: _records(work.schema.attributes[at]) for at in used}
    gram = gram_of(work, records)
    if gram is None:
        return None
    sizes = [len(records[at]) for at in used]
    low, high, best = weighed(gram)
    if person.simple:
        return low * person.alike**2, high * person.alike**2 * (1 + BETWEEN)
    best = best / best.sum()
    cube = best.reshape(sizes)
    alone = [
        cube.sum(axis=tuple(other for other in range(len(used)) if other != at)) for at in range(len(used))
    ]
    found = 0.0
    for weights in ([np.full(size, 1 / size) for size in sizes], alone):
        for moments in _patterns(weights, used, person):
            found = max(found, _least(gram, moments))
    found = max(found, _least(gram, _one_record(best, person)))
    return found, math.inf if person.caps else _reached(gram, best) * person.alike**2


def _reached(gram: Array, weights: Array) -> float:
    """The total variance of a mechanism whose cost for replacing a record is 1 and that knows their number.

    It measures as is best for adding or removing one, with these weights; the number is free.
    """
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(gram * root * root[:, None])
    kept = values > RANK * values[-1]
    vectors, scales = vectors[:, kept], np.sqrt(values[kept])
    matrix = (vectors / root[:, None] * scales) @ (vectors / root[:, None]).T
    inverse = np.linalg.pinv(matrix, hermitian=True)
    ones = np.ones(len(gram))
    known, part = inverse @ ones, float(ones @ inverse @ ones)
    spared = float(known @ gram @ known) / part if np.allclose(matrix @ known, ones) else 0.0
    own = np.diag(matrix)
    cost = float((own[:, None] + own - 2 * matrix).max())
    return (float(np.sum(gram * inverse)) - spared) * cost


def _records(attribute: Attribute) -> Array:
    """Shares that records have of an attribute's cells; whole ones, but of numbers."""
    if not isinstance(attribute, Number):
        return np.eye(attribute.size)
    found, ends = [], [*attribute.steps]
    for at, (low, high) in enumerate(pairwise(ends)):
        last = high if at == len(ends) - 2 else high - 1
        for code in np.unique(np.linspace(low, last, MOST_VALUES).astype(np.int64)).tolist():
            t, m = (code - low) / (high - low), attribute.degree
            row = np.zeros(attribute.size)
            row[at * (m + 1) : (at + 1) * (m + 1)] = [
                math.comb(m, i) * t**i * (1 - t) ** (m - i) for i in range(m + 1)
            ]
            found.append(row)
    return np.array([*found, *np.eye(attribute.size)[attribute.size - attribute.missing :]])


def _one_record(weights: Array, person: Person) -> Array:
    """As many records as may be in one cell, all added there, or moved from there to another."""
    added = np.diag(weights) * person.alike**2
    if not person.unit.replacing or len(weights) == 1:
        return added
    moved = added - person.alike**2 * np.outer(weights, weights)
    return 2 * moved / (1 - float(weights @ weights))


def _moved(sizes: list[int], apart: float, person: Person) -> Array:
    """Records that take the place of others, and differ in each attribute by this chance or more."""
    pairs: Array = np.ones((1, 1))
    for size in sizes:
        unlike = (1 - np.eye(size)) / (size * (size - 1)) if size > 1 else np.ones((1, 1))
        pairs = np.asarray(np.kron(pairs, apart * unlike + (1 - apart) / size**2))
    whole = 1 - float(np.trace(pairs))
    return 2 * person.alike**2 * (np.eye(len(pairs)) / len(pairs) - pairs) / (whole if whole > 0 else 1.0)


def _patterns(weights: list[Array], used: list[int], person: Person) -> Iterator[Array]:
    """One cell, or one in each of several classes of an attribute, all others alike with some chance."""
    yield _one_record(kron(weights, 1), person)
    if person.unit.replacing and all(np.ptp(each) == 0 for each in weights):
        yield from (_moved(list(map(len, weights)), apart, person) for apart in CHANCES)
    most = person.alike
    for cap in person.caps:
        limits = [other.most for other in person.caps if other is not cap]
        classes = np.unique(cap.classes)
        many = min([len(classes), *(limit // most for limit in [person.unit.max_records, *limits])])
        if many < 2:
            continue
        if cap.attribute not in used:
            yield _one_record(kron(weights, 1), person) * many**2
            continue
        for chance in CHANCES:
            yield _spread(weights, used.index(cap.attribute), cap.classes, many, most, chance, person)


def _spread(
    weights: list[Array],
    place: int,
    classes: NDArray[np.int64],
    many: int,
    most: int,
    chance: float,
    person: Person,
) -> Array:
    own = np.array([1 / float((classes == each).sum()) for each in classes])  # within a class
    count = len(np.unique(classes))
    given = [each if at != place else own / count for at, each in enumerate(weights)]
    joint, index = kron(given, 1), np.indices([len(each) for each in given]).reshape(len(given), -1)
    others = np.delete(index, place, axis=0)
    alike = (others[:, :, None] == others[:, None, :]).all(axis=0)
    apart = classes[index[place]][:, None] != classes[index[place]]
    rest = joint / given[place][index[place]]  # chance of the other attributes' cells
    within = own[index[place]]
    same = np.outer(within, within) * (alike * rest)
    unlike = np.outer(within * rest, within * rest)
    both = many * (many - 1) / (count * (count - 1)) if count > 1 else 0.0
    moments = np.diag(many * joint) + both * apart * ((1 - chance) * unlike + chance * same)
    if person.unit.replacing:
        moments = 2 * (moments - many**2 * np.outer(joint, joint))
    return np.asarray(most**2 * moments)


def _least(gram: Array, moments: Array) -> float:
    values, vectors = np.linalg.eigh(moments)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    squares = np.linalg.eigvalsh(root.T @ gram @ root)
    return float(np.sqrt(np.maximum(squares, 0.0)).sum()) ** 2
