"""Releases: noisy measurements with how they came to be, what they answer, and several as one."""

from residua.release.crosstab import Crosstab
from residua.release.measurements import Measurements, audit_record
from residua.release.release import Release, rehearsal
from residua.release.statistics import Statistic, TableAnswer

__all__ = ["Crosstab", "Measurements", "Release", "Statistic", "TableAnswer", "audit_record", "rehearsal"]
