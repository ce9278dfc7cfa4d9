"""Kubeconfig files: merges and checks several, and writes that of `kdns up`.

Every mistake of the user is a KubeconfigError.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from kdns.errors import InputError, KubeconfigError, ManifestError
from kdns.runtime.files.bounded import bounded_text

Json: TypeAlias = dict[str, Any]
KINDS: Final = ("contexts", "clusters", "users")
PATHS: Final = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}
"""Fields with paths, which are relative to the folder of their kubeconfig."""


OWN_NAME: Final = "kdns"
"""Name of the cluster, user and context that `kdns up` writes."""

_PLACEHOLDER: Final = "unused"
"""The token for an https server without tokens: kubectl prompts for a user name if a user has no credentials."""

_FIELDS: Final = frozenset(KINDS) | {"current-context"}


def paths_of(text: str) -> tuple[Path, ...]:
    """The existing files of a list such as $KUBECONFIG; a single file may be missing.

    A file below a folder without search permission counts as missing, and ~nobody is a file name; pathlib's methods
    raise for these.
    """
    whole, *several = (os.path.expanduser(path) for path in (text, *text.split(os.pathsep)))  # noqa: PTH111 - see above
    paths = (whole,) if os.path.exists(whole) else tuple(filter(os.path.exists, several))  # noqa: PTH110 - see above
    return tuple(map(Path, paths or (whole,)))


def kubeconfig(text: str, context: str) -> tuple[Json, str, Json]:
    """The merged files, with absolute paths, and the server and the user of the context.

    Of entries with the same name, and of current contexts, the first applies, as with kubectl.
    """
    content = _merged(paths_of(text))
    entries = {kind: {entry["name"]: entry for entry in content[kind]} for kind in KINDS}
    active = context or content["current-context"]
    if active not in entries["contexts"]:
        found = f"no context {active!r}" if active else "no current-context"
        raise KubeconfigError(text, found, f"one of {', '.join(entries['contexts']) or '(no context in the file)'}")
    chosen = entries["contexts"][active].get("context") or {}
    cluster_name, user_name = (str(chosen.get(field) or "") for field in ("cluster", "user"))
    for kind, name in (("clusters", cluster_name), ("users", user_name)):
        if name and name not in entries[kind]:
            raise KubeconfigError(text, f"context {active!r} names {name!r}, which is not in {kind}", f"it in {kind}")
    cluster = entries["clusters"].get(cluster_name, {}).get("cluster") or {}
    server = server_url(text, str(cluster.get("server") or ""))
    user: Json = entries["users"].get(user_name, {}).get("user") or {}
    for field in ("exec", "auth-provider"):
        if not isinstance(user.get(field) or {}, dict):
            raise KubeconfigError(text, f"{field} of user {user_name!r} is not a mapping", f"{field}: {{…: …}}")
    if plugin := user.get("exec"):
        _check_plugin(text, plugin)
    # The package fails for a context without a user, or with an empty one: add a user without credentials.
    chosen["user"] = user_name or "anonymous"
    content["users"] += [] if user_name else [{"name": "anonymous"}]
    for entry in content["users"]:
        entry["user"] = entry.get("user") or {"name": entry["name"]}
    return content, server, user


def _merged(paths: Sequence[Path]) -> Json:
    content: Json = {kind: [] for kind in KINDS} | {"current-context": ""}
    for path in paths:
        file = mapping(path, may_be_empty=len(paths) > 1)
        for kind in KINDS:
            known = {entry["name"] for entry in content[kind]}
            content[kind] += [
                _absolute(path.parent, kind, entry) for entry in named(path, file, kind) if entry["name"] not in known
            ]
        content["current-context"] = content["current-context"] or str(file.get("current-context") or "")
    return content


def mapping(path: Path, *, may_be_empty: bool) -> Json:
    """KubeconfigError unless the file is a mapping, or empty if that is allowed."""
    from kdns.runtime.files.yaml import documents  # noqa: PLC0415 - a server in a cluster reads no kubeconfig

    try:
        parsed = documents(str(path), bounded_text(path))
    except OSError as error:
        raise KubeconfigError(str(path), error.strerror or "", "a kubeconfig file that can be read") from error
    except ManifestError as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise KubeconfigError(where, error.reason, "YAML or JSON") from error
    if len(parsed) > 1:
        raise KubeconfigError(f"{path}:{parsed[1].line}", "a second document", "one document")
    content = parsed[0].value if parsed else None
    if content is None and may_be_empty:
        return {}
    if not isinstance(content, dict):
        raise KubeconfigError(str(path), f"{type(content).__name__} at the top", "a mapping with clusters and contexts")
    return content


def named(path: Path, content: Json, kind: str) -> list[Json]:
    """The clusters, users or contexts; KubeconfigError unless they are a list of entries with names."""
    entries, field = content.get(kind) or [], kind[:-1]
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get(field) or {}, dict)
        for entry in entries
    ):
        expected = f"{kind}: [{{name: …, {field}: {{…: …}}}}]"
        raise KubeconfigError(str(path), f"{kind} is not a list of named entries", expected)
    return entries


def _absolute(folder: Path, kind: str, entry: Json) -> Json:
    """Makes paths absolute. The command of an exec plugin is a path if it has a slash (exec.command)."""
    value = entry.get(kind[:-1])
    if isinstance(value, dict):
        for field in PATHS.get(kind, ()):
            if value.get(field):
                value[field] = str(folder / str(value[field]))
        plugin = value.get("exec") if kind == "users" else None
        if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
            plugin["command"] = str(folder / plugin["command"])
    return entry


def _check_plugin(where: str, plugin: Json) -> None:
    command = str(plugin.get("command") or "")
    if not shutil.which(command):
        hint = " ".join(str(plugin.get("installHint") or "").split())
        expected = f"an executable file or one on PATH{hint and f'; {hint}'}"
        raise KubeconfigError(where, f"exec plugin {command!r} does not exist", expected)


def server_url(where: str, url: str) -> str:
    """Without a trailing slash; KubeconfigError for a URL that is not http or https."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        is_url = is_url and url.isprintable() and " " not in url
    except ValueError:  # an unclosed bracket, or a port that is not a number
        is_url = False
    if not is_url:
        raise KubeconfigError(
            where, f"{url!r} is not an address of an API server", "http://HOST:PORT or https://HOST:PORT"
        )
    return url.rstrip("/")


