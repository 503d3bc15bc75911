"""A replay audit: the same noise on neighbouring data, and everything that differs, step by step.

`recording` runs measuring with recorded noise on a ledger of its own; `expected` says from the plan's
integers what one record may change and cost; `neighbours` invents data; `replay` compares and lists alarms;
`invented` makes plans of every kind. Claims: docs/math/evidence.md.
"""

from residua.audit.replay import Audit, audit

__all__ = ["Audit", "audit"]
