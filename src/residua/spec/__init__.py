"""The one-file release spec: schema, tables, privacy and places of files, in YAML."""

from residua.spec.document import SpecError
from residua.spec.release_spec import TO_CONFIRM, Spec, load_spec, sql_tables

__all__ = ["TO_CONFIRM", "Spec", "SpecError", "load_spec", "sql_tables"]
