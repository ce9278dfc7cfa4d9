"""`kdns check`: every mistake in Corefiles, KubeProxyConfigurations and manifests, recognized by their content.

It needs no cluster, no other server and no listener.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kdns.apps.block_warnings import block_warnings
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEFINITION
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.manifests.io.files import SUFFIXES, check_exist, located, manifests_of, regular_text, stamps
from kdns.controlplane.manifests.kustomization import NAMES, Kustomization, clusters, left_out
from kdns.controlplane.manifests.manifest import Manifest, UnknownKind
from kdns.controlplane.manifests.manifest import Mistake as ManifestMistake
from kdns.controlplane.manifests.mistakes import manifest_mistakes
from kdns.controlplane.manifests.problems import manifest_problems
from kdns.controlplane.schema.check import mistyped_fields
from kdns.dnsserver.io.corefile import Corefile, corefile_of
from kdns.errors import CorefileError, DoubtfulError, ManifestError
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY
from kdns.proxy.settings.io.files import ONLY_FIRST, read_first_settings, read_settings
from kdns.proxy.settings.settings import API_VERSION, KIND
from kdns.runtime.files.yaml import Document, field_lines, parse
from kdns.serverblocks.config import distinct

Mistake: TypeAlias = CorefileError | ManifestError


@dataclass(frozen=True, slots=True)
class Findings:
    """The number of files by kind, and the mistakes and warnings, each at its place."""

    read: Mapping[str, int]
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...]

    @property
    def summary(self) -> str:
        parts = [f"{count} {kind if count == 1 else _PLURALS[kind]}" for kind, count in self.read.items() if count]
        return ", ".join(parts) or f"0 {_PLURALS[OBJECT]}"


COREFILE: Final = "Corefile"
OBJECT: Final = "object"
_PLURALS: Final = {COREFILE: "Corefiles", KIND: f"{KIND}s", OBJECT: "objects"}

WANTED: Final = (
    "expected a Corefile (server blocks such as `.:53 {`), a KubeProxyConfiguration, or manifests (YAML or JSON "
    "with apiVersion and kind)"
)
COREFILE_KEY: Final = "Corefile"
"""The key of a ConfigMap whose value is a Corefile, for CoreDNS, NodeLocal DNSCache and kdns."""
PILLAR: Final = re.compile("__PILLAR__[A-Z]+(?:__[A-Z]+)*__")
"""Words that NodeLocal DNSCache and kdns replace on a node."""
_MANIFEST: Final = re.compile(
    r"""^[\s{-]*["']?(?:apiVersion|kind)["']?\s*:(?:\s|["']|$)|\A\s*(?:\{\s*"|\[\s)""", re.MULTILINE
)
_WORDS: Final = re.compile(r"^\s*(?P<first>[^\s#]+)(?P<rest>[^#\n]*)", re.MULTILINE)
_LITERAL: Final = re.compile(r":\s+(?:[!&]\S+\s+)*\|[-+0-9]*\s*(?:#.*)?$")
"""The line before a literal block, whose lines are lines of the file."""
_COMMENTS: Final = re.compile(r"#[^\n]*|\s+|^---", re.MULTILINE)
_DIRECTIVES: Final = frozenset({*BY_NAME, *COREDNS_ONLY, "import"})


def content_kind(text: str) -> Literal["corefile", "yaml", ""]:
    """YAML needs an object of Kubernetes; "" for anything else."""
    if _MANIFEST.search(text):
        return "yaml"
    lines = _WORDS.finditer(text)
    is_corefile = any(line["first"] in _DIRECTIVES or line["rest"].rstrip().endswith("{") for line in lines)
    return "corefile" if is_corefile else ""


async def mistakes(
    paths: Sequence[Path],
    texts: Mapping[Path, str],
    *,
    dns_port: int,
    cluster: ClusterConfig,
) -> Findings:
    """`texts` replace the files of their paths."""
    check = _Check(dns_port)
    for path in paths:
        try:
            if path not in texts:
                check_exist([path])
            files = [path] if path in texts else list(stamps([path]))
        except ManifestError as error:
            check.mistakes.append(error)
            continue
        if not files:
            reason = f"no manifests below it, such as *{SUFFIXES[0]}"
            check.warnings.append(ManifestError(str(path), 0, "", reason))
        for file in files:
            await check.file(file, texts.get(file), is_named=file == path)
    check.manifests_together(cluster)
    return check.findings([*check.texts])


async def corefile_mistakes(path: Path, *, dns_port: int) -> Findings:
    """Mistakes in the Corefile that a server would read, and in the files that it names."""
    check = _Check(dns_port)
    try:
        text = regular_text(path)
    except ManifestError as error:
        return Findings(check.read, (error,), ())
    await check.corefile(str(path), text, is_here=True)
    return check.findings([str(path)])


class _Check:
    """The read files, and the mistakes."""

    def __init__(self, dns_port: int) -> None:
        self._dns_port, self._kinds = dns_port, ServedKinds()
        self.read: Counter[str] = Counter(dict.fromkeys(_PLURALS, 0))
        self.warnings: list[Mistake] = []
        """Warnings: possibly intended or valid elsewhere, such as kinds that kdns does not serve."""
        self.texts: dict[str, str] = {}
        self.mistakes: list[Mistake] = []
        self._manifests: list[Manifest] = []
        self._unknown_kinds: list[UnknownKind] = []
        self._kustomizations: list[Kustomization] = []
        self._of_manifests: list[ManifestError] = []
        """Mistakes that are reported if their files are manifests, not patches."""

    def findings(self, paths: Sequence[str]) -> Findings:
        """Sorted by `paths`; other files are last."""
        order = {path: number for number, path in enumerate(paths)}

        def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
            return tuple(
                sorted(
                    distinct(mistakes), key=lambda error: (order.get(error.path, len(order)), error.path, error.line)
                )
            )

        return Findings(self.read, in_order(self.mistakes), in_order(self.warnings))

    async def file(self, path: Path, text_of_path: str | None, *, is_named: bool) -> None:
        """`text_of_path` replaces the file. Files below a folder must be regular files."""
        name = str(path)
        if name in self.texts:
            return
        try:
            text = self.texts[name] = regular_text(path) if text_of_path is None else text_of_path
        except ManifestError as error:
            self.mistakes.append(error)
            return
        match content_kind(text) or ("yaml" if path.name in NAMES and text.strip() else ""):
            case "corefile":
                await self.corefile(name, text, is_here=text_of_path is None)
            case "yaml":
                self._yaml(name, text)
            case _ if _COMMENTS.sub("", text):
                self._of_manifests.append(ManifestError(name, 1, "", f"has an unknown format; {WANTED}"))
            case _ if not text.strip() and is_named:
                self.mistakes.append(ManifestError(name, 0, "", f"is empty; {WANTED}"))
            case _ if not text.strip():
                self.warnings.append(ManifestError(name, 0, "", "is empty"))
            case _ if is_named and not name.endswith(SUFFIXES):
                self.mistakes.append(ManifestError(name, 0, "", f"has only comments; {WANTED}"))
            case _ if is_named:
                self.warnings.append(ManifestError(name, 0, "", "has only comments"))

    async def corefile(self, path: str, text: str, *, is_here: bool) -> None:
        """With `is_here`, the files that it names are read too."""
        corefile = corefile_of(_with_pillar(text), path, BY_NAME, dns_port=self._dns_port)
        self.read[COREFILE] += 1
        self._sort(corefile.findings())
        self.warnings += block_warnings(corefile.servers, self._dns_port)
        if is_here and (corefile.servers or corefile.others):
            from kdns.apps.check_files import mistakes_in_files  # noqa: PLC0415 - the server's modules take half a second

            self._sort(await mistakes_in_files(corefile.servers, corefile.others))

    def _sort(self, mistakes: Iterable[CorefileError]) -> None:
        for mistake in mistakes:
            (self.warnings if isinstance(mistake, DoubtfulError) else self.mistakes).append(mistake)

    def _yaml(self, path: str, text: str) -> None:
        documents, mistakes_in_yaml, duplicates = parse(path, text)
        wrong, warnings, others = [*mistakes_in_yaml], [*duplicates], list[Document]()
        for document in documents:
            if _is_settings(document.value):
                if document is not documents[0]:
                    reason = f"{KIND} is not the first document; `kdns proxy --config` reads no other"
                    wrong.append(ManifestError(path, document.line, "", reason))
                elif documents[1:]:
                    warnings.append(ManifestError(path, documents[1].line, "", ONLY_FIRST))
                _, mistakes, remarks = read_settings(text, document)
                wrong += mistakes
                self.read[KIND] += 1
                warnings += remarks
            else:
                others.append(document)
        self.warnings += sorted(warnings, key=lambda warning: warning.line)
        for manifest in manifests_of(text, others, self._kinds, self._of_manifests):
            match manifest:
                case UnknownKind():
                    self._unknown_kinds.append(manifest)
                case Kustomization():
                    self._kustomizations.append(manifest)
                case Manifest():
                    self._manifests.append(manifest)
                    if manifest.kind is DEFINITION and not mistyped_fields(DEFINITION, manifest.obj):
                        self._kinds.custom.define_new(manifest.obj)
                    if manifest.kind == CONFIG_MAP:
                        self._config_map(manifest, text)
        self.mistakes += wrong

    def _resolve(self, unknown: UnknownKind) -> None:
        """Another file may define the kind."""
        documents = [Document(unknown.path, unknown.line, unknown.value)]
        for manifest in manifests_of(self.texts[unknown.path], documents, self._kinds, self._of_manifests):
            if isinstance(manifest, Manifest):
                self._manifests.append(manifest)
            elif isinstance(manifest, UnknownKind):
                self._unknown(manifest)

    def _unknown(self, manifest: UnknownKind) -> None:
        """A mistake in a served group, where the kind is misspelt; a warning in other groups."""
        group = manifest.api_version.rpartition("/")[0]
        if any(group == kind.group or kind.kind == manifest.kind for kind in self._kinds.stored):
            self._of_manifests.append(manifest.error)
        else:
            self.warnings.append(manifest.error)

    def _config_map(self, manifest: Manifest, text: str) -> None:
        data = manifest.obj.get("data")
        for part in configuration_mistakes(data if isinstance(data, dict) else {}, manifest.path, self._dns_port):
            self.read[COREFILE if part.corefile else KIND] += 1
            self.mistakes += _within(manifest, text, part.key, part.mistakes)
            self.warnings += _within(manifest, text, part.key, part.warnings)

    def manifests_together(self, cluster: ClusterConfig) -> None:
        """Adds the mistakes that only all manifests together show, such as a port that two Services request."""
        for unknown in self._unknown_kinds:
            self._resolve(unknown)
        for kustomization in self._kustomizations:
            if kustomization.has_effects:
                self.warnings.append(kustomization.error)
        patches = left_out(self.texts, self._kustomizations)
        self.mistakes += [mistake for mistake in self._of_manifests if mistake.path not in patches]
        manifests = [manifest for manifest in self._manifests if manifest.path not in patches]
        self.read[OBJECT] += len(manifests)
        alternatives, kinds = clusters(manifests, self._kustomizations), self._kinds
        self.mistakes += self._at_lines(manifest_mistakes(part, cluster, time.time(), kinds) for part in alternatives)
        if not any(isinstance(mistake, ManifestError) for mistake in self.mistakes):
            # a corrected object may solve another's problem, so problems are for manifests without mistakes
            self.warnings += self._at_lines(map(manifest_problems, alternatives))

    def _at_lines(self, parts: Iterable[Iterable[ManifestMistake]]) -> list[ManifestError]:
        """The mistakes of alternatives, deduplicated, at the lines of their fields."""
        distinct_mistakes = {
            (mistake.manifest.path, mistake.manifest.line, mistake.field, mistake.reason): mistake
            for part in parts
            for mistake in part
        }
        return located(tuple(distinct_mistakes.values()), lambda path: self.texts[str(path)])


@dataclass(frozen=True, slots=True)
class Configuration:
    """A Corefile or KubeProxyConfiguration at a key of a ConfigMap, with its mistakes at the lines of the value."""

    key: str
    mistakes: Sequence[Mistake]
    warnings: Sequence[Mistake]
    corefile: Corefile | None = None


def configuration_mistakes(data: Mapping[str, object], path: str, dns_port: int) -> Iterator[Configuration]:
    """Mistakes in the values of a ConfigMap, without those in files that the values name."""
    for key, value in data.items():
        if not isinstance(value, str):
            continue
        if key == COREFILE_KEY:
            corefile = corefile_of(_with_pillar(value), path, BY_NAME, dns_port=dns_port, read_imports=_elsewhere)
            errors = corefile.findings()
            doubtful = [error for error in errors if isinstance(error, DoubtfulError)]
            wrong = [error for error in errors if error not in doubtful]
            yield Configuration(key, wrong, [*doubtful, *block_warnings(corefile.servers, dns_port)], corefile)
        elif KIND in value and any(_is_settings(document.value) for document in parse(key, value).documents):
            _, mistakes, remarks = read_first_settings(path, value)
            yield Configuration(key, mistakes, remarks)


def _within(manifest: Manifest, text: str, key: str, mistakes: Sequence[Mistake]) -> list[ManifestError]:
    """Mistakes of a ConfigMap's value, at their lines in the file if the value is a literal block."""
    if not mistakes:
        return []
    field = f"data[{key}]"
    at = field_lines(manifest.path, text, [(manifest.line, field)])[manifest.line, field]
    first = at + 1 if _LITERAL.search(text.split("\n")[at - 1]) else 0
    errors = []
    for mistake in mistakes:
        line = first + mistake.line - 1 if first and mistake.line else at
        inside = "" if first or not mistake.line else f"line {mistake.line} of "
        place = f"{mistake.path}:{mistake.line}" if mistake.line else mistake.path
        reason = str(mistake).removeprefix(place).removeprefix(": ")
        errors.append(ManifestError(manifest.path, line, f"{inside}data.{key}", reason))
    return errors


def _with_pillar(text: str) -> str:
    return PILLAR.sub("192.0.2.1", text)


def _is_settings(value: object) -> bool:
    """Also true for a misspelt KubeProxyConfiguration: its kind or its group is enough."""
    group = API_VERSION.partition("/")[0]
    return isinstance(value, dict) and (
        value.get("kind") == KIND or str(value.get("apiVersion", "")).partition("/")[0] == group
    )


def _elsewhere(pattern: str) -> Sequence[tuple[str, str]]:
    return [(pattern, "")]
