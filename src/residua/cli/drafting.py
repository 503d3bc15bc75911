"""`residua init`."""
def init() -> None:
    """Draft."""
