"""Certificates are judged alike in all versions of Python."""

import ssl

import pytest

from kdns.runtime.tls import default_context


@pytest.mark.parametrize("purpose", [ssl.Purpose.SERVER_AUTH, ssl.Purpose.CLIENT_AUTH])
def test_authorities_need_no_key_identifier(purpose: ssl.Purpose) -> None:
    assert not default_context(purpose).verify_flags & ssl.VERIFY_X509_STRICT
