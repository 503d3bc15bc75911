"""Post-processing: non-negative, whole and consistent tables, and synthetic rows.

Nothing here touches the data or spends privacy. Everything here is biased, and says so.
"""

from residua.postprocess.facts import Fact, PublicFactWarning, impossible, known
from residua.postprocess.processed import Processed, ProcessedTable

__all__ = ["Fact", "Processed", "ProcessedTable", "PublicFactWarning", "impossible", "known"]
