"""Release specs and schemas that nobody should have written: sound ones changed as text or as data."""

from random import Random
from typing import Any

import yaml
from mutants import NUMBERS, OTHERS, TEXTS, change_document

SOUND = [
    """\
schema:
  fields:
  - name: age
    type: integer
    constraints: {minimum: 0, maximum: 5}
    residua: {outside: clip}
  - name: sex
    type: string
    constraints: {enum: [F, M]}
  - name: place
    type: string
    residua: {hierarchy: {levels: [state, county], rows: [[N, a], [N, b], [S, c]]}}
tables:
- {name: first, weight: 2, families: {age: prefix, sex: identity}}
- columns: [sex, age]
- {all: [1-way, 2-way], numeric: prefix, categorical: identity}
- {marginals: up to 2, attributes: [age, sex]}
- families: {place: {level: state}, age: {buckets: [2, 4]}}
- {columns: [age, place], family: affine}
- sql: SELECT sex, COUNT(*) FROM people WHERE age >= 2 OR sex = 'F' GROUP BY sex
privacy:
  definition: zcdp
  rho: 1/10
  unit: {max_records: 2, neighbours: add_remove}
method: auto
output: {answers: out.csv, level: 0.9}
ledger: budget.db
data: people.csv
""",
    """\
schema: {fields: [{name: a, type: boolean}, {name: b, type: number, residua: {bins: [0, 1.5], above: true}}]}
tables: [{marginals: 1, name: one}, {columns: [a, b], name: two}]
privacy: {definition: pure_dp, epsilon: '0.5'}
method: hdmm
""",
    """\
schema: {fields: [{name: a, type: integer, constraints: {enum: [3, 1, 2]}}, {name: b, type: boolean}]}
tables: [{all: 2, family: identity, name: T}, {columns: [a], family: {width: 2}}]
targets: {T: {half_width: 20, level: 0.95}, a: {stddev: 5}}
privacy: {unit: {max_records: 3, neighbours: replace_one}}
objective: total_variance
""",
    """\
schema: schema.yaml
tables: &all
- {columns: [a0]}
- {columns: [a1], weight: 0.5}
privacy: {definition: approx_dp, epsilon: 1, delta: 1e-6}
objective: max_variance
relax: false
""",
]
WORDS = (
    (
        "!!timestamp x | !!int '' | !!python/name:os.system | &a | *a | <<: *a | { | } | [ | ] | -  | "
        ":  | ?  | | | > | %YAML 1.1 | --- | ... | \t | # | ' | \" | ~ | yes | no | 0x1F | 1:30 | 1_000 | "
        ".inf | .nan | 2020-01-01 | 2020-13-45 | CONFIRM | \0 | \ufeff | ø | 💥 | "
        "LONG | "
        "1e400 | -0 | up to 99 | 40-way"
    )
    .replace("LONG", "9" * 500)
    .split(" | ")
)


def spec(chance: Random) -> bytes:
    """The bytes of one spec."""
    text = chance.choice(SOUND)
    if chance.random() < 0.45:
        document = yaml.safe_load(text)
        for _ in range(chance.choice([1, 1, 2, 3])):
            change_document(document, chance)
        return _dumped(document).encode(errors="replace")
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        text = _edited(text, chance)
    data = bytearray(text.encode())
    if chance.random() < 0.05:
        data[chance.randrange(len(data) or 1) :] = chance.randbytes(9)
    return bytes(data)


def _dumped(document: Any) -> str:
    try:
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, ValueError):  # numbers that no text holds
        return repr(document)


def _edited(text: str, chance: Random) -> str:
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    place = chance.randrange(len(text) + 1)
    match chance.randrange(9):
        case 0:
            del lines[at]
        case 1:
            lines.insert(chance.randrange(len(lines)), lines[at])
        case 2:
            lines[at] = " " * chance.randrange(4) + lines[at].lstrip()
        case 3:
            lines[at] = "".join(chance.sample(lines[at], len(lines[at])))
        case 4:
            return text[:place] + chance.choice(WORDS) + text[place + chance.randrange(9) :]
        case 5:
            return text[:place]
        case 6:
            start = chance.randrange(len(text) + 1)
            return text[:place] + text[start : start + chance.randrange(200)] + text[place:]
        case 7:
            head, colon, _ = lines[at].partition(": ")
            lines[at] = (
                f"{head}{colon}{chance.choice([*map(str, NUMBERS), *TEXTS, *map(str, OTHERS), *WORDS])}"
            )
        case 8:
            lines[at] = lines[at] + chance.choice(["[", "{", "&a ", "*a"]) * chance.choice([1, 10, 3_000])
    return "\n".join(lines)
