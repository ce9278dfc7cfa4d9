"""The kubeconfig that `kdns up` writes: kdns's own entries, beside what the file held before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final

import yaml

from kdns.aio.kubeconfigs import KINDS, Json, mapping, named
from kdns.errors import InputError, KubeconfigError

NAME: Final = "kdns"
"""How cluster, user and context are named."""

_UNUSED: Final = "unused"
"""The token where none is asked for: kubectl wants a user name from the terminal where https has no login at all."""

_NAMES: Final = frozenset(KINDS) | {"current-context"}


def write_kubeconfig(path: Path, server: str, *, ca_file: str = "", token: str = "") -> None:
    """Make `server` what kubectl uses with this kubeconfig, readable for its owner only; folders are made.

    In a file that is there already, cluster, user and context `kdns` are replaced and become current, as minikube and
    kind do it; the context keeps its namespace, and all other entries stay. Comments go, as with kubectl.
    KubeconfigError for a file that is no kubeconfig, InputError for one that cannot be written.
    """
    content = _content(path)
    cluster = {"server": server, **({"certificate-authority": str(Path(ca_file).absolute())} if ca_file else {})}
    said = [entry.get("context") for entry in content["contexts"] if entry["name"] == NAME]
    kept = said[0] if said and isinstance(said[0], dict) else {"namespace": "default"}
    token = token or (_UNUSED if server.startswith("https:") else "")
    own = {
        "clusters": {"cluster": cluster},
        "users": {"user": {"token": token} if token else {}},
        "contexts": {"context": {**kept, "cluster": NAME, "user": NAME}},
    }
    for kind, entry in own.items():
        content[kind] = [*(each for each in content[kind] if each["name"] != NAME), {"name": NAME, **entry}]
    content["current-context"] = NAME
    try:
        _replace(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise InputError(f"the kubeconfig {path} cannot be written: {error.strerror}") from error


def _content(path: Path) -> Json:
    """What the file says, with a list of each kind of entry; for a file that is not there or empty, an empty one."""
    content: Json = {}
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises where a folder may not be searched
        if not path.is_file():
            raise InputError(f"the kubeconfig {path} cannot be written: not a file")
        content = mapping(path, may_be_empty=True)
    header = {"apiVersion": "v1", "kind": "Config"}
    is_config = all(content.get(field, value) == value for field, value in header.items())
    if content and not (is_config and (_NAMES | header.keys()) & content.keys()):
        found = f"kind {content['kind']}" if "kind" in content else "no kubeconfig"
        raise KubeconfigError(str(path), f"{found}, left as it is", "a kubeconfig, or a file that is not there yet")
    return {**header, **content, **{kind: named(path, content, kind) for kind in KINDS}}


def _replace(path: Path, text: str) -> None:
    """Put the text there as a whole. A link stays one, and the file keeps its owner when root writes it."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, new = mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            with suppress(FileNotFoundError, PermissionError):
                was = target.stat()
                os.fchown(handle, was.st_uid, was.st_gid)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(new).replace(target)
    except OSError:
        Path(new).unlink(missing_ok=True)
        raise
