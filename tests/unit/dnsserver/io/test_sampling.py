"""A sample of queries: all of few, and of many each with the same chance, wherever they stand among the others."""

import random
from collections import Counter

import pytest

from kdns.dnsserver.io.burst.sampling import Sampling


def sampling(most: int) -> Sampling:
    made = Sampling()
    made.most = most
    return made


def test_few_are_all_sampled_with_the_beginning_of_their_responses() -> None:
    sample = sampling(3)
    look = sample.look
    for number in range(3):
        look(b"packet", f"10.0.0.{number}", b"\0\1\x84\3 and more")
    look(b"another", "", b"")
    seen, kept = sample.take()
    assert (seen, len(kept)) == (4, 3)
    assert set(kept) <= {
        *((b"packet", f"10.0.0.{number}", b"\0\1\x84\3") for number in range(3)),
        (b"another", "", b""),
    }
    assert sample.take() == (0, [])


@pytest.mark.parametrize("burst", ["abc", "aabbcc", "a" * 50 + "b" * 50 + "c" * 50])
def test_a_place_after_a_pause_is_no_advantage(burst: str) -> None:
    """A sample is taken after every seventh burst, so it ends in a pause and begins with the first query after it."""
    random.seed(1)
    sample, parts, seen = sampling(100), Counter[bytes](), 0
    for number in range(1, 701):
        for name in burst:
            sample.look(name.encode(), "", b"")
        if number % 7 == 0:
            queries, kept = sample.take()
            seen += queries
            for packet, _, _ in kept:
                parts[packet] += queries / len(kept)  # type: ignore[assignment]
    assert seen == 700 * len(burst)
    assert all(part == pytest.approx(seen / 3, rel=0.1) for part in parts.values()), parts
