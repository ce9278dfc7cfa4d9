"""One spelling for each address, the one that Python's ipaddress knows."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from kdns.proxy.config import canonical

octets = st.one_of(st.integers(0, 300).map(str), st.sampled_from(("", "00", "01", "256", "٣", " 1", "1\n")))
texts = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded.upper()),
    st.lists(octets, min_size=3, max_size=5).map(".".join),
    st.text(max_size=20),
)


@given(texts)
def test_it_is_what_ipaddress_writes(text: str) -> None:
    try:
        wanted = "" if "%" in text else str(ip_address(text))
    except ValueError:
        wanted = ""
    assert canonical(text) == wanted
