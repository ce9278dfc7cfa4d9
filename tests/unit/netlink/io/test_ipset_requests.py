"""Errors of ipset."""

from kdns.netlink.io.ipset import error_text
from kdns.netlink.uapi import IPSET_ERR_FIND_TYPE


def test_errors_have_words() -> None:
    assert error_text(IPSET_ERR_FIND_TYPE) == "the kernel has no sets of this type"
    assert error_text(2) == "No such file or directory"
