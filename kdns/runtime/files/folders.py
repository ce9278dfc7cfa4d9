"""The files below a folder, which may be a mounted ConfigMap or Secret.

In such a volume the entries are links through `..data`, itself a link to a folder such as `..2026_01_31_12_00_00.1`,
which holds the files (Kubernetes' AtomicWriter). Folders with hidden names are skipped, and links into them followed,
so that every file has one path, which does not change with the next version of the volume.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

VOLUME: Final = ".."
"""The prefix of the names that a volume has for itself."""


def files_below(folder: Path, failed: Callable[[OSError], None], hidden: str = VOLUME) -> Iterator[Path]:
    """Skips names that begin with `hidden`, and calls `failed` for a folder that cannot be read.

    Links to folders are followed once, and only to hidden ones: other links lead out of the folder, or to files that
    have a path without them.
    """
    root = folder.resolve()
    followed: set[Path] = set()

    def is_walked(parent: str, name: str) -> bool:
        if name.startswith(hidden):
            return False
        path = Path(parent, name)
        if not path.is_symlink():
            return True
        target = path.resolve()
        if target in followed or not target.is_relative_to(root):
            return False
        followed.add(target)
        return any(part.startswith(hidden) for part in target.relative_to(root).parts)

    for parent, folders, names in os.walk(folder, onerror=failed, followlinks=True):
        folders[:] = [name for name in folders if is_walked(parent, name)]
        yield from (Path(parent, name) for name in names if not name.startswith(hidden))
