"""Command lines that nobody should have written, in a folder with sound and broken files."""

from pathlib import Path
from random import Random

import numpy as np
from specs import SOUND

import residua as rs

SPEC = """\
schema:
  fields:
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 9}}
  - {name: sex, type: string, constraints: {enum: [F, M]}}
tables: [{columns: [sex, age], name: T}, {marginals: up to 1}]
privacy: {definition: zcdp, rho: 1/1000}
output: {release: OUT.release, answers: OUT.csv}
"""
FILES = (
    (
        "people.yaml | people.csv | people.plan | people.release | budget.db | odd.yaml | latin.csv | "
        "empty | folder | nothing | people-*.csv | no/where.csv | LONG | "
        " | . | schema.yaml | torn.release | out.csv | out.parquet | out.release | out.html | "
        "out.yaml | other.db"
    )
    .replace("LONG", "x" * 300)
    .split(" | ")
)
WORDS = [
    "",
    "x",
    "0",
    "1",
    "-1",
    "1e9",
    "1e999",
    "nan",
    "99999999999999999999",
    "0.95",
    "2",
    "1/3",
    "age,sex",
    "sex",
    "T",
    "T=5",
    "T=stddev 5",
    "T=0",
    "=",
    "SELECT sex, COUNT(*) FROM t GROUP BY sex",
    "SELECT",
    "1GB",
    "1B",
    "-5GB",
    "ø",
    "replace_one",
    "add_remove",
    "zcdp",
    "--",
    "-h",
    "--help",
    "--json",
    "--force",
    "people",
]
COMMANDS = {
    "init": "--read-values --from-smartnoise -o --force --json --delimiter --encoding",
    "plan": "-o --target --json --force",
    "release": "--data --ledger --plan --simulate --note --memory-limit --force --json",
    "answer": "--table --sql --level -o --rows --json --force",
    "tables": "--rounded -o --rows --replicates --json --force",
    "report": "-o --plots --title --level --force",
    "budget create": "--dataset --zcdp --gdp --approx-dp --pure-dp --privacy-cost --max-records --neighbours",
    "budget show": "--json",
    "budget check": "people.release torn.release --json",
    "budget": "",
    "nonsense": "",
    "--version": "",
}
SOUND_LINES = [
    "release people.yaml --data people.csv --ledger budget.db --force",
    "release people.yaml --data people.csv --ledger budget.db --plan people.plan --force",
    "release people.yaml --data people.csv --simulate 1 --force",
    "plan people.yaml --json",
    "plan people.yaml -o out.plan --force",
    "answer people.release --table age,sex",
    "answer people.release --sql SELECT~COUNT(*)~FROM~t~WHERE~age>3",
    "tables people.release --replicates 1",
    "init people.csv -o out.yaml --force",
    "report people.release",
    "budget create other.db --zcdp 1 --dataset people",
    "budget show budget.db",
    "budget check budget.db people.release",
]


def furnish(folder: Path) -> None:
    """The files that lines are about."""
    chance = np.random.default_rng(1)
    rows = [f"{age},{'FM'[sex]}" for age, sex in chance.integers(0, [10, 2], (50, 2))]
    (folder / "people.csv").write_text("age,sex\n" + "\n".join(rows) + "\n")
    (folder / "people.yaml").write_text(SPEC.replace("OUT", "out"))
    (folder / "odd.yaml").write_text(SOUND[0].replace("ledger", "leger"))
    (folder / "latin.csv").write_bytes("age,sex\n1,\xe9\n".encode("latin-1"))
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    rs.Schema.of_sizes([3, 2]).save(folder / "schema.yaml")
    schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    work = rs.table(schema, ["sex", "age"], name="T") + rs.marginals(schema, up_to=1)
    plan = rs.plan(work, rs.zcdp("1/1000"))
    plan.save(folder / "people.plan")
    rs.Ledger.create(folder / "budget.db", rs.zcdp(1), dataset="people")
    rs.measure(plan, folder / "people.csv", ledger=folder / "budget.db").save(folder / "people.release")
    (folder / "torn.release").write_bytes((folder / "people.release").read_bytes()[:-9])


def line(chance: Random) -> list[str]:
    """The words of one line."""
    if chance.random() < 0.4:
        words = [word.replace("~", " ") for word in chance.choice(SOUND_LINES).split(" ")]
        for _ in range(chance.choice([0, 1, 1, 2])):
            _change(words, chance)
        return words
    command = chance.choice(list(COMMANDS))
    words = command.split(" ")
    for _ in range(chance.choice([0, 1, 1, 2])):
        words.append(chance.choice(FILES))
    for _ in range(chance.choice([0, 1, 2, 3])):
        words.append(chance.choice([*2 * COMMANDS[command].split(), "--nonsense", "--force"]))
        if chance.random() < 0.8:
            words.append(chance.choice(chance.choice([FILES, WORDS])))
    return words


def _change(words: list[str], chance: Random) -> None:
    at = chance.randrange(len(words))
    match chance.randrange(4):
        case 0:
            words[at] = chance.choice(FILES)
        case 1:
            words[at] = chance.choice(WORDS)
        case 2:
            words.insert(at, chance.choice(chance.choice([FILES, WORDS])))
        case 3:
            del words[at]
            words.append("people.yaml")
