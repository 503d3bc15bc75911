"""The sentences of a report: what the privacy means, how wrong a number may be, and the methods paragraph.

Numbers stand in it as people read them, with as many digits as mean something.
"""

import math
from fractions import Fraction
from statistics import NormalDist

from residua._text import counted
from residua.privacy import Privacy
from residua.privacy.conversions import text_above
from residua.report.budgets import DELTA
from residua.report.contents import Contents, Share

DELTAS = ("1e-4", "1e-6", "1e-9", "1e-12")
APPROXIMATE = "approximate DP"
FALSE_ALARMS = 0.05
SCOPES = {
    "all mechanisms": "every unbiased mechanism of the same privacy cost that puts its numbers together "
    "linearly from measurements with Gaussian noise, whatever it measures",
    "this block structure": "mechanisms that measure the same sets of attributes independently",
    "all Laplace noise": "every unbiased mechanism that adds independent Laplace noise",
}


def decimals_for(stddev: float) -> int:
    """How many decimals of a number mean something, beside its standard deviation."""
    if not 0 < stddev < math.inf:
        return 1
    return min(8, max(0, 1 - math.floor(math.log10(stddev))))


def figure(number: float) -> str:
    """Four digits, or a dash for what is not known.

    >>> figure(12345.6), figure(0.123456), figure(float("nan"))
    ('12,350', '0.1235', '-')
    """
    if math.isnan(number):
        return "-"
    places = max(0, 3 - math.floor(math.log10(abs(number)))) if number else 0
    return f"{float(f'{number:.4g}'):,.{min(places, 8)}f}" if 1e-4 <= abs(number) < 1e15 else f"{number:.4g}"


def percent(fraction: float) -> str:
    """A share as a percentage of at most four digits.

    >>> percent(0.12345), percent(1.0), percent(2e-6)
    ('12.3%', '100%', '0.0002%')
    """
    if fraction >= 0.9995:
        return "100%" if fraction < 1.0005 else f"{100 * fraction:.3g}%"
    return f"{100 * fraction:.1f}%" if fraction >= 0.001 else f"{float(f'{100 * fraction:.1g}'):.12g}%"


def percent_above(fraction: float) -> str:
    """A probability that must not be understated: a percentage with one decimal, rounded up.

    >>> percent_above(0.0912)
    '9.2%'
    """
    tenths = math.ceil(fraction * 1000 * (1 - 1e-12))
    return f"{tenths // 10}%" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}%"


def level_text(level: float) -> str:
    """A confidence level as people write it: `95%`."""
    return f"{100 * level:.6g}%"


def detection_limit(privacy: Privacy, false_alarms: float) -> float:
    """The most of the present whom any test finds that takes this share of the absent for present (V-001).

    >>> round(detection_limit(Privacy.from_cost(0), 0.05), 9)
    0.05
    """
    if privacy.mu is not None:
        normal = NormalDist()
        return normal.cdf(normal.inv_cdf(false_alarms) + privacy.mu)
    if privacy.pure_epsilon is not None:
        ratio = math.exp(min(float(privacy.pure_epsilon), 700.0))
        return min(1.0, ratio * false_alarms, 1 - (1 - false_alarms) / ratio)
    ratio = math.exp(min(privacy.epsilon(DELTA), 700.0))
    return min(1.0, ratio * false_alarms + float(DELTA))


def meaning(contents: Contents) -> str:
    """What the privacy means to a person, as a test that somebody might try."""
    unit = contents.privacy.unit
    limit = percent_above(detection_limit(contents.privacy, FALSE_ALARMS))
    share = percent_above(FALSE_ALARMS)
    if unit.replacing:
        whose = "a certain record" if unit.noun == "record" else f"a certain {unit.noun}'s records"
        aim = f"which of two guesses about {whose} is true"
        answer = "picks the second guess"
        absent, present = "where the first is true", "where the second is true"
    else:
        whose = "a certain record is" if unit.noun == "record" else f"a certain {unit.noun}'s records are"
        aim = f"whether {whose} among the data"
        answer, absent, present = "says yes", "where the truth is no", "where the truth is yes"
    return (
        f"Suppose somebody knows every other record and decides from these tables {aim}. Any rule that "
        f"wrongly {answer} in {share} of the cases {absent} also {answer} in at most {limit} of the cases "
        f"{present}, however clever the rule and however fast the computer; a rule that ignores the tables "
        f"{answer} in {share} of them. In the words of statistics: a test of level {share} has a power of "
        f"at most {limit}, and of {share} without the tables."
    )


