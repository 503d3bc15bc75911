"""Accuracy targets as words of a command."""

from collections.abc import Sequence

from residua.accuracy import Target
from residua.errors import BudgetError
from residua.schema.coding import hint, short
from residua.spec.language import TARGET_WORDS


def written_targets(written: Sequence[str]) -> Target | dict[str, Target]:
    """The targets of the command line: one for everything, or one for each name.

    >>> written_targets(["stddev:5"]), written_targets(["T1=stddev:5", "one-way=half_width:20@0.9"])
    (stddev(5), {'T1': stddev(5), 'one-way': half_width(20, level=0.9)})
    """
    if len(written) == 1 and "=" not in written[0]:
        return _written_target(written[0])
    targets: dict[str, Target] = {}
    for text in written:
        name, sign, target = text.rpartition("=")
        if not sign:
            raise BudgetError(
                f"--target {short(text)}: of several targets each needs a name, such as T1=stddev:5"
            )
        if name in targets:
            raise BudgetError(f"--target: there are two targets for {name!r}; keep one")
        targets[name] = _written_target(target)
    return targets


def _written_target(text: str) -> Target:
    word, _, figures = text.partition(":")
    if word not in TARGET_WORDS:
        raise BudgetError(
            f"--target: {short(text)} is no target{hint(word, TARGET_WORDS)}; write variance:25, stddev:5, "
            "half_width:20 or half_width:20@0.9"
        )
    amount, at, level = figures.partition("@")
    try:
        numbers = [float(amount), *([float(level)] if at else [])]
    except ValueError:
        raise BudgetError(f"--target: {short(figures)} is no number; write {word}:5") from None
    if at and word != "half_width":
        raise BudgetError(f"--target: {short(text)}: a level goes with half_width only")
    return TARGET_WORDS[word](*numbers)
