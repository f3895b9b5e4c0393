"""Files that whoever looks, or interrupts, finds old or new, and never half written."""

import os
import tempfile
from pathlib import Path


def write(path: Path, content: str) -> None:
    """Writes a text file (UTF-8, line feeds) in one step, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
