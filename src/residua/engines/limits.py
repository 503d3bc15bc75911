"""Amounts of memory as people write them."""

import re

from residua.errors import Infeasible

UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


def bytes_of(limit: str | int) -> int:
    """The number of bytes of an amount like '500MB' or '2GiB'.

    >>> bytes_of("1.5GB"), bytes_of("2 MiB"), bytes_of(4096)
    (1500000000, 2097152, 4096)
    """
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B\s*", str(limit).upper())
    if parts is None or parts[2] not in UNITS:
        raise Infeasible(f"memory_limit={limit!r} is no amount of memory; write '500MB' or '2GiB'")
    return int(float(parts[1]) * UNITS[parts[2]])
