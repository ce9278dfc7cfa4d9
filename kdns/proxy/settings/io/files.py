"""Configuration files of the dataplane: KubeProxyConfiguration, in YAML or JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.errors import InputError, ManifestError, SettingsError
from kdns.proxy.settings import validation
from kdns.proxy.settings.document import decoded, encoded
from kdns.proxy.settings.flags import counts_beside_a_file, flag_at, settings_beside_file, settings_from_flags
from kdns.proxy.settings.section import Problem
from kdns.proxy.settings.settings import KIND, Settings
from kdns.runtime.files.bounded import text_of
from kdns.runtime.files.yaml import Document, dumped, field_lines, parse

ONLY_FIRST: Final = f"only the first document counts for {KIND}, as in kube-proxy; this one is ignored"

log = logs.get(__name__)


def load_settings(path: Path, warn: Callable[[str], None]) -> Settings:
    """Returns the settings of a file; SettingsError with every mistake, each at its line."""
    return parse_settings(str(path), text_of(path), warn)


def parse_settings(path: str, text: str, warn: Callable[[str], None]) -> Settings:
    """Returns the settings of a text.

    `path` is for messages. `warn` gets the remarks: unknown fields and duplicate keys too, of which the last one is
    used, and whatever follows the first document. SettingsError for every mistake.
    """
    settings, wrong, remarks = read_first_settings(path, text)
    if wrong:
        raise SettingsError(tuple(map(str, sorted(wrong, key=lambda error: error.line))))
    for remark in remarks:
        warn(str(remark))
    return settings


def read_first_settings(path: str, text: str) -> tuple[Settings, list[ManifestError], list[ManifestError]]:
    """Returns what `read_settings` does for the first document of a text, which is the only one that counts."""
    stream = parse(path, text)
    parts: list[Document | ManifestError] = [*stream.documents, *stream.mistakes]
    parts.sort(key=lambda part: part.line)
    settings, wrong, remarks = Settings(), list[ManifestError](), [*stream.duplicates]
    if not parts:
        wrong.append(ManifestError(path, 0, "", f"expected an object of kind {KIND}, the file has none"))
    elif isinstance(parts[0], ManifestError):
        wrong.append(parts[0])
    else:
        settings, wrong, ignored = read_settings(text, parts[0])
        remarks += ignored
    if parts[1:]:
        following = parts[1].line
        remarks = [remark for remark in remarks if remark.line < following]
        remarks.append(ManifestError(path, following, "", ONLY_FIRST))
    return settings, wrong, sorted(remarks, key=lambda remark: remark.line)


def read_settings(text: str, document: Document) -> tuple[Settings, list[ManifestError], list[ManifestError]]:
    """Returns the settings of a document of this text, every mistake in it, and remarks, each at its line."""
    settings, problems = decoded(document.value)
    mistyped = [problem for problem in problems if not problem.is_ignored]
    ignored = [problem for problem in problems if problem.is_ignored]
    wrong = (*mistyped, *validation.problems_beside(settings, mistyped))

    def at_lines(problems: Sequence[Problem]) -> list[ManifestError]:
        lines = field_lines(document.path, text, [(document.line, problem.field) for problem in problems])
        return [
            ManifestError(document.path, lines[document.line, mistake.field], mistake.field, mistake.reason)
            for mistake in problems
        ]

    return settings, at_lines(wrong), at_lines((*ignored, *(validation.remarks(settings) if not wrong else ())))


def settings_of(flags: Mapping[str, Any], warn: Callable[[str], None]) -> Settings:
    """Returns the settings of a command line, with its configuration file where --config names one."""
    in_file: tuple[str, ...] = ()
    config = flags.get("config")
    if config:
        if ignored := [f"--{name}" for name in flags if not counts_beside_a_file(name)]:
            warn(f"with --config these do not count: {', '.join(ignored)}")
        try:
            settings = load_settings(Path(config), warn)
        except SettingsError as error:
            settings, in_file = Settings(), error.problems
        settings = settings_beside_file(settings, flags)
    else:
        settings = settings_from_flags(flags)

    def at(problem: Problem) -> str:
        flag = flag_at(problem.field, flags, settings)
        return f"--{flag}: {problem.reason}" if flag else str(problem)

    if wrong := (*in_file, *map(at, validation.problems(settings))):
        raise SettingsError(wrong)
    if not config:
        for remark in validation.remarks(settings):
            warn(at(remark))
    return settings


def write_settings(path: Path, settings: Settings) -> None:
    """Writes a configuration file with every field in it; InputError for a file that cannot be written."""
    try:
        path.write_text(dumped(encoded(settings), sort_keys=True), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--write-config-to {path}: cannot be written: {error.strerror}") from error


async def other_settings(
    read: Callable[[], Settings], settings: Settings, file: Path | None, every_s: float, asked: asyncio.Event
) -> Settings:
    """The settings of `read`, when the file has changed, or when `asked` is set, and they differ from `settings`.

    A changed file is read when it has not changed again for `every_s`: a half-written file may be valid too.
    """
    taken = seen = _stamp(file)
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), every_s)
        before, seen = seen, _stamp(file)
        is_asked = asked.is_set()
        if not is_asked and (seen == taken or seen != before):
            continue
        asked.clear()
        taken = seen
        try:
            found = read()
        except InputError as error:
            log.warning("configuration file is invalid, settings unchanged", reason=str(error))
            continue
        if found != settings:
            return found
        if is_asked:
            log.info("settings read again, nothing has changed", file=str(file or ""))


def _stamp(file: Path | None) -> tuple[int, int, int]:
    """Different after a change of the file; a ConfigMap's file is a link into another folder then."""
    try:
        stat = file.stat() if file else None
    except OSError:
        stat = None
    return (stat.st_mtime_ns, stat.st_ino, stat.st_size) if stat else (0, 0, 0)
