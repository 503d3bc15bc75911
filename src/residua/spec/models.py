"""What may stand in a release spec, field by field; unknown keys are refused."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from residua._text import hint, short
from residua.methods.registry import methods_for
from residua.privacy import Budget, MissingId, Neighbours, Unit
from residua.privacy.budgets import BUILDERS
from residua.privacy.conversions import positive, probability
from residua.spec.language import Place, Ways, families_of, family_of, targets_of, ways_of
from residua.workload import Family

Text = Annotated[str, Field(min_length=1)]
FamilyField = Annotated[Family, BeforeValidator(family_of)]
FamiliesField = Annotated[Family | list[Family], BeforeValidator(families_of)]
WaysField = Annotated[Ways, BeforeValidator(ways_of)]

# The kinds of entry, and what each takes besides its own key, `name` and `weight`.
EXTRAS = {
    "families": ("levels",),
    "columns": ("family", "numeric", "categorical", "levels"),
    "all": ("family", "numeric", "categorical", "attributes"),
    "marginals": ("attributes",),
    "sql": (),
}
KINDS = tuple(EXTRAS)
AMOUNTS = {
    "zcdp": ("rho",),
    "gdp": ("mu",),
    "pure_dp": ("epsilon",),
    "approx_dp": ("epsilon", "delta"),
    "privacy_cost": ("cost",),
}
_DEFINED_BY = {name: definition for definition, names in AMOUNTS.items() for name in names}
_SUCH_AS = {"rho": "0.1", "mu": "0.5", "epsilon": "1", "delta": "1e-6", "cost": "1"}
ENDINGS = (".csv", ".parquet")


class Part(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class TableEntry(Part):
    """One entry of `tables`: one table or many, and their weight."""

    name: Text | None = None
    weight: float = 1.0
    families: dict[Text, FamiliesField] | None = None
    columns: list[Text] | None = None
    all: WaysField | None = None
    marginals: WaysField | None = None
    sql: Text | None = None
    family: FamilyField | None = None
    numeric: FamilyField | None = None
    categorical: FamilyField | None = None
    attributes: list[Text] | None = None
    levels: Text | None = None

    @field_validator("weight", mode="before")
    @classmethod
    def _weight(cls, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise ValueError(f"a weight is a number above zero, such as 2, not {short(value)}")
        return float(value)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = self.model_fields_set - {"name", "weight"}
        kinds = [kind for kind in KINDS if kind in given]
        if len(kinds) != 1:
            found = f"it has {' and '.join(kinds)}" if kinds else "it has none"
            raise ValueError(f"an entry has one of {', '.join(KINDS)}; {found}")
        kind = kinds[0]
        for other in sorted(given - {kind, *EXTRAS[kind]}):
            raise ValueError(f"{other!r} does not go with {kind!r}")
        if getattr(self, kind) is None:
            raise ValueError(f"{kind!r} has no value")
        return self

    @property
    def kind(self) -> str:
        """Which of the kinds of entry this is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


class UnitPart(Part):
    """Whose privacy is protected."""

    max_records: Annotated[int, Field(ge=1)] = 1
    neighbours: Neighbours = "add_remove"
    id: Annotated[str, Field(min_length=1)] | None = None
    one_per: str | list[str] | None = None
    max_per: dict[str, Annotated[int, Field(ge=1)]] = {}
    missing_id: MissingId = "error"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.unit()
        return self

    def unit(self) -> Unit:
        """The unit of privacy that is written here."""
        return Unit(**self.model_dump())


class PrivacyPart(Part):
    """How much privacy may be spent; without a definition, what the targets need."""

    definition: Literal["zcdp", "gdp", "approx_dp", "pure_dp", "privacy_cost"] | None = None
    rho: Fraction | None = None
    mu: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    cost: Fraction | None = None
    unit: UnitPart = UnitPart()

    @field_validator("rho", "mu", "epsilon", "delta", "cost", mode="before")
    @classmethod
    def _amount(cls, value: Any, info: ValidationInfo) -> Fraction:
        read = probability if info.field_name == "delta" else positive
        return read(value, info.field_name or "the amount")

    @model_validator(mode="after")
    def _its_amounts(self) -> Self:
        given = self.model_fields_set - {"definition", "unit"}
        if self.definition is None:
            for name in sorted(given):
                raise ValueError(f"{name} needs a definition, such as 'definition: {_DEFINED_BY[name]}'")
            return self
        needed = AMOUNTS[self.definition]
        for name in needed:
            if name not in given:
                raise ValueError(f"{self.definition} needs {name}, such as '{name}: {_SUCH_AS[name]}'")
        for name in sorted(given - {*needed}):
            raise ValueError(f"{name} does not go with {self.definition}, which takes {' and '.join(needed)}")
        return self

    def budget(self) -> Budget | None:
        """The budget that is written here, if one is."""
        if self.definition is None:
            return None
        return BUILDERS[self.definition](*[getattr(self, name) for name in AMOUNTS[self.definition]])


