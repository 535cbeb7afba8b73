"""What compressed files may grow to."""

from unbag.validation import invalid

__all__ = ["MAX_EXPANSION", "check_expansion"]

# Deflate shrinks at most 1000-fold, and real rows far less: large content beyond this is a bomb.
MAX_EXPANSION = 200
LARGE = 1 << 30  # bytes


def check_expansion(name: str, kind: str, size: int, stored: int, remedy: str) -> None:
    """Refuse large content that was compressed more than any real one."""
    if size > LARGE and size > MAX_EXPANSION * stored:
        allowed = f"{kind} that is at most {MAX_EXPANSION} times larger than its file"
        raise invalid(name, allowed, f"{size:,} bytes from {stored:,}", remedy)
