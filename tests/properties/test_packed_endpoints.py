"""Endpoints that the state has packed are equal to those that were decoded, and have the same names."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kdns.cluster.endpoints import PackedEndpoints
from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Hints,
    Named,
    SliceLabels,
    SliceMeta,
    TargetRef,
)
from kdns.cluster.packed import (
    bare_addresses,
    changed_addresses,
    packed_slice,
    ready_addresses,
    slice_addresses,
    unpacked_slice,
)
from kdns.cluster.state import State
from kdns.net import packed

TEXTS = ("web-0", "web-1", "a b", "", "Ärger")
ADDRESSES = {
    "IPv4": ("10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "010.1.0.1", "10.1.0", "", "fd00::1"),
    "IPv6": ("fd00::1", "fd00::2", "FD00::3", "fd00:0::4", "::ffff:10.1.0.1", "::1.2.3.4", "fe80::1%eth0", "10.1.0.1"),
    "FQDN": ("web.example.com", "10.1.0.1"),
}
PLAIN = {"IPv4": 4, "IPv6": 2, "FQDN": 0}
"""How many of the addresses are as the API writes them."""
BOOLEANS = (None, True, False)


@st.composite
def slices(draw: st.DrawFn, *, plain: bool = False) -> EndpointSlice:
    """A slice; `plain` ones are as controllers write them."""
    family = draw(st.sampled_from(("IPv4", "IPv6")) if plain else st.sampled_from(sorted(ADDRESSES)))
    addresses = ADDRESSES[family][: PLAIN[family]] if plain else ADDRESSES[family]
    texts = TEXTS[:2] if plain else TEXTS
    endpoints = st.builds(
        Endpoint,
        st.tuples(st.sampled_from(addresses)) if plain else st.lists(st.sampled_from(addresses), max_size=2).map(tuple),
        st.none() | st.builds(Conditions, *(st.sampled_from(BOOLEANS) for _ in range(3))),
        st.none() | st.sampled_from(texts),
        st.none()
        | st.builds(
            TargetRef,
            st.just("Pod") if plain else st.sampled_from(("Pod", "Node", "")),
            st.sampled_from(texts),
            st.just("shop") if plain else st.sampled_from(("shop", "other")),
        ),
        st.sampled_from((None, "node-1", "node-2")),
        st.sampled_from((None, Hints((Named("a"),)), Hints((), (Named("node-1"),)))),
        st.sampled_from((None, "a", "b")),
    )
    every = draw(st.none() | st.lists(endpoints, max_size=4).map(tuple))
    return EndpointSlice(SliceMeta("s-1", "shop", SliceLabels("s")), family, every, (EndpointPort("p", 80),))


def told(one: EndpointSlice) -> EndpointSlice:
    """The slice with None for hostnames of no characters, which mean the same."""
    endpoints = one.endpoints and tuple(
        replace(endpoint, hostname=endpoint.hostname or None) for endpoint in one.endpoints
    )
    return replace(one, endpoints=endpoints)


@given(slices() | slices(plain=True))
def test_packed_and_decoded_endpoints_are_equal(one: EndpointSlice) -> None:
    made = packed_slice(one, {}.setdefault)
    assert told(unpacked_slice(made)) == told(one)
    assert told(made) == told(one)
    assert len(tuple(made.endpoints or ())) == len(made.endpoints or ())
    assert list(ready_addresses(made)) == list(ready_addresses(one))
    assert one.address_type != "FQDN" or not list(ready_addresses(one))
    assert (
        bare_addresses(made) == bare_addresses(one) == [ready_address.address for ready_address in ready_addresses(one)]
    )
    assert list(slice_addresses(made)) == list(slice_addresses(one))
    assert made == packed_slice(made, {}.setdefault) == packed_slice(unpacked_slice(made), {}.setdefault)


@given(slices(plain=True), slices(plain=True))
def test_slices_differ_as_their_decoded_endpoints_do(one: EndpointSlice, other: EndpointSlice) -> None:
    first, second = (packed_slice(each, {}.setdefault) for each in (one, other))
    assert (first == second) == (one == other)
    changed = {*(one.endpoints or ())} ^ {*(other.endpoints or ())}
    assert sorted(changed_addresses(first, second)) == sorted(packed(each.addresses[0]) for each in changed)
    assert sorted(changed_addresses(first, second)) == sorted(changed_addresses(one, second))


@given(slices(plain=True))
def test_what_controllers_write_is_packed(one: EndpointSlice) -> None:
    state = State()
    state.upsert(one)
    (held,) = state.slices.values()
    assert isinstance(held.endpoints, PackedEndpoints) or not one.endpoints
    assert state.upsert(one) is None
    for endpoint in one.endpoints or ():
        assert list(state.slices_by_ip[packed(endpoint.addresses[0])]) == [one.key]
