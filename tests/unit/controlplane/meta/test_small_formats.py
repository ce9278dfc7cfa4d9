"""Errors of malformed texts, as Kubernetes' parsers word them, and of objects with many mistakes."""

from __future__ import annotations

import pytest

from kdns.controlplane.meta.errors import invalid
from kdns.controlplane.meta.field_errors import required
from kdns.controlplane.meta.gotext import json_error
from kdns.controlplane.meta.kinds import POD, SECRET
from kdns.controlplane.meta.quantities import canonical, quantity
from kdns.controlplane.schema.check import type_mismatches


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("1.5Gi", 1.5 * 2**30),
        ("100m", 0.1),
        ("2e3", 2000),
        ("-1k", -1000),
        (".5", 0.5),
        ("1Q", None),
        ("", None),
    ],
)
def test_quantities(text: str, number: float | None) -> None:
    found = quantity(text)
    assert (None if found is None else float(found)) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (0.5, "500m"),
        ("0", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("-2000m", "-2"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("512Mi", "512Mi"),
        ("0.5Ki", "512"),
        ("1000k", "1M"),
        ("2e3", "2e3"),
        ("2000e0", "2e3"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("+2", "2"),
        ("much", "much"),
    ],
)
def test_quantities_as_kubernetes_writes_them(value: object, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", ""),
        ("AA==", ""),
        ("AAAA\nAAA=", ""),
        ("!!!", "illegal base64 data at input byte 0"),
        ("AAAA AAAA", "illegal base64 data at input byte 4"),
        ("AAAAAAA", "illegal base64 data at input byte 4"),
    ],
)
def test_base64(value: str, problem: str) -> None:
    assert [each.text for each in type_mismatches(SECRET, {"data": {"a": value}})] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ("nul", "unexpected end of JSON input"),
        ("-", "unexpected end of JSON input"),
        ("not", "invalid character 'o' in literal null (expecting 'u')"),
        ('["NaN",NaN]', "invalid character 'N' looking for beginning of value"),
        ('["-",-Infinity]', "invalid character 'I' in numeric literal"),
        ("[-]", "invalid character ']' in numeric literal"),
        ("[01]", "invalid character '1' after array element"),
        ("[1.]", "invalid character ']' after decimal point in numeric literal"),
        ("[1-]", "invalid character '-' after array element"),
        ("1.5e+", "unexpected end of JSON input"),
        ("[1e]", "invalid character ']' in exponent of numeric literal"),
        ('[1 "-1"]', "invalid character '\"' after array element"),
        ('["1e9",1e999]', "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ("9" * 5000, f"json: cannot unmarshal number {'9' * 5000} into Go value of type float64"),
        ('{"a":}', "invalid character '}' looking for beginning of value"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":[] "b"}', "invalid character '\"' after object key:value pair"),
        ('{"]":[1 2]}', "invalid character '2' after array element"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ("{} x", "invalid character 'x' after top-level value"),
    ],
)
def test_what_is_no_json(text: str, error: str) -> None:
    assert json_error(text) == error


def test_an_invalid_object_names_a_bounded_number_of_causes() -> None:
    causes = [required(f"spec.a[{index}]") for index in range(1003)]
    error = invalid(POD, "a", causes)
    assert len((error.details or {})["causes"]) == 1000
    assert error.message.endswith("spec.a[999]: Required value, and 3 more]")
