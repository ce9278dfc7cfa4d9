"""A table of iptables-legacy as the kernel lists it: chains, the number of their rules, and jumps to them."""

import struct

from kdns.netlink.xtables import content_of_entries

ENTRY, STANDARD, ERROR = 112, 40, 64
"""Bytes of struct ipt_entry without its target, of a standard target, and of the target that begins a chain."""
ACCEPT, RETURN = -2, -5


def entry(target: bytes) -> bytes:
    return bytes(88) + struct.pack("=HH20x", ENTRY, ENTRY + len(target)) + target


def standard(verdict: int) -> bytes:
    return entry(struct.pack("=H30si4x", STANDARD, b"", verdict))


def head(name: bytes) -> bytes:
    return entry(struct.pack("=H30s30s2x", ERROR, b"ERROR", name))


def test_rules_are_counted_without_policies_and_returns() -> None:
    rule = ENTRY + STANDARD
    first_of_chain = 2 * rule + ENTRY + ERROR
    built_in = standard(first_of_chain) + standard(ACCEPT)
    chains = head(b"KUBE-A") + standard(ACCEPT) * 2 + standard(RETURN) + head(b"KUBE-B") + standard(RETURN)
    content = content_of_entries("IPv4", memoryview(built_in + chains + head(b"ERROR")), [(0, rule, "INPUT")])
    assert content.rules == {"INPUT": 1, "KUBE-A": 2, "KUBE-B": 0}
    assert content.jumps == {("INPUT", "KUBE-A")}
