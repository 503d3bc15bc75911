"""Planted defects: each breaks privacy, or what is promised about it, in one place; an audit must find all.

A mutant is a function that patches the program with pytest's `monkeypatch`; `@mutant` adds it to the list.
Those with a plan of their own return it, as it comes out of the broken program.
"""

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kinds import PLACES

import residua as rs
from residua import _measure
from residua.engines import persons
from residua.engines.memory import MemoryEngine
from residua.kernel import cost, measuring, parts
from residua.kernel.measurement import Measurement
from residua.ledger import Ledger
from residua.noise import SystemSource, laws
from residua.privacy import Privacy, Unit
from residua.release import Measurements, Release
from residua.schema.attribute import Attribute
from residua.strategy.strategy import batches_of

SCHEMA = rs.Schema(
    age=rs.Integer(0, 4, outside="clip"),
    sex=rs.Categorical("F", "M", outside="drop"),
    work=rs.Categorical("yes", "no", outside="other"),
    home=rs.Categorical("own", "rent"),
)
PERSONS = Unit(max_records=2)
WORK = rs.marginals(SCHEMA, up_to=2) + rs.table(SCHEMA, age=rs.prefix, sex=rs.identity)

MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], rs.Plan | None]] = {}


def mutant(function: Callable[[pytest.MonkeyPatch], rs.Plan | None]) -> Callable[..., Any]:
    MUTANTS[function.__name__] = function
    return function


