"""The one-file release spec: schema, tables, privacy and places of files, in YAML."""

from residua.spec.language import Document, SpecError, read_document
from residua.spec.release_spec import TO_CONFIRM, Spec, load_spec, unconfirmed

__all__ = ["TO_CONFIRM", "Document", "Spec", "SpecError", "load_spec", "read_document", "unconfirmed"]
