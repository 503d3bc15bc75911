"""What releases have their numbers from: those that share it are not independent."""

from collections.abc import Mapping
from typing import Any

from residua.errors import WorkloadError


def refuse_shared_noise(first: object, second: object) -> None:
    """WorkloadError for two releases that have measurements in common (claim F-007)."""
    ours, theirs = (_sources(getattr(each, "audit", {})) for each in (first, second))
    if first is second or ours & theirs:
        raise WorkloadError(
            "the two releases are of one stream, or one release twice, and share their noise; ask the later "
            "one alone, as in release.change('region', over='day.month')"
        )


def _sources(audit: Mapping[str, Any]) -> set[str]:
    """The stream or the entry of a ledger that a release is from, or those of its parts."""
    if parts := audit.get("combined"):
        return {own for part in parts for own in _sources(part)}
    known = ((audit.get("stream") or {}).get("id"), (audit.get("ledger") or {}).get("hash"))
    return {str(own) for own in known if own is not None}
