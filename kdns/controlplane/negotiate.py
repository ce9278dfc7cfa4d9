"""Which representation a client gets: its Accept header against what the API can send."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.controlplane.status import StatusError

JSON = "application/json"
YAML = "application/yaml"
_FORMATS = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML}
_FORMS = {
    "": "",
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}
_META_VERSIONS = frozenset({"v1", "v1beta1"})


@dataclass(frozen=True, slots=True)
class Representation:
    """media type, and the form of objects in it: "" as they are, Table or PartialObjectMetadata."""

    media_type: str = JSON
    form: str = ""
    version: str = "v1"


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One element of an Accept header."""

    media_type: str
    parameters: dict[str, str]
    quality: float


def media_ranges(accept: str) -> list[MediaRange]:
    """The header's elements, best first, equals in their order (RFC 9110 §12.5.1); those of quality 0 are left out."""
    ranges = []
    for element in accept.split(","):
        media_type, *rest = (part.strip() for part in element.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if media_type:
            ranges.append(MediaRange(media_type.lower(), parameters, _quality(parameters.pop("q", "1"))))
    return sorted((each for each in ranges if each.quality > 0), key=lambda each: -each.quality)


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def representation(accept: str) -> Representation:
    """The best representation the client accepts; 406 when there is none."""
    if not accept:
        return Representation()
    for each in media_ranges(accept):
        media_type = _FORMATS.get(each.media_type)
        form = _FORMS.get(each.parameters.get("as", ""))
        if media_type is None or form is None:
            continue
        version = each.parameters.get("v", "v1")
        if form and (each.parameters.get("g") != "meta.k8s.io" or version not in _META_VERSIONS):
            continue
        return Representation(media_type, form, version if form else "v1")
    message = f"only the following media types are accepted: {JSON}, {YAML}"
    raise StatusError(406, "NotAcceptable", message)


def streamed(accept: str) -> Representation:
    """The representation of a watch: JSON, or 406 when the client would rather have another."""
    wanted = representation(accept)
    if wanted.media_type != JSON:
        raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {JSON};stream=watch")
    return wanted


def wants_aggregated_discovery(accept: str) -> bool:
    """Whether the client asks for apidiscovery.k8s.io/v2 before it asks for the old form."""
    for each in media_ranges(accept):
        if each.media_type != JSON:
            continue
        asked = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
        if all(each.parameters.get(name) == value for name, value in asked.items()):
            return True
        if not each.parameters:
            return False
    return False
