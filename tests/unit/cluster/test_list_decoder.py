"""Lists that arrive in chunks: cuts change nothing, and no more is held than is allowed."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_pages import decode_list

from kdns.cluster import watch
from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.watch import RESOURCES, ListDecoder

SERVICES = RESOURCES[Service]
HEAD = {"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": "next"}}


def service(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "annotations": annotations}, "spec": {"clusterIP": "10.0.0.1"}}


TEXT = st.one_of(
    st.text(st.sampled_from('a"\\{}[],: é'), max_size=8),
    st.sampled_from(['},{"metadata":', '"items":[{"metadata":', '"},{', "\\"]),
)
NESTED = st.lists(st.builds(lambda text: {"metadata": {"name": text}}, TEXT), max_size=3)
ITEMS = st.lists(
    st.one_of(
        st.builds(lambda text, other: service(text, a=text) | {"other": other}, TEXT, TEXT | NESTED),
        st.builds(lambda text: {"other": [text], **service(text)}, TEXT),
        st.just({"metadata": {"name": "malformed"}, "spec": 5}),
        st.just({"metadata": {}}),
    ),
    max_size=5,
)
ORDERS = st.permutations(["kind", "apiVersion", "metadata", "other", "items", "more"])


@given(ITEMS, ORDERS, TEXT | NESTED, st.sets(st.integers(0, 2000)), st.integers(1, 300), st.booleans())
def test_chunks_are_decoded_as_the_whole_list(
    items: list[object], order: list[str], other: object, cuts: set[int], part_bytes: int, is_indented: bool
) -> None:
    fields = HEAD | {"other": other, "items": items, "more": [{"metadata": {}}, {"metadata": {}}]}
    body = json.dumps({name: fields[name] for name in order}, indent=2 if is_indented else None).encode()
    whole = decode_list(SERVICES, body)
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    decoder = ListDecoder(SERVICES)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch, "PART_BYTES", part_bytes)
        parts = [decoder.feed(body[start:end]) for start, end in pairwise(edges)]
    parts.append(decoder.end())
    assert [obj for part in parts for obj in part.objects] == list(whole.objects)
    assert [failure for part in parts for failure in part.failures] == list(whole.failures)
    assert (parts[-1].resource_version, parts[-1].continue_token) == ("7", "next")
    assert len(whole.objects) + len(whole.failures) == len(items)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), ("\n , ", " :\t")], ids=["Go", "Python", "spaces"])
def test_objects_are_there_before_the_end_of_their_list(
    monkeypatch: pytest.MonkeyPatch, separators: tuple[str, str]
) -> None:
    monkeypatch.setattr(watch, "PART_BYTES", 1000)
    names = [f"s{number}" for number in range(100)]
    body = json.dumps(HEAD | {"items": [service(name, a='}"{' * 9) for name in names]}, separators=separators).encode()
    decoder, early, most = ListDecoder(SERVICES), list[str](), 0
    for at in range(0, len(body), 100):
        part = decoder.feed(body[at : at + 100])
        most = max(most, len(part.objects))
        early += [obj.key[1] for obj in part.objects]
    assert early == names[: len(early)]
    assert len(early) > 90
    assert most < 10


def test_items_that_begin_as_a_part_of_them_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server's encoder may begin items with apiVersion, as their managedFields begin then."""
    monkeypatch.setattr(watch, "PART_BYTES", 1000)
    fields = [{"apiVersion": "v1"}, {"apiVersion": "v1"}, {"apiVersion": "v1"}]
    items = [{"apiVersion": "v1", "managedFields": fields, **service(f"s{number}")} for number in range(100)]
    body = json.dumps(HEAD | {"items": items}).encode()
    decoder = ListDecoder(SERVICES)
    parts = [decoder.feed(body[at : at + 100]) for at in range(0, len(body), 100)]
    assert sum(len(part.objects) for part in parts) > 90
    assert [obj.key[1] for part in [*parts, decoder.end()] for obj in part.objects] == [f"s{n}" for n in range(100)]