def definitions(privacy: Privacy) -> list[tuple[str, str, str]]:
    """Every definition that the noise proves: its name, the figure rounded up, and what it is."""
    known: list[tuple[str, str, Fraction | float | None, str]] = [
        ("pure DP", "epsilon = ", privacy.pure_epsilon, "for every delta, zero included"),
        ("zero-concentrated DP", "rho = ", privacy.rho, "adds up over releases"),
        ("Gaussian DP", "mu = ", privacy.mu, "the sharpest; all others here follow from it"),
        ("privacy cost", "", privacy.cost, "mu squared, twice rho; adds up over releases"),
    ]
    rows = [(name, of + text_above(own), note) for name, of, own, note in known if own is not None]
    if privacy.pure_epsilon is None:
        rows += [
            (APPROXIMATE, f"epsilon = {text_above(privacy.epsilon(delta))}", f"at delta = {delta}")
            for delta in DELTAS
        ]
    return rows


def headline(contents: Contents) -> tuple[str, str]:
    """The definition that the budget was given in, and its figure."""
    name, _, amount = contents.spent.partition(" with ")
    if name == APPROXIMATE:
        return name, amount
    rows = definitions(contents.privacy)
    return next(((name, said) for name, said, _ in rows if contents.spent.startswith(name)), rows[0][:2])


def noise_words(privacy: Privacy) -> str:
    """The law of the noise, as far as the privacy statement tells it."""
    if privacy.pure_epsilon is not None:
        return "discrete Laplace noise"
    return "Gaussian noise in whole numbers" if privacy.mu is not None else "discrete Gaussian noise"


def reading(contents: Contents) -> list[str]:
    """How to read an error, with one published number as the example."""
    level, margin = level_text(contents.level), f"{contents.margin:.3g}"
    misses = round(contents.numbers * (1 - contents.level))
    missed = f"; of all {contents.numbers:,} intervals about {misses:,} miss theirs" if misses else ""
    words = [
        "All error stated here comes from the noise that protects people: random, zero on average, and "
        "independent of how large the true number is, so that a small count is relatively less certain "
        "than a large one. Errors in the data, and sampling error if the data are a sample, come on top.",
        "How large it is follows from the budget and from the tables: a number is put together from noisy "
        "measurements, and its error from theirs. It does not depend on the data, and is known before they "
        "are touched.",
        f"A number's standard deviation is the usual size of its error. Its {level} interval, {margin} "
        f"standard deviations to either side, holds the true number with probability {level}{missed}. The "
        "typical error of several numbers is the root mean square of their standard deviations.",
    ]
    if contents.tables > 1 and contents.goal.certificate.objective == "total_variance":
        words.append(
            "The plan makes the sum of all squared errors small, and each number weighs the same unless "
            "weights were given. So most of the budget goes to tables with many numbers, and a table with "
            "few, usually larger numbers can have larger errors."
        )
    if contents.released:
        words.append(
            "Published numbers are unbiased and agree with each other: the parts of a table add up to its "
            "total, and the same count in two tables is the same number. The price is that they need not "
            "be whole, and that a count which is truly near zero can come out negative; do not round or "
            "cut off before adding up."
        )
        words.append(
            "The errors of different numbers are correlated. Do not add up their variances to find the "
            "error of a sum or a difference: ask the release for that sum, and it gives its own error."
        )
    return words


def example(contents: Contents) -> str:
    """One number of the report, read aloud; empty where none is listed."""
    listed = [sheet for sheet in contents.sheets if sheet.numbers is not None]
    found = next((sheet for sheet in listed if sheet.count > 1), listed[0] if listed else None)
    if found is None or found.numbers is None:
        return ""
    numbers, level = found.numbers, level_text(contents.level)
    middle = len(numbers.queries) // 2
    stddev = float(numbers.stddev[middle])
    where = f"In table \u201c{found.name}\u201d, the number for \u201c{asked(numbers.queries[middle])}\u201d"
    if numbers.values is None or numbers.lower is None or numbers.upper is None:
        return (
            f"{where} will have a standard deviation of {figure(stddev)}: it will be published within "
            f"{figure(contents.margin * stddev)} of the truth with probability {level}, whatever the truth "
            "is."
        )
    value, lower, upper = (
        shown(float(each[middle]), stddev) for each in (numbers.values, numbers.lower, numbers.upper)
    )
    return (
        f"{where} is {value} with a standard deviation of {figure(stddev)}: its {level} interval is "
        f"{lower} to {upper}."
    )


