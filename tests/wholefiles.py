"""Files that somebody reads while a test rewrites them."""

from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write it as a whole: who reads `path` at the same time finds the text before or this one, never half of it."""
    other = path.with_name(f"{path.name}.new")
    other.write_text(text)
    other.replace(path)