def _table_file(value: str) -> str:
    if not value.lower().endswith(ENDINGS):
        raise ValueError(f"answers are written to a file that ends in {' or '.join(ENDINGS)}, not {value!r}")
    return value


class OutputPart(Part):
    """Where things are written, relative to the spec."""

    answers: Annotated[Text, AfterValidator(_table_file)] | None = None
    release: Text | None = None
    plan: Text | None = None
    stream: Text | None = None
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95


def _method(value: str) -> str:
    known = methods_for("gaussian")
    if value not in known:
        raise ValueError(f"there is no method {value!r}{hint(value, known)}; there are {', '.join(known)}")
    return value


class ReadingPart(Part):
    """How the data are written, where that is not plain."""

    delimiter: Text | None = None
    encoding: Text = "utf-8"
    decimal: Text = "."
    thousands: str = ""
    table: Text | None = None


class SpecFile(Part):
    """A whole release spec."""

    schema_: Annotated[Any, Field(alias="schema")]
    tables: Annotated[list[TableEntry], Field(min_length=1)]
    privacy: PrivacyPart = PrivacyPart()
    targets: Annotated[Any, BeforeValidator(targets_of)] = None
    guess: Annotated[int | float, Field(gt=0)] | Text | None = None
    relax: bool = False
    method: Annotated[str, AfterValidator(_method)] = "auto"
    objective: Text = "total_variance"
    effort: Literal["quick", "normal", "thorough"] = "normal"
    over: Text | None = None
    renew: Annotated[int, Field(ge=1)] | Literal["doubling"] | None = None
    output: OutputPart = OutputPart()
    ledger: Text | None = None
    data: Text | None = None
    reading: ReadingPart = ReadingPart()

    @model_validator(mode="after")
    def _budget_or_targets(self) -> Self:
        if self.targets is None and "privacy" not in self.model_fields_set:
            raise ValueError(
                "the key 'privacy' is missing; or write 'targets', such as 'targets: {stddev: 5}'"
            )
        if self.targets is None and self.privacy.definition is None:
            raise ValueError(
                "privacy needs a definition, such as 'definition: zcdp' with 'rho: 0.1', or targets"
            )
        if self.relax and (self.targets is None or self.privacy.definition is None):
            raise ValueError("relax goes with targets and a budget that may be too small for them")
        return self


def problem_of(error: ValidationError) -> tuple[Place, str]:
    """The place and the words of the first thing that is wrong."""
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    place: Place = first["loc"]
    given = first["input"]
    context: Mapping[str, Any] = first.get("ctx", {})
    match first["type"]:
        case "missing":
            return place[:-1], f"the key {place[-1]!r} is missing"
        case "extra_forbidden":
            known = _keys_at(place[:-1])
            return place, f"there is no such key{hint(place[-1], known)}; there are {', '.join(known)}"
        case "value_error":
            return place, str(context["error"])
        case "literal_error":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            return place, f"{short(given)} is not one of {', '.join(choices)}{hint(given, choices)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return place, f"should be a mapping such as 'key: value', not {_shown(given)}"
        case "list_type":
            return place, f"should be a list, each entry after a dash, not {_shown(given)}"
        case "string_type":
            return place, f"should be text, not {_shown(given)}; put it in quotes if it is meant"
        case "string_too_short":
            return place, "is empty"
        case "too_short":
            return place, "the list is empty; write at least one entry"
    return place, f"{first['msg'].lower()}, not {_shown(given)}"


def _shown(given: object) -> str:
    return "nothing" if given is None else short(given)


def _keys_at(place: Place) -> list[str]:
    """The keys that the mapping at a place takes."""
    model = _PARTS[".".join(step for step in place if isinstance(step, str))]
    return [field.alias or name for name, field in model.model_fields.items()]


_PARTS: dict[str, type[Part]] = {
    "": SpecFile,
    "tables": TableEntry,
    "privacy": PrivacyPart,
    "privacy.unit": UnitPart,
    "output": OutputPart,
    "reading": ReadingPart,
}
