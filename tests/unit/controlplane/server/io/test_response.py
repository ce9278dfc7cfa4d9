"""Which responses are compressed."""

import pytest

from kdns.controlplane.server.io.response import accepts_gzip


@pytest.mark.parametrize(
    ("accepted", "is_gzip"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("GZIP;Q=0.5", True),
        ("*", True),
        ("identity, gzip", True),
        ("x-gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*;q=0", False),
        ("deflate, gzip;q=0, *", False),
        ("identity, gzip;q=0.5", False),
        ("identity;q=0.5, gzip", True),
        ("gzip;q=much", False),
        ("identity", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_what_a_client_accepts(accepted: str, *, is_gzip: bool) -> None:
    """RFC 9110 §12.5.3; the header was searched for the word, so q=0 got gzip."""
    assert accepts_gzip(accepted) is is_gzip
