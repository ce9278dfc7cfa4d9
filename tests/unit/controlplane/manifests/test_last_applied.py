"""The text of the manifest that was applied last; long ones fit into an annotation."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.manifests.three_way_merge import manifest_of, text_of

SMALL: Json = {"spec": {"b": 1, "a": "ä"}}
LARGE: Json = {"spec": {f"field{number}": {"type": "string", "description": "A field."} for number in range(20_000)}}


def test_short_manifests_are_json() -> None:
    assert text_of(SMALL) == '{"spec":{"a":"\\u00e4","b":1}}'


@pytest.mark.parametrize("manifest", [{}, SMALL, LARGE], ids=["none", "small", "large"])
def test_texts_are_read_back_and_fit(manifest: Json) -> None:
    text = text_of(manifest)
    assert manifest_of(text) == manifest
    assert len(text) < 256 * 1024


@pytest.mark.parametrize("text", ["", "{", "[]", "zlib:", "zlib:%", "zlib:YWJj", "[" * 100_000])
def test_invalid_texts_are_no_manifest(text: str) -> None:
    assert manifest_of(text) == {}
