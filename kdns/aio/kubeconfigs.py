"""Kubeconfig files: read, merged where there are several, and checked as far as they point to themselves.

Whatever is wrong with what the user wrote becomes a KubeconfigError.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import yaml

from kdns.errors import KubeconfigError

Json: TypeAlias = dict[str, Any]
KINDS: Final = ("contexts", "clusters", "users")
PATHS: Final = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}
"""Fields that name files; relative ones count from the folder of the kubeconfig that they stand in."""


def paths_of(text: str) -> tuple[Path, ...]:
    """The files that a text like $KUBECONFIG's names, without those that are not there; a single one may be missing.

    What may not be looked at counts as missing, and ~nobody as a name; pathlib's own methods raise for these.
    """
    whole, *several = (os.path.expanduser(each) for each in (text, *text.split(os.pathsep)))  # noqa: PTH111 - see above
    found = (whole,) if os.path.exists(whole) else tuple(filter(os.path.exists, several))  # noqa: PTH110 - see above
    return tuple(map(Path, found or (whole,)))


def kubeconfig(text: str, context: str) -> tuple[Json, Json]:
    """What the files say together, with absolute paths, and the user of the context.

    The first file that has a name, or a current context, says what counts, as with kubectl.
    """
    content = _merged(paths_of(text))
    entries = {kind: {entry["name"]: entry for entry in content[kind]} for kind in KINDS}
    active = context or content["current-context"]
    if active not in entries["contexts"]:
        found = f"no context {active!r}" if active else "no current-context"
        raise KubeconfigError(text, found, f"one of {', '.join(entries['contexts']) or '(the file has none)'}")
    chosen = entries["contexts"][active].get("context") or {}
    cluster_name, user_name = (str(chosen.get(field) or "") for field in ("cluster", "user"))
    for kind, name in (("clusters", cluster_name), ("users", user_name)):
        if name and name not in entries[kind]:
            raise KubeconfigError(text, f"context {active!r} names {name!r}, which is not in {kind}", f"it in {kind}")
    cluster = entries["clusters"].get(cluster_name, {}).get("cluster") or {}
    server_url(text, str(cluster.get("server") or ""))
    user: Json = entries["users"].get(user_name, {}).get("user") or {}
    for field in ("exec", "auth-provider"):
        if not isinstance(user.get(field) or {}, dict):
            raise KubeconfigError(text, f"{field} of user {user_name!r} is no mapping", f"{field}: {{…: …}}")
    if plugin := user.get("exec"):
        _check_plugin(text, plugin)
    # The package fails for a context without a user or with an empty one: give it one that says nothing.
    chosen["user"] = user_name or "anonymous"
    content["users"] += [] if user_name else [{"name": "anonymous"}]
    for entry in content["users"]:
        entry["user"] = entry.get("user") or {"name": entry["name"]}
    return content, user


def _merged(paths: Sequence[Path]) -> Json:
    content: Json = {kind: [] for kind in KINDS} | {"current-context": ""}
    for path in paths:
        one = mapping(path, may_be_empty=len(paths) > 1)
        for kind in KINDS:
            known = {entry["name"] for entry in content[kind]}
            content[kind] += [
                _absolute(path.parent, kind, entry) for entry in named(path, one, kind) if entry["name"] not in known
            ]
        content["current-context"] = content["current-context"] or str(one.get("current-context") or "")
    return content


class _Loader(yaml.CSafeLoader):
    """PyYAML's, but times stay as they were written."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)


def mapping(path: Path, *, may_be_empty: bool) -> Json:
    """What the file says; KubeconfigError unless it is a mapping, or empty where it may be."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise KubeconfigError(str(path), error.strerror or str(error), "a kubeconfig file that can be read") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(str(path), " ".join(str(error).split()), "YAML or JSON") from error
    if content is None and may_be_empty:
        return {}
    if not isinstance(content, dict):
        raise KubeconfigError(str(path), f"{type(content).__name__} at the top", "a mapping with clusters and contexts")
    return content


def named(path: Path, content: Json, kind: str) -> list[Json]:
    """The clusters, users or contexts; KubeconfigError unless they are a list of entries with names."""
    entries, what = content.get(kind) or [], kind[:-1]
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get(what) or {}, dict)
        for entry in entries
    ):
        wanted = f"{kind}: [{{name: …, {what}: {{…: …}}}}]"
        raise KubeconfigError(str(path), f"{kind} is not a list of named entries", wanted)
    return entries


def _absolute(folder: Path, kind: str, entry: Json) -> Json:
    """The entry with paths from this folder; a plugin's command is one where it is more than a name.

    (Client authentication reference, exec.command.)
    """
    said = entry.get(kind[:-1])
    if isinstance(said, dict):
        for field in PATHS.get(kind, ()):
            if said.get(field):
                said[field] = str(folder / str(said[field]))
        plugin = said.get("exec") if kind == "users" else None
        if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
            plugin["command"] = str(folder / plugin["command"])
    return entry


def _check_plugin(where: str, plugin: Json) -> None:
    command = str(plugin.get("command") or "")
    if not shutil.which(command):
        hint = plugin.get("installHint") or "an executable file or one on PATH"
        raise KubeconfigError(where, f"exec plugin {command!r} is not there", " ".join(str(hint).split()))


def server_url(where: str, url: str) -> str:
    """The URL, checked."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that is open, or a port that is none
        is_url = False
    if not is_url:
        raise KubeconfigError(where, f"{url!r} is no address of an API server", "http://HOST:PORT or https://HOST:PORT")
    return url.rstrip("/")
