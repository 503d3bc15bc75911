"""The dual solver, its certificates, and the structures in which it has less to do."""