def half_width(number: float) -> str:
    """Half the width of an interval as it stands below a number: three digits, and no decimals from 100 on.

    >>> half_width(14.302), half_width(0.01234), half_width(1234.5)
    ('14.3', '0.0123', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 else f"{float(f'{number:.3g}'):.12g}"


def asked(query: str) -> str:
    """A query in words; the one that asks nothing of a record counts everybody."""
    return query if query and query != "all" else "all records"


def shown(number: float, stddev: float) -> str:
    """A published number with the decimals that mean something, with a real minus sign."""
    text = f"{number:,.{decimals_for(stddev)}f}"
    return text.replace("-", "\u2212") if float(text.replace(",", "")) else text.replace("-", "")


def methods_paragraph(contents: Contents) -> str:
    """A paragraph for a publication, figures and all."""
    privacy, goal = contents.privacy, contents.goal
    done = contents.released
    tables = counted(contents.tables, "table", "tables")
    mixed = contents.noun == "count"
    what, whose = ("numbers", "the counts'") if mixed else ("counts", "their")
    numbers = counted(contents.numbers, what[:-1], what)
    largest = f", the largest {figure(contents.max_stddev)}" if not math.isnan(contents.max_stddev) else ""
    errors = f" The root mean square of {whose} standard deviations is {figure(contents.rmse)}{largest}."
    guarantees = "; ".join(f"{name} with {value}" for name, value, _ in definitions(privacy)[:2])
    if privacy.pure_epsilon is None:
        definition, amounts = headline(contents)
        if definition != APPROXIMATE:
            amounts = f"epsilon = {text_above(privacy.epsilon(DELTA))} and delta = {DELTA}"
        guarantees += f"; hence (epsilon, delta)-DP with {amounts}"
    proof = goal.certificate
    nearness = ""
    if math.isfinite(proof.gap):
        near = f"{near_text(proof.gap)} above a proved lower bound for {SCOPES[proof.scope]}"
        nearness = f" The {goal.words} of the {what} is {near}."
    program = contents.program
    if contents.method != "auto":
        program += f", method \u201c{contents.method}\u201d"
    history = dict(contents.history)
    times = "twice" if "combined from" in history else "once"
    times = "in instalments, each period once," if "instalments of one plan" in history else times
    hashes = ", ".join(f"{name} {own}" for name, own in contents.hashes.items())
    warning = "Simulated, not for publication. " if contents.simulated else ""
    return (
        f"{warning}{tables} with {numbers} {'were' if done else 'will be'} published under differential "
        f"privacy (DP), which limits the effect of {privacy.unit.describe()}. The data "
        f"{'were' if done else 'will be'} measured {times} with {noise_words(privacy)}, drawn exactly from "
        f"its distribution, by a mechanism fitted to these tables ({program}). The release satisfies "
        f"{guarantees}. All {what} are least-squares estimates from these measurements: unbiased, "
        f"consistent with each other, and neither rounded nor cut off at zero."
        f"{'' if math.isnan(contents.rmse) else errors} Intervals are the estimate plus "
        f"and minus {contents.margin:.3g} standard deviations ({level_text(contents.level)}) and cover the "
        f"noise only, neither sampling error nor errors in the data.{nearness} Hashes: {hashes}."
    )


def other_budgets(contents: Contents) -> str:
    """What twice the budget would buy, and what half of it would cost."""
    at = {point.words: point for point in contents.points}
    this, twice, half = at["this plan"], at["double"], at["half"]
    rule = (
        "Four times the rho halves every error."
        if contents.privacy.pure_epsilon is None
        else "Twice the epsilon halves every error."
    )
    if math.isnan(this.rmse):
        return rule
    return (
        f"Twice this budget ({twice.amount}) would bring the typical error of a {contents.noun} from "
        f"{figure(this.rmse)} to {figure(twice.rmse)}; half of it ({half.amount}) would bring it to "
        f"{figure(half.rmse)}. {rule}"
    )


def share_words(share: Share) -> str:
    """What a share of the privacy was spent on."""
    return share.words if share.blocks == 1 else f"{share.blocks:,} {share.words}"


def gap_text(gap: float) -> str:
    """A relative distance as a percentage that is not understated.

    >>> gap_text(0.01234), gap_text(3.2e-7)
    ('1.24%', '0.00004%')
    """
    if gap <= 0:
        return "0%"
    digits = 2 if gap >= 1e-3 else max(0, -math.floor(math.log10(100 * gap)))
    step = 10.0**-digits
    return f"{math.ceil(round(100 * gap / step, 9)) * step:.{digits}f}%"


def near_text(gap: float) -> str:
    """How far above a bound at most, without digits that nobody needs.

    >>> near_text(0.01234), near_text(3.2e-10)
    ('at most 1.24%', 'less than 0.001%')
    """
    return "less than 0.001%" if gap < 1e-5 else f"at most {gap_text(gap)}"
