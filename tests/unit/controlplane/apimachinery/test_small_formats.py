"""Small formats: quantities, base64, and errors of objects with many mistakes."""

import pytest

from kdns.controlplane.apimachinery.errors import invalid
from kdns.controlplane.apimachinery.field_errors import required
from kdns.controlplane.apimachinery.kinds import POD, SECRET
from kdns.controlplane.apimachinery.quantities import canonical, quantity
from kdns.controlplane.schema.check import mistyped_fields


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
    ("value", "is_valid"),
    [("", True), ("AA==", True), ("AAAA\nAAA=", True), ("!!!", False), ("AAAA AAAA", False), ("AAAAAAA", False)],
)
def test_base64(value: str, is_valid: bool) -> None:
    error = ("data[a]", "expected base64, got a string")  # the value is secret
    assert mistyped_fields(SECRET, {"data": {"a": value}}) == ([] if is_valid else [error])


def test_an_invalid_object_names_a_bounded_number_of_causes() -> None:
    causes = [required(f"spec.a[{index}]") for index in range(1003)]
    error = invalid(POD, "a", causes)
    assert len((error.details or {})["causes"]) == 1000
    assert error.message.endswith("spec.a[999]: Required value, and 3 more]")
