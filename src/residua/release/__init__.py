"""Releases: noisy measurements with how they came to be, what they answer, and several as one."""

from residua.release.release import Measurements, Release, TableAnswer, audit_record, rehearsal

__all__ = ["Measurements", "Release", "TableAnswer", "audit_record", "rehearsal"]
