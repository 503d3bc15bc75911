"""Statements about a release for people who did not make it, all from its file and its ledger.

`facts` gathers what is known; `registry` writes an entry for the registry of differential privacy
deployments, `statement` a statement along NIST SP 800-226, `csvw` what the columns of the published table
mean. What only a human knows is marked HUMAN.
"""

from residua.evidence.facts import HUMAN, Facts
from residua.evidence.registry import entry, entry_text
from residua.evidence.statement import described, statement

__all__ = ["HUMAN", "Facts", "described", "entry", "entry_text", "statement"]