def test_a_list_whose_kind_comes_last_is_decoded_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server's encoder may sort its fields."""
    body = json.dumps(HEAD | {"items": [service("a"), service("b")]}, sort_keys=True).encode()
    assert [obj.key[1] for obj in decode_list(SERVICES, body).objects] == ["a", "b"]
    monkeypatch.setattr(watch, "PART_BYTES", 10)
    monkeypatch.setattr(watch, "OBJECT_MAX_BYTES", 100)
    with pytest.raises(msgspec.DecodeError, match="a list without kind and metadata before items"):
        decode_list(SERVICES, body)


def test_a_large_page_takes_the_memory_of_one_object() -> None:
    """Annotations of 64 MiB are read in chunks of 64 KiB; what is kept of them is nothing."""
    decoder, count = ListDecoder(SERVICES), 0
    item = json.dumps(service("a", note="x" * (1 << 20))).encode()
    tracemalloc.start()
    try:
        decoder.feed(json.dumps(HEAD).encode()[:-1] + b',"items":[')
        for number in range(64):
            body = item + (b"," if number < 63 else b"]}")
            for at in range(0, len(body), 1 << 16):
                count += len(decoder.feed(body[at : at + (1 << 16)]).objects)
        count += len(decoder.end().objects)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert count == 64


@pytest.mark.parametrize(
    "text",
    [
        b'{"metadata":{"name":"',
        b'{"metadata":{"annotations":{"a":"\\"',
        b'{"a":[{},{',
        b'{"a":[{"a":1},{"a":',
        b"1",
        b'"',
    ],
    ids=["name", "escapes", "objects", "fields", "number", "string"],
)
def test_an_object_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(watch, "OBJECT_MAX_BYTES", 1 << 20)
    decoder = ListDecoder(SERVICES)
    decoder.feed(json.dumps(HEAD).encode()[:-1] + b',"items":[' + text)
    repeated = b'{"a":1},' if text.endswith(b":") else text[-1:]
    with pytest.raises(msgspec.DecodeError, match=r"an object of the list.* is longer than 1 MiB; kdns stops there\. "):
        drain(decoder, repeated * ((1 << 16) // len(repeated)))


def drain(decoder: ListDecoder, chunk: bytes) -> None:
    for _ in range(40):
        decoder.feed(chunk)


SERVICE = {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}
SLICE = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]}


def with_spec(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "wrong"}, "spec": {"clusterIP": "10.96.0.2", "ports": [{"port": 80}], **fields}}


@pytest.mark.parametrize(
    ("kind", "good", "wrong", "reason"),
    [
        (Service, SERVICE, with_spec(healthCheckNodePort=65536), "<= 65535 - at `$.spec.healthCheckNodePort`"),
        (Service, SERVICE, with_spec(ports=[{"port": 70000}]), "<= 65535 - at `$.spec.ports[0].port`"),
        (Service, SERVICE, with_spec(ports=[{"port": 80, "nodePort": -1}]), ">= 0 - at `$.spec.ports[0].nodePort`"),
        (EndpointSlice, SLICE, SLICE | {"metadata": {"name": "wrong"}, "ports": [{"port": 65536}]}, "<= 65535 - at"),
    ],
)
def test_a_port_out_of_range(
    kind: type[Service | EndpointSlice], good: dict[str, Any], wrong: dict[str, Any], reason: str
) -> None:
    resource = RESOURCES[kind]
    body = {"kind": f"{kind.__name__}List", "apiVersion": resource.api_version, "metadata": {}, "items": [good, wrong]}
    page = decode_list(resource, json.dumps(body).encode())
    assert [obj.metadata.name for obj in page.objects] == ["a"]
    ((key, error),) = [(failure.key, failure.reason) for failure in page.failures]
    assert key == ("", "wrong")
    assert reason in error
