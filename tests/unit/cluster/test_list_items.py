"""Lists that arrive in chunks: cuts change nothing, and no more is held than is allowed."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_pages import decode_list

from kdns.cluster import list_items, watch
from kdns.cluster.list_items import ListItems
from kdns.cluster.objects import Service
from kdns.cluster.watch import RESOURCES, ListDecoder

TEXT = st.text(st.sampled_from('a"\\{}[],: é'), max_size=8)
ITEMS = st.lists(
    st.one_of(
        st.dictionaries(TEXT, TEXT | st.lists(st.dictionaries(TEXT, TEXT))),
        TEXT.filter(lambda text: "]" not in text),
        st.integers(),
    ),
    max_size=5,
)
HEAD = {"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": ""}}


def service(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "annotations": annotations}, "spec": {"clusterIP": "10.0.0.1"}}


@given(ITEMS, st.permutations(["kind", "other", "items", "more"]), st.sets(st.integers(0, 200)), st.booleans())
def test_items_are_those_of_the_list(
    items: list[object],
    order: list[str],
    cuts: set[int],
    is_indented: bool,
) -> None:
    """Items that are no objects, which no API server sends, may come together."""
    fields = {"kind": "x", "other": {"items": [{}]}, "items": items, "more": [{"a": {}}, 5]}
    body = json.dumps({name: fields[name] for name in order}, indent=2 if is_indented else None).encode()
    reader = ListItems()
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    found = [item for start, end in pairwise(edges) for item in reader.feed(body[start:end])]
    found += reader.end()
    envelope = json.loads(bytes(reader.envelope))
    assert json.loads(b"[" + b",".join(found) + b"]") + envelope.pop("items") == items
    assert envelope == {name: fields[name] for name in order if name != "items"}


@pytest.mark.parametrize("cut", [1, 7, 4096])
def test_objects_are_there_before_the_end_of_their_list(cut: int) -> None:
    names = [f"s{number}" for number in range(50)]
    body = json.dumps(HEAD | {"items": [service(name, a='}"{' * 9) for name in names]}).encode()
    decoder = ListDecoder(RESOURCES[Service])
    parts = [decoder.feed(body[at : at + cut]) for at in range(0, len(body), cut)]
    early = [obj.key[1] for part in parts for obj in part.objects]
    last = decoder.end()
    assert early == names
    assert (last.objects, last.resource_version) == ([], "7")


def test_a_list_whose_kind_comes_last_is_held_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server's encoder may sort its fields."""
    body = json.dumps(HEAD | {"items": [service("a"), service("b")]}, sort_keys=True).encode()
    decoder = ListDecoder(RESOURCES[Service])
    assert decoder.feed(body[: body.index(b'"kind"')]).objects == ()
    assert [obj.key[1] for obj in decode_list(RESOURCES[Service], body).objects] == ["a", "b"]
    monkeypatch.setattr(watch, "HELD_MAX_BYTES", 100)
    with pytest.raises(msgspec.DecodeError, match="no kind of the list within"):
        decode_list(RESOURCES[Service], body)


def test_a_large_page_takes_the_memory_of_one_object() -> None:
    """Annotations of 64 MiB are read in chunks of 64 KiB; what is kept of them is nothing."""
    decoder, count = ListDecoder(RESOURCES[Service]), 0
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
        b"1",
        b'"',
    ],
    ids=["name", "escapes", "objects", "number", "string"],
)
def test_an_object_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(list_items, "OBJECT_MAX_BYTES", 1 << 20)
    reader = ListItems()
    reader.feed(b'{"kind":"ServiceList","apiVersion":"v1","items":[' + text)
    with pytest.raises(msgspec.DecodeError, match=r"an object of the list is longer than 1 MiB; kdns stops there\. "):
        drain(reader, text[-1:] * (1 << 16))


def drain(reader: ListItems, chunk: bytes) -> None:
    for _ in range(40):
        reader.feed(chunk)
