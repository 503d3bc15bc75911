"""SQL that nobody should have written: grown from a grammar, then changed."""

from collections.abc import Callable
from random import Random

COLUMNS = [
    "age",
    "sex",
    "pay",
    "place",
    "code",
    "member",
    "kids",
    "nothing",
    "AGE",
    '"age"',
    "t.age",
    "x.age",
]
CONSTANTS = [
    "0",
    "1",
    "5",
    "-1",
    "2.5",
    "1e3",
    "1e999",
    "'F'",
    "'M'",
    "'NY'",
    "'Kings'",
    "'(other)'",
    "''",
    "TRUE",
    "NULL",
    "10000",
    "999999999999999999999999999999999999999999999999999999999999",
    "0x1F",
    "'ø'",
    "'[0, 10000)'",
    "DATE '2020-01-01'",
    "1 + 1",
    "age",
    "(SELECT 1)",
]
VALUES = {
    "age": ["0", "5", "99", "18", "'7'"],
    "sex": ["'F'", "'M'"],
    "place": ["'Kings'", "'Essex'", "'NY/Bronx'"],
    "code": ["1", "2", "3"],
    "member": ["TRUE", "FALSE"],
    "kids": ["0", "3", "'(other)'"],
    "pay": ["'[0, 10000)'"],
}
SIGNS = ["=", "<>", "!=", "<", "<=", ">", ">=", "==", "LIKE", "IS", "~"]
WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT 3",
    "UNION",
    "JOIN",
    "DISTINCT",
    "CASE",
    "WHEN",
    "THEN",
    "END",
    "OVER",
    "PARTITION BY",
    "ROLLUP",
    "CUBE",
    "GROUPING SETS",
    "NOT",
    "AND",
    "OR",
    "IN",
    "BETWEEN",
    "(",
    ")",
    ",",
    ";",
    "*",
    "--",
    "/*",
    "*/",
    "'",
    '"',
    "\\",
    "$1",
    "?",
    "@",
    "\x00",
    "ø",
    "::int",
    "[1]",
    "AS",
]


def text(chance: Random) -> str:
    """One text, which may have several statements."""
    found = " ; ".join(_statement(chance) for _ in range(chance.choice([1, 1, 1, 1, 2, 3])))
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        found = _changed(found, chance)
    return found


def _statement(chance: Random) -> str:
    """One statement; most of those that are sound can be read."""
    if chance.random() < 0.5:
        groups = chance.sample(list(VALUES), chance.choice([0, 1, 1, 2, 3, 7]))
        by = f" GROUP BY {chance.choice(['', '', 'CUBE', 'ROLLUP'])} ({', '.join(groups)})" if groups else ""
        where = f" WHERE {_condition(chance, chance.choice([0, 1, 2]), _sound)}"
        return f"SELECT COUNT(*) FROM t{chance.choice(['', where])}{by}"
    groups = [_group(chance) for _ in range(chance.choice([0, 0, 1, 1, 2, 3, 6, 30]))]
    where = (
        f" WHERE {_condition(chance, chance.choice([0, 1, 2, 3, 5]), _odd)}" if chance.random() < 0.7 else ""
    )
    by = ""
    if groups:
        inside = ", ".join(groups)
        by = " GROUP BY " + chance.choice(
            [
                inside,
                inside,
                inside,
                f"ROLLUP ({inside})",
                f"CUBE ({inside})",
                f"GROUPING SETS (({inside}), ())",
                f"{inside}, ROLLUP ({inside})",
            ]
        )
    shown = ", ".join([*(groups if chance.random() < 0.7 else []), _counted(chance)])
    return (
        f"SELECT {shown} FROM {chance.choice(['t', 'people AS t', 'a.b.c', 't, u', '(SELECT 1)'])}{where}{by}"
    )


def _counted(chance: Random) -> str:
    return chance.choice(
        [
            "COUNT(*)",
            "COUNT(*)",
            "COUNT(*)",
            "COUNT(*) AS n",
            "SUM(COUNT(*)) OVER (ORDER BY age)",
            "COUNT(age)",
            "SUM(COUNT(*)) OVER (PARTITION BY sex ORDER BY age)",
            "COUNT(DISTINCT age)",
            "AVG(age)",
        ]
    )


def _group(chance: Random) -> str:
    column = chance.choice(COLUMNS)
    if chance.random() < 0.2:
        branches = range(chance.choice([1, 2, 9]))
        arms = " ".join(f"WHEN {_odd(chance)} THEN {chance.choice(CONSTANTS)}" for _ in branches)
        return f"CASE {arms} ELSE 'x' END"
    return chance.choice([column, column, column, column, "1", f"{column} AS {column}", f"({column})"])


def _condition(chance: Random, depth: int, single: Callable[[Random], str]) -> str:
    if depth and chance.random() < 0.75:
        joiner = chance.choice([" AND ", " OR "])
        parts = [_condition(chance, depth - 1, single) for _ in range(chance.choice([2, 2, 3, 8]))]
        return chance.choice(["", "NOT "]) + f"({joiner.join(parts)})"
    return single(chance)


def _sound(chance: Random) -> str:
    column = chance.choice(list(VALUES))
    several = [chance.choice(VALUES[column]) for _ in range(chance.choice([1, 2, 5]))]
    if chance.random() < 0.3:
        return f"{column} IN ({', '.join(several)})"
    sign = chance.choice(SIGNS[:7] if column in ("age", "kids", "code") else SIGNS[:3])
    return f"{column} {sign} {several[0]}"


def _odd(chance: Random) -> str:
    column, value = chance.choice(COLUMNS), chance.choice(CONSTANTS)
    match chance.randrange(6):
        case 0:
            several = ", ".join(chance.choice(CONSTANTS) for _ in range(chance.choice([0, 1, 2, 5, 200])))
            return f"{column} IN ({several})"
        case 1:
            return f"{column} BETWEEN {value} AND {chance.choice(CONSTANTS)}"
        case 2:
            return f"NOT {column} {chance.choice(SIGNS)} {value}"
        case 3:
            return f"{value} {chance.choice(SIGNS)} {column}"
    return f"{column} {chance.choice(SIGNS)} {value}"


def _changed(found: str, chance: Random) -> str:
    at = chance.randrange(len(found) + 1)
    words = found.split(" ")
    match chance.randrange(7):
        case 0:
            return found[:at]
        case 1:
            return found[:at] + chance.choice(WORDS) + found[at:]
        case 2:
            return found[:at] + found[at + chance.randrange(9) :]
        case 3:
            chance.shuffle(words)
        case 4:
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        case 5:
            return (
                chance.choice(["(", "NOT ", "- ", "age = 1 OR ", "/*", "'"]) * chance.choice([3, 300, 3_000])
                + found
            )
        case 6:
            part = chance.choice(
                [" OR age = 1", " AND age < 3", ", age", "; SELECT COUNT(*) FROM t", ")", " ' "]
            )
            return found + part * chance.choice([1, 30, 1_000, 30_000])
    return " ".join(words)