def made(
    method: str = "querysmasher", unit: Unit = PERSONS, budget: rs.privacy.Budget | None = None
) -> rs.Plan:
    return rs.plan(WORK, budget or rs.zcdp(1), method=method, unit=unit)


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, make: Callable[..., Any]) -> None:
    """Replace a function by one that is given the original first."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **named: make(original, *args, **named))


# Noise


@mutant
def noise_of_half_the_scale(patch):
    around(patch, Measurement, "laws", lambda own, self: [type(law)(law.parameter / 4) for law in own(self)])


@mutant
def noise_of_one_parameter_for_all(patch):
    def same(own, self):
        found = own(self)
        return [found[0]] * len(found) if len(found) > 1 else [type(law)(law.parameter / 2) for law in found]

    around(patch, Measurement, "laws", same)


@mutant
def no_noise(patch):
    around(patch, measuring, "draw", lambda own, *given: 0 * own(*given))


@mutant
def noise_halved_after_it_was_drawn(patch):
    around(patch, measuring, "draw", lambda own, *given: own(*given) // 2)


@mutant
def one_draw_for_all_numbers_of_a_call(patch):
    around(patch, measuring, "draw", lambda own, *given: np.full_like(own(*given), own(*given)[:1]))


@mutant
def noise_reused_for_the_next_block(patch):
    kept: dict[int, Any] = {}
    around(patch, measuring, "draw", lambda own, *given: kept.setdefault(sum(given[2]), own(*given)))


@mutant
def noise_in_reverse_is_added_to_two_halves(patch):
    def half(own, *given):
        drawn = own(*given)
        middle = len(drawn) // 2
        drawn[middle : 2 * middle] = drawn[:middle]
        return drawn

    around(patch, measuring, "draw", half)


@mutant
def the_first_block_without_noise(patch):
    def skipped(own, batch, answers, *rest):
        exact = answers[0].copy()
        found = own(batch, answers, *rest)
        found[0] = exact
        return found

    around(patch, measuring, "noisy", skipped)


@mutant
def the_last_number_of_each_block_without_noise(patch):
    def skipped(own, batch, answers, *rest):
        exact = answers[:, -1].copy()
        found = own(batch, answers, *rest)
        found[:, -1] = exact
        return found

    around(patch, measuring, "noisy", skipped)


@mutant
def noise_only_where_somebody_is(patch):
    def sparse(own, batch, answers, *rest):
        nobody = answers == 0
        found = own(batch, answers, *rest)
        found[nobody] = 0
        return found

    around(patch, measuring, "noisy", sparse)


@mutant
def noise_drawn_again_until_numbers_are_positive(patch):
    def again(own, batch, answers, laws, source, order):
        for _ in range(3):
            found = own(batch, answers.copy(), laws, source, order)
            if found.min() >= 0:
                break
        return found

    around(patch, measuring, "noisy", again)


@mutant
def negative_numbers_cut_off(patch):
    around(patch, measuring, "noisy", lambda own, *given: np.maximum(own(*given), 0))


@mutant
def noise_as_wide_as_the_data(patch):
    def scaled(own, batch, answers, laws, *rest):
        more = 1 + int(abs(answers).sum()) % 3
        return own(batch, answers, [type(law)(law.parameter / more) for law in laws], *rest)

    around(patch, measuring, "noisy", scaled)


@mutant
def blocks_get_each_others_noise(patch):
    def made_of_two_laws():
        work = 1e6 * rs.table(SCHEMA, ["age"]) + rs.table(SCHEMA, ["home"]) + 100 * rs.table(SCHEMA, ["work"])
        return rs.plan(work, rs.zcdp(1), method="querysmasher", unit=PERSONS)

    def turned(own, batch, answers, laws, source, order):
        return own(batch, answers, laws[::-1], source, order)

    plan = made_of_two_laws()
    if all(len(batch.parameters) == 1 for batch in plan.batches):
        found = measuring.noisy_answers

        def shuffled(*given, **named):
            with pytest.MonkeyPatch.context() as inner:
                laws_of = Measurement.laws
                last = plan.batches[-1]
                inner.setattr(Measurement, "laws", lambda self: laws_of(last))
                return found(*given, **named)

        patch.setattr(_measure, "noisy_answers", shuffled)
    around(patch, measuring, "noisy", turned)
    return plan


@mutant
def real_noise_rounded(patch):
    def rounded(own, source, laws, counts):
        chance = np.random.default_rng(source.words(1)[0])
        spread = np.repeat([float(law.parameter) ** 0.5 for law in laws], counts)
        return np.rint(chance.normal(0, spread)).astype(np.int64)

    around(patch, measuring, "draw", rounded)


@mutant
def a_sampler_that_is_too_narrow(patch):
    own = laws.rounded_gaussian

    def rounded_gaussian(source, variances, owner):
        return own(source, [each / 9 for each in variances], owner)

    code = rounded_gaussian.__code__.replace(co_filename=own.__code__.co_filename)
    rounded_gaussian.__code__ = code
    patch.setattr(laws.RoundedGaussian, "sample", staticmethod(rounded_gaussian))
    return rs.plan(rs.marginals(SCHEMA, ways=(2, 3)), rs.zcdp(1), method="identity")


@mutant
def entropy_from_a_fixed_seed(patch):
    patch.setattr(SystemSource, "words", lambda self, count: np.random.PCG64(7).random_raw(count))


@mutant
def entropy_that_repeats_a_word(patch):
    around(patch, SystemSource, "words", lambda own, self, count: np.full_like(own(self, count), 12345))


# Debits


@mutant
def no_debit(patch):
    def unpaid(own, self, privacy, **named):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr("residua.ledger.sqlite._Events.add", lambda *given: None)
            return own(self, privacy, **named)

    around(patch, Ledger, "spend", unpaid)


@mutant
def a_debit_of_half_the_cost(patch):
    def cheap(own, self, privacy, **named):
        return own(self, Privacy.from_cost(privacy.cost / 2, privacy.unit), **named)

    around(patch, Ledger, "spend", cheap)


@mutant
def a_debit_for_another_plan(patch):
    around(patch, Ledger, "spend", lambda own, self, privacy, **named: own(self, privacy, plan_hash="0" * 64))


@mutant
def a_debit_after_the_noise(patch):
    def late(own, plan, data, source, ledger, **named):
        values, _ = own(plan, data, source, None, **named)
        entry = ledger.spend(plan.privacy, plan_hash=plan.hash, note=named["note"])
        paid = {
            "dataset": "invented",
            "entry": str(entry.id),
            "amount": str(entry.amount),
            "hash": entry.hash,
        }
        return values, paid

    around(patch, _measure, "noisy_answers", late)


@mutant
def noise_tried_out_before_the_debit(patch):
    def eager(own, laws, source):
        own(laws, source)
        source.words(64)

    around(patch, measuring, "_try_drawing", eager)


@mutant
def a_debit_that_tells_how_many_records(patch):
    def telling(own, batches, engine, *rest):
        counted.append(engine.records)
        return own(batches, engine, *rest)

    counted: list[int] = []
    around(patch, measuring, "exact_answers", telling)

    def noted(own, self, privacy, *, note="", **named):
        return own(self, privacy, note=f"{note}{counted[-1]}", **named)

    around(patch, Ledger, "spend", noted)


@mutant
def two_debits(patch):
    def twice(own, self, privacy, **named):
        half = Privacy.from_cost(privacy.cost / 2, privacy.unit)
        own(self, half, **named)
        return own(self, half, **named)

    around(patch, Ledger, "spend", twice)


# Exact answers


@mutant
def a_record_counted_twice(patch):
    def twice(own, self, sets, progress=None):
        return [
            2 * counts if each else counts
            for counts, each in zip(own(self, sets, progress), sets, strict=True)
        ]

    around(patch, MemoryEngine, "tally", twice)


@mutant
def equal_records_counted_once(patch):
    around(patch, MemoryEngine, "tally", lambda own, *given: [np.minimum(each, 1) for each in own(*given)])


@mutant
def shares_instead_of_counts(patch):
    def shares(own, self, sets, progress=None):
        return [1000 * each // max(self.records, 1) for each in own(self, sets, progress)]

    around(patch, MemoryEngine, "tally", shares)


@mutant
def counts_rounded_to_tens(patch):
    around(patch, MemoryEngine, "tally", lambda own, *given: [(each + 5) // 10 * 10 for each in own(*given)])


@mutant
def the_last_record_forgotten(patch):
    def fewer(own, self, codes, *rest, **named):
        own(
            self, [column[:-1] for column in codes] if isinstance(codes, list) else codes[:-1], *rest, **named
        )

    around(patch, MemoryEngine, "__init__", fewer)


@mutant
def a_file_read_without_its_last_line(patch):
    own = _measure.noisy_answers

    def shorter(plan, data, *rest, **named):
        if isinstance(data, str | os.PathLike):
            lines = open(data, encoding="utf-8").read().splitlines()  # noqa: SIM115
            data = {n: v for n, *v in zip(*(line.split(",") for line in lines[:-1]), strict=True)}
        return own(plan, data, *rest, **named)

    patch.setattr(_measure, "noisy_answers", shorter)


@mutant
def a_matrix_that_is_not_the_declared_one(patch):
    def other(own, self, counts, *rest):
        found = own(self, counts, *rest)
        found[:, 0] += counts[:, 0]
        return found

    around(patch, Measurement, "apply", other)


@mutant
def a_multiplier_too_many(patch):
    around(patch, Measurement, "apply", lambda own, *given: 2 * own(*given))


@mutant
def a_block_measured_of_another_marginal(patch):
    def rolled(own, self, counts, *rest):
        return own(self, np.roll(counts, 1, axis=1), *rest)

    around(patch, Measurement, "apply", rolled)


@mutant
def blocks_in_the_order_of_their_counts(patch):
    def sorted_blocks(own, batch, answers, *rest):
        return own(batch, answers[np.argsort(answers[:, 0], kind="stable")], *rest)

    around(patch, measuring, "noisy", sorted_blocks)
    return rs.plan(rs.marginals(rs.Schema.of_sizes([3] * 4), up_to=1), rs.zcdp(1), method="querysmasher")


@mutant
def nobody_means_no_noise(patch):
    def early(own, batch, answers, *rest):
        return own(batch, answers, *rest) if answers.any() else answers

    around(patch, measuring, "noisy", early)


# Values outside the schema


def settled(patch, change):
    def broken(own, self, cells, column, source):
        return change(own, self, cells, column, source)

    around(patch, Attribute, "_settle", broken)


@mutant
def a_value_that_is_not_clipped_but_wraps_around(patch):
    def wrapped(own, self, cells, column, source):
        missed = cells < 0
        found = own(self, cells, column, source)
        return np.where(missed & (found >= 0) & (self.outside == "clip"), found // 2, found)

    settled(patch, wrapped)


@mutant
def records_to_drop_are_kept_in_the_first_cell(patch):
    def kept(own, self, cells, column, source):
        found = own(self, cells, column, source)
        return np.where((found < 0) & (self.outside == "drop"), 0, found).astype(np.int32)

    settled(patch, kept)


@mutant
def others_are_counted_with_the_first(patch):
    def first(own, self, cells, column, source):
        missed = cells < 0
        found = own(self, cells, column, source)
        return np.where(missed & (self.outside == "other"), 0, found).astype(np.int32)

    settled(patch, first)


@mutant
def errors_are_dropped_silently(patch):
    def silent(own, self, cells, column, source):
        return (
            np.where(cells < 0, -1, cells).astype(np.int32)
            if self.outside == "error"
            else own(self, cells, column, source)
        )

    settled(patch, silent)


@mutant
def refused_after_it_was_paid_for(patch):
    own = _measure.noisy_answers

    def late(plan, data, source, ledger, *, note, **named):
        try:
            return own(plan, data, source, ledger, note=note, **named)
        except rs.DataError:
            ledger.spend(plan.privacy, plan_hash=plan.hash, note=note)
            raise

    patch.setattr(_measure, "noisy_answers", late)


@mutant
def a_warning_counts_what_was_dropped(patch):
    def told(own, self, cells, column, source):
        found = own(self, cells, column, source)
        if (found < 0).any():
            warnings.warn(f"{(found < 0).sum()} records dropped", stacklevel=1)
        return found

    settled(patch, told)


# Places that are measured in parts


@mutant
def the_last_part_without_noise(patch):
    def quiet(own, batch, answers, laws, source, order, blocks=None):
        silent = blocks is not None and len(batch.subsets) - 1 in blocks
        return answers if silent else own(batch, answers, laws, source, order, blocks)

    around(patch, parts, "noisy", quiet)
    return rs.plan(rs.levels(PLACES, "place", ["sex"]), rs.zcdp(1), method="places")


@mutant
def a_part_is_drawn_before_it_is_paid_for(patch):
    def early(own, plan, laws, source, ledger, **named):
        source.words(4)
        source.words(4)
        return own(plan, laws, source, ledger, **named)

    around(patch, parts, "pay", early)
    return rs.plan(rs.levels(PLACES, "place", ["sex"]), rs.zcdp(1), method="places")


@mutant
def parts_without_records_are_left_without_noise(patch):
    def spared(own, batch, answers, laws, source, order, blocks=None):
        empty = blocks is not None and not answers.any()
        return answers if empty else own(batch, answers, laws, source, order, blocks)

    around(patch, parts, "noisy", spared)
    return rs.plan(rs.levels(PLACES, "place", ["sex"]), rs.zcdp(1), method="places")


# Persons of whom only some records are counted

ENFORCED = Unit(id="person_id", max_records=2)
CAPPED = Unit(id="person_id", max_records=4, one_per="age")


@mutant
def every_record_of_a_person_is_counted(patch):
    patch.setattr(persons, "kept_at_once", lambda person, whose, words, packing: np.arange(len(whose)))
    return made(unit=ENFORCED)


@mutant
def one_record_of_a_person_too_many(patch):
    around(patch, persons, "_lowest", lambda own, groups, marks, most: own(groups, marks, most + 1))
    return made(unit=ENFORCED)


@mutant
def records_of_one_class_are_not_limited(patch):
    around(patch, persons, "kept_at_once", lambda own, person, *rest: own(replace(person, caps=()), *rest))
    return made(unit=CAPPED)


@mutant
def what_is_kept_of_a_person_depends_on_others(patch):
    def crowded(own, words, counts):
        return own([each + np.uint64(len(counts) * (at + 1)) for at, each in enumerate(words)], counts)

    around(patch, persons, "_marks", crowded)
    return made(unit=ENFORCED)


@mutant
def what_is_kept_of_a_person_depends_on_the_order_of_the_data(patch):
    around(patch, persons, "_marks", lambda own, words, counts: np.arange(len(words[0]), dtype=np.uint64))
    return made(unit=ENFORCED)


@mutant
def two_persons_are_taken_for_one(patch):
    around(patch, persons, "numbered", lambda own, ids: own(ids) // np.uint64(2))
    return made(unit=ENFORCED)


@mutant
def records_without_an_id_are_counted_though_they_are_refused(patch):
    def free(own, person, *rest):
        return own(replace(person, unit=replace(person.unit, missing_id="own")), *rest)

    around(patch, persons, "without_missing", free)
    return made(unit=ENFORCED)


@mutant
def records_without_an_id_are_one_person(patch):
    own = persons.plain_ids

    def filled(values, name):
        found = own(values, name)
        return found.fill_null(b"nobody") if found.null_count else found

    patch.setattr(persons, "plain_ids", filled)
    return made(unit=replace(ENFORCED, missing_id="drop"))


@mutant
def a_person_is_planned_as_if_all_records_were_apart(patch):
    unchecked(patch)
    patch.setattr("residua.kernel.cost.cost_power", lambda law: 1)
    plan = made(unit=ENFORCED)
    patch.undo()
    unchecked(patch)
    return plan


# Messages and files


@mutant
def progress_tells_how_many_records(patch):
    def telling(own, batches, engine, positions, progress, *rest):
        if progress is not None:
            progress(f"counting {engine.records} records", 0.0)
        return own(batches, engine, positions, progress, *rest)

    around(patch, measuring, "exact_answers", telling)


@mutant
def the_number_of_records_is_printed(patch):
    def printing(own, batches, engine, *rest):
        print(engine.records, file=sys.stderr)
        return own(batches, engine, *rest)

    around(patch, measuring, "exact_answers", printing)


@mutant
def the_audit_record_tells_how_many_records(patch):
    def telling(own, batches, engine, *rest):
        counted.append(engine.records)
        return own(batches, engine, *rest)

    counted: list[int] = []
    around(patch, measuring, "exact_answers", telling)
    around(
        patch, _measure, "audit_record", lambda own, *a, **n: {**own(*a, **n), "records": str(counted[-1])}
    )


@mutant
def exact_answers_are_kept_in_the_file(patch):
    def keeping(own, batches, engine, *rest):
        found = own(batches, engine, *rest)
        kept[:] = [each.copy() for each in found]
        return found

    kept: list[Any] = []
    around(patch, measuring, "exact_answers", keeping)

    def content(own, self):
        manifest, arrays = own(self)
        return manifest, {**arrays, **{f"measurements.exact.{n}": each for n, each in enumerate(kept)}}

    around(patch, Release, "_content", content)
    around(patch, _measure, "Measurements", lambda own, values: own((*values[:-1], values[-1] + 0)))
    patch.setattr(Measurements, "to_manifest", _with_truth(Measurements.to_manifest, kept))


def _with_truth(own, kept):
    def to_manifest(self, arrays):
        found = own(self, arrays)
        return {**found, "truth": [int(each.sum()) for each in kept]}

    return to_manifest


@mutant
def small_numbers_in_a_small_type(patch):
    def narrow(own, self, arrays):
        found = own(self, arrays)
        for name in list(arrays):
            if name.startswith("measurements.") and arrays[name].sum() % 2:
                arrays[name] = arrays[name].astype(np.int32)
        return found

    around(patch, Measurements, "to_manifest", narrow)


@mutant
def a_check_that_runs_only_for_some_data(patch):
    own = measuring.noisy

    def _noisy(batch, answers, laws, source, order):
        if int(answers.sum()) % 2:
            answers = answers + 0
        return own(batch, answers, laws, source, order)

    _noisy.__code__ = _noisy.__code__.replace(co_filename=own.__code__.co_filename)
    patch.setattr(measuring, "noisy", _noisy)


# Plans that cost more than they state


def unchecked(patch):
    """The kernel's own refusal of such plans is out of order too."""
    for place in ("residua.audit.replay.refuse_unkept", "residua._measure.refuse_unkept"):
        patch.setattr(place, lambda plan: None)


@mutant
def records_of_a_person_are_not_squared(patch):
    patch.setattr("residua.kernel.cost.cost_power", lambda law: 1)
    unchecked(patch)
    plan = made()
    patch.undo()
    unchecked(patch)
    return plan


@mutant
def a_replaced_record_costs_no_more_than_an_added_one(patch):
    unchecked(patch)
    patch.setattr("residua.kernel.cost.replaced_cost", cost.added_cost)
    return rs.plan(WORK, rs.zcdp(1), method="identity", unit=Unit(neighbours="replace_one"))


@mutant
def a_column_norm_left_out(patch):
    unchecked(patch)
    own = batches_of

    def cheap(strategy):
        return [
            replace(each, parameters=tuple(p * Fraction(9, 10) for p in each.parameters))
            for each in own(strategy)
        ]

    plan = made("dense")
    plan.__dict__["batches"] = cheap(plan.strategy)
    return plan


@mutant
def laplace_noise_scaled_by_squares(patch):
    unchecked(patch)
    plan = rs.plan(WORK, rs.pure_dp(1), method="identity")
    batches = [replace(each, parameters=tuple(p / 2 for p in each.parameters)) for each in plan.batches]
    plan.__dict__["batches"] = batches
    return plan
