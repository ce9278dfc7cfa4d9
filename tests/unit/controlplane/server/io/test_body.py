"""Bodies as Go's encoding/json reads them, where other decoders differ."""

from typing import Any

import pytest
from object_api import refused

from kdns.controlplane.server.io.request import decoded


@pytest.mark.parametrize(
    ("body", "value", "duplicates"),
    [
        (b'{"a": "\xff\\ud83d\\ude00"}', {"a": "\ufffd\U0001f600"}, ()),
        (rb'{"a": "\ud800", "b": "\\ud800 \udc00\ud83d"}', {"a": "\ufffd", "b": "\\ud800 \ufffd\ufffd"}, ()),
        (rb'{"\ud800": 1, "\ufffd": 2}', {"\ufffd": 2}, ('duplicate field "\ufffd"',)),
    ],
)
def test_what_is_no_unicode_is_a_replacement_character(body: bytes, value: Any, duplicates: tuple[str, ...]) -> None:
    whole = decoded(body, "application/json", strictly=True)
    assert (whole.value, whole.duplicates) == (value, duplicates)


def test_a_number_beyond_all_types_is_refused() -> None:
    why = "the body is not a JSON object: Integer value out of range"
    refused(400, why, decoded, b"9" * 5000, "application/json", strictly=True)
