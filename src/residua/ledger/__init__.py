"""The ledger: a durable record of the privacy that a dataset's releases have spent."""

from residua.ledger.book import Entry, Instalment
from residua.ledger.checking import Finding
from residua.ledger.ledger import Ledger

__all__ = ["Entry", "Finding", "Instalment", "Ledger"]
