"""Releases: noisy measurements with how they came to be, what they answer, and several as one."""

from residua.release.measurements import Measurements, audit_record
from residua.release.release import Release, TableAnswer, rehearsal

__all__ = ["Measurements", "Release", "TableAnswer", "audit_record", "rehearsal"]