def write_kubeconfig(path: Path, server: str, *, ca_file: str = "", token: str = "") -> None:
    """Makes `server` the current cluster of this kubeconfig; a new file is readable by its owner only.

    In an existing file, the cluster, user and context `kdns` are replaced, as by minikube and kind; the context keeps
    its namespace, other entries stay, and comments are lost, as with kubectl.
    Raises KubeconfigError for a file that is not a kubeconfig, InputError if it cannot be written.
    """
    content = kubeconfig_content(path)
    cluster: Json = {"server": server}
    if server.startswith("http:"):
        cluster["insecure-skip-tls-verify"] = True  # without it, the JavaScript client refuses http
    elif ca_file:
        cluster["certificate-authority"] = str(Path(ca_file).absolute())
    contexts = [entry.get("context") for entry in content["contexts"] if entry["name"] == OWN_NAME]
    context = contexts[0] if contexts and isinstance(contexts[0], dict) else {"namespace": "default"}
    token = token or (_PLACEHOLDER if server.startswith("https:") else "")
    own = {
        "clusters": {"cluster": cluster},
        "users": {"user": {"token": token} if token else {}},
        "contexts": {"context": {**context, "cluster": OWN_NAME, "user": OWN_NAME}},
    }
    for kind, entry in own.items():
        others = [other for other in content[kind] if other["name"] != OWN_NAME]
        content[kind] = [*others, {"name": OWN_NAME, **entry}]
    content["current-context"] = OWN_NAME
    from kdns.runtime.files.yaml import dumped  # noqa: PLC0415 - a server in a cluster writes none

    try:
        _replace(path, dumped(content))
    except OSError as error:
        raise InputError(f"--kubeconfig {path}: cannot be written: {error.strerror}") from error


def kubeconfig_content(path: Path) -> Json:
    """With a list for each kind of entry, empty for a missing or empty file.

    Raises KubeconfigError for a file that is not a kubeconfig, InputError for a path that is not a file.
    """
    content: Json = {}
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises if a folder may not be searched
        if not path.is_file():
            raise InputError(f"--kubeconfig {path}: cannot be written: not a file")
        content = mapping(path, may_be_empty=True)
    header = {"apiVersion": "v1", "kind": "Config"}
    is_config = all(content.get(field, value) == value for field, value in header.items())
    if content and not (is_config and (_FIELDS | header.keys()) & content.keys()):
        found = f"kind {content['kind']}" if "kind" in content else "not a kubeconfig"
        raise KubeconfigError(str(path), f"{found}, left as it is", "a kubeconfig, or a file that does not exist yet")
    return {**header, **content, **{kind: named(path, content, kind) for kind in KINDS}}


def _replace(path: Path, text: str) -> None:
    """Atomically; a symbolic link stays one.

    A file that root writes keeps its owner; a new one gets the owner of its folder, as if there were no sudo.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, new = mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            with suppress(PermissionError):
                owner = (target if target.exists() else target.parent).stat()
                os.fchown(handle, owner.st_uid, owner.st_gid)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(new).replace(target)
    except OSError:
        Path(new).unlink(missing_ok=True)
        raise
