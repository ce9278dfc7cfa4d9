"""What manifests say, line by line, and the three-way merge, as tables."""

import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED, MANIFEST
from kdns.controlplane.apimachinery.kinds import NAMESPACE, POD, SERVICE, Json, Kind
from kdns.controlplane.manifests.io.files import STDIN, Scanner, load, located, read, stamps, texts_read_once
from kdns.controlplane.manifests.manifest import Manifest, Mistake, UnknownKind, in_order, json_text, manifest_of
from kdns.controlplane.manifests.three_way_merge import merged
from kdns.errors import ManifestError
from kdns.runtime.files.bounded import BYTES_MAX
from kdns.runtime.files.yaml import documents, field_lines, parse

TWO = """\
# a comment
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
---
apiVersion: v1
kind: Service
metadata:
  name: cart
  namespace: shop
spec:
  ports:
  - port: 80
  - port: 81
"""

DOUBLING = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
DEEPENING = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} {'[' * 99}*a{n - 1}{']' * 99}\n" for n in range(1, 4))

LISTS = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: a}
-
  apiVersion: v1
  kind: Namespace
  metadata: {name: b}
---
apiVersion: v1
kind: ServiceList
items:
- metadata: {name: c}
"""


ALIASED = """\
apiVersion: v1
kind: ServiceList
x: &x
  [{metadata: {name: a}}, {metadata: {name: b}}]
"""


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("a.yaml", TWO, [(2, "Namespace", "shop"), (7, "Service", "cart")]),
        ("a.yaml", LISTS, [(4, "Namespace", "a"), (8, "Namespace", "b"), (15, "Service", "c")]),
        ("a.yaml", f"{ALIASED}items: *x\n", [(5, "Service", "a"), (5, "Service", "b")]),
        ("a.yaml", f"{ALIASED}<<: {{items: *x}}\n", [(1, "Service", "a"), (1, "Service", "b")]),
        ("a.yaml", "", []),
        ("a.yaml", "---\n# nothing\n", []),
        (
            "a.json",
            '\n{\n\t"apiVersion": "v1",\n\t"kind": "Service", "metadata":\t{"name": "x\\/y"}}',
            [(2, "Service", "x/y")],
        ),
        (
            "a.json",
            '{"apiVersion":"v1","kind":"ServiceList","items":[\n{"metadata":{"name":"x"}}]}',
            [(2, "Service", "x")],
        ),
    ],
)
def test_objects_and_their_lines(path: str, text: str, found: list[tuple[int, str, str]]) -> None:
    manifests = [manifest_of(doc.path, doc.line, doc.value, CATALOGUE) for doc in documents(path, text)]
    assert [(m.line, m.kind.kind, m.name) for m in manifests if isinstance(m, Manifest)] == found


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("a: 2024-01-02", {"a": "2024-01-02"}),
        (
            "a: '1'\nb: 1\nc: 1.5\nd: yes\ne: null\nf: ~\ng:",
            {"a": "1", "b": 1, "c": 1.5, "d": True} | dict.fromkeys("efg"),
        ),
        ("80: x\ntrue: y", {"80": "x", "true": "y"}),
        (
            "yes: 1\n0x10: 2\nOff: 3\n1.10: 4\n'on': 5\n1-2: 6",
            {"true": 1, "16": 2, "false": 3, "1.1": 4, "on": 5, "1-2": 6},
        ),
        ("base: &b {x: 1, y: 2}\nsub:\n  <<: *b\n  y: 3", {"base": {"x": 1, "y": 2}, "sub": {"x": 1, "y": 3}}),
        ("a: [=, .inf, -.INF, .nan]", {"a": ["=", ".inf", "-.INF", ".nan"]}),
        ("a: &x 1\nb: &x [*x]\nc: *x", {"a": 1, "b": [1], "c": [1]}),
        ("a: &x k\n*x : 1\nb: {? *x : 2}", {"a": "k", "k": 1, "b": {"k": 2}}),
        ("&x yes: &y 5\n*y : *x\nz: &z <<\n*z : 1", {"true": 5, "5": True, "z": "<<", "<<": 1}),
        ("base: &b [{x: 1}]\nsub: *b", {"base": [{"x": 1}], "sub": [{"x": 1}]}),
        ("sub: {<<: [{x: 1}, {x: 2, y: 2}], z: 3}", {"sub": {"x": 1, "y": 2, "z": 3}}),
        (
            "{a: !!str 1, b: !!int '3', c: !!null '', d: !!float 4.5, e: ! 1, '<<': {a: 1}}",
            {"a": "1", "b": 3, "c": None, "d": 4.5, "e": "1", "<<": {"a": 1}},
        ),
        (
            "[0644, 0o644, 0x1F, 0b101, -7, +7, 1_000, 08, 1e3, .5, 80.0, -0]",
            [420, 420, 31, 5, -7, 7, 1000, 8, 1000, 0.5, 80, 0],
        ),
        (
            "[1:59:59, 1:30.5, 0x, 1e, 1-2, 1.2.3, -, ., +_, 1e999]",
            ["1:59:59", "1:30.5", "0x", "1e", "1-2", "1.2.3", "-", ".", "+_", "1e999"],
        ),
        ("[18446744073709551615, 18446744073709551616]", [2**64 - 1, float(2**64)]),
        pytest.param(f"- 1{':59' * 300_000}\n- {'9' * 900_000}", [f"1{':59' * 300_000}", "9" * 900_000], id="long"),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
    ],
)
def test_values_are_those_of_json(yaml: str, value: Json) -> None:
    (document,) = documents("a.yaml", yaml)
    assert document.value == value
    json.dumps(document.value)


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', '"\\\\ud83d\\\\ude00"', '"\\u00e4\\n"', '"\\\\\\ud83d\\ude00"'])
def test_json_text_reads_as_json_does(text: str) -> None:
    (document,) = documents("a.json", f'{{"a": {text}}}')
    assert document.value == {"a": json.loads(text)}


def test_a_lone_surrogate_is_what_go_makes_of_it() -> None:
    (document,) = documents("a.json", r'{"a": "\ud800", "b": "\\ud800 \udc00\ud83d\ud83d\ude00"}')
    assert document.value == {"a": "\ufffd", "b": "\\ud800 \ufffd\ufffd\U0001f600"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\nb: [", "f.yaml:2: not YAML: while parsing"),
        ("\tx: 1", "f.yaml:1: not YAML: while scanning"),
        ("a: !!binary aGk=", "f.yaml:1: a: the tag tag:yaml.org,2002:binary has no counterpart in JSON"),
        ("? [a]\n: b", "f.yaml:1: a key must be text"),
        ("~: b", "f.yaml:1: a key must be text, got null"),
        ("a: &x [1]\n*x : b", "f.yaml:2: a key must be text"),
        ("a: &x ~\n*x : b", "f.yaml:2: a key must be text, got null"),
        ("*x : b", "f.yaml:1: found undefined alias 'x'"),
        ('a: "\u2028\x85\u2029\r"\nb: *x', "f.yaml:2: b: found undefined alias 'x'"),
        ("a: |\n  \u2028\n# \x85\nb: [", "f.yaml:4: not YAML: while parsing"),
        (
            "a: {{ .Values.name }}",
            "f.yaml:1: a: a key must be text, got an object; `{{ … }}` is a template's: render it ",
        ),
        ("a: &x [*x]", "f.yaml:1: a[0]: found undefined alias 'x'"),
        ("a: *x", "f.yaml:1: a: found undefined alias 'x'"),
        ("a: &x 1\n---\nb: *x", "f.yaml:3: b: found undefined alias 'x'"),
        ("a:\n  <<: x", "f.yaml:2: a.<<: expected an object or a list of objects to merge"),
        pytest.param("- " * 30_000, "nested too deeply, expected at most 200 levels", id="deep list"),
        pytest.param("? " * 30_000, "f.yaml:1: a key must be text", id="deep keys"),
        pytest.param("a: " + "{a: " * 100_000, "nested too deeply, expected at most 200 levels", id="deep object"),
        pytest.param(DEEPENING, "nested too deeply, expected at most 200 levels", id="deep aliases"),
        ("%TAG !a! b\n--- !a!b a", "f.yaml:2: not YAML: while parsing a node, found undefined tag handle"),
        (DOUBLING, "its aliases repeat too much"),
        ("a: 1\nb: \0", "f.yaml:2: not YAML: "),
        ("- a", "f.yaml:1: expected an object with apiVersion and kind, got a list"),
        ("x", 'f.yaml:1: expected an object with apiVersion and kind, got "x"'),
        ("metadata: {}", "f.yaml:1: apiVersion: expected a string, got nothing"),
        ("---\n\napiVersion: v1", "f.yaml:3: kind: expected a string, got nothing"),
        ("apiVersion: v1\nkind: Service", "f.yaml:1: metadata: expected an object with a name, got nothing"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {namespace: a}",
            "f.yaml:1: metadata.name: expected a string, got nothing",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 5}", "f.yaml:1: metadata.name: expected a string, got 5"),
        ("apiVersion: v1\nkind: List\nitems: {}", "f.yaml:3: items: expected a list of objects"),
    ],
)
def test_what_cannot_be_used_says_where_and_why(text: str, error: str) -> None:
    with pytest.raises(ManifestError) as raised:
        [manifest_of(doc.path, doc.line, doc.value, CATALOGUE) for doc in documents("f.yaml", text)]
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("api_version", "kind", "hint"),
    [
        ("example.com/v1", "Widget", ""),
        ("example.com/v1", "Servic", ""),
        ("v1", "Servic", "; did you mean Service?"),
        ("apps/v1", "deployment", "; did you mean Deployment?"),
        ("apps/v1beta1", "Deployment", ", Deployment is served as apps/v1"),
        ("discovery.k8s.io/v1beta1", "EndpointSlice", ", EndpointSlice is served as discovery.k8s.io/v1"),
    ],
)
def test_unknown_kinds_are_named(api_version: str, kind: str, hint: str) -> None:
    unknown = manifest_of("a", 3, {"apiVersion": api_version, "kind": kind}, CATALOGUE)
    assert isinstance(unknown, UnknownKind)
    assert str(unknown.error) == f"a:3: kind: skipped: {api_version} {kind} is not served{hint}"


@pytest.mark.parametrize(
    ("field", "line"),
    [("spec.ports[1].port", 15), ("spec.ports[0].nodePort", 14), ("spec", 12), ("metadata.name", 10), ("nowhere", 7)],
)
def test_the_line_of_a_field(field: str, line: int) -> None:
    assert field_lines("a.yaml", TWO, [(7, field)]) == {(7, field): line}


DOTTED = """\
metadata:
  labels:
    a: x
    a.b/c: x
data:
  one: |  # a block
    text
  two: "text"
  two: "text"
"""


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("metadata.labels[a.b/c]", 4),
        ("metadata.labels.a.b/c", 4),
        ("metadata.labels.a.c", 3),
        ("data.one", 6),
        ("data.two", 9),
        ("data.three", 5),
    ],
)
def test_the_line_of_keys_with_dots_and_of_duplicates(field: str, line: int) -> None:
    assert field_lines("a", DOTTED, [(1, field)]) == {(1, field): line}


@pytest.mark.parametrize(
    ("text", "lines", "says"),
    [
        ("a: 1\n---\nb: 2\n", [1, 3], []),
        ("a: [\n---\nb: 2\n---\nc: {\n", [3], ["a:1: not YAML", "a:5: not YAML"]),
        ("--- [\n--- {\n---\na: 1\n", [4], ["a:1: not YAML", "a:2: not YAML"]),
        ("a: 1\na: 2\nb: {c: 1, c: 2}\n", [1], ["a:2: a: duplicate key", "a:3: b.c: duplicate key"]),
        ("a:\n- {b: 1}\n- b: 1\n  b: 2\n", [1], ["a:4: a[1].b: duplicate key; the last value is used"]),
        ("kind: List\nitems: x\n---\na: *b\n---\na: 1\n", [6], ["a:2: items: expected", "a:4: a: found undefined"]),
        ("a: |\n --- x\n---\nb: @\n\x85\n---\nc: 1\n", [1, 7], ["a:4: not YAML"]),
        ("%YAML 1.2\n---\na: 1\n...\n%TAG ! tag:x,2000:\n---\nb: 2\n", [3, 7], []),
        ("---\n- [\n" * 200, [], [*(f"a:{n}: not YAML" for n in range(2, 201, 2)), "a: there are 100 mis"]),
    ],
)
def test_every_mistake_in_yaml(text: str, lines: list[int], says: list[str]) -> None:
    stream = parse("a", text)
    assert [document.line for document in stream.documents] == lines
    mistakes = [*stream.mistakes, *stream.duplicates]
    assert len(mistakes) == len(says)
    for mistake, said in zip(mistakes, says, strict=True):
        assert str(mistake).startswith(said)


def test_mistakes_are_told_at_their_lines_and_each_file_is_read_once() -> None:
    texts = {"a.yaml": TWO, "b.yaml": DOTTED}
    read: list[str] = []

    def text_of(path: Path) -> str:
        read.append(str(path))
        if str(path) not in texts:
            raise ManifestError(str(path), 0, "", "gone")
        return texts[str(path)]

    rows = [("a.yaml", 7, "spec.ports[0].port"), ("b.yaml", 1, "data.two"), ("a.yaml", 1, ""), ("gone", 9, "spec")]
    wrong = [Mistake(Manifest(path, line, SERVICE, "", "a", "{}"), field, "no") for path, line, field in rows]
    assert list(map(str, located(wrong, text_of))) == [
        "a.yaml:14: spec.ports[0].port: no",
        "b.yaml:9: data.two: no",
        "a.yaml:1: no",
        "gone:9: spec: no",
    ]
    assert sorted(read) == ["a.yaml", "b.yaml", "gone"]


def manifest(kind: Kind, name: str, **spec: Any) -> Manifest:
    return Manifest(
        "a", 1, kind, "default" if kind.namespaced else "", name, json_text({"metadata": {"name": name}, "spec": spec})
    )


def test_order_of_application() -> None:
    mixed = [
        manifest(POD, "p"),
        manifest(SERVICE, "dynamic"),
        manifest(SERVICE, "fixed", clusterIP="10.96.0.7"),
        manifest(NAMESPACE, "n"),
    ]
    assert [m.name for m in in_order(mixed)] == ["n", "fixed", "dynamic", "p"]


def test_what_is_stored_of_a_manifest() -> None:
    exported = {"name": "p", "uid": "u", "resourceVersion": "4", "creationTimestamp": "t", "annotations": {"a": "b"}}
    wanted = Manifest("a", 1, POD, "shop", "p", json_text({"kind": "Pod", "metadata": exported})).to_apply("/m/a.yaml")
    annotations = wanted["metadata"].pop("annotations")
    assert wanted == {"kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}}
    assert (annotations["a"], annotations[MANIFEST]) == ("b", "/m/a.yaml")
    assert json.loads(annotations[LAST_APPLIED])["metadata"] == {
        "name": "p",
        "namespace": "shop",
        "annotations": {"a": "b"},
    }
    assert exported["uid"] == "u"


def ports(*numbers: int, **more: Any) -> list[Json]:
    return [{"port": number, **more} for number in numbers]


TCP_NODE = {"port": 80, "protocol": "TCP", "nodePort": 30080}
DNS_TCP, DNS_UDP = {"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}


@pytest.mark.parametrize(
    ("kind", "last", "wanted", "live", "result"),
    [
        (SERVICE, {"a": 1}, {"a": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 3}),
        (SERVICE, {"a": 1, "c": 1}, {"a": 1}, {"a": 1, "c": 2, "b": 3}, {"a": 1, "b": 3}),
        (SERVICE, {}, {"a": None}, {"a": 1, "b": 3}, {"b": 3}),
        (SERVICE, {"selector": {"x": "1", "y": "2"}}, {"selector": {"x": "1"}},
         {"selector": {"x": "1", "y": "2", "z": "3"}}, {"selector": {"x": "1", "z": "3"}}),
        (SERVICE, {"ports": ports(80)}, {"ports": ports(80, name="w")}, {"ports": [TCP_NODE]},
         {"ports": [TCP_NODE | {"name": "w"}]}),
        (SERVICE, {"ports": ports(80)}, {"ports": ports(81)}, {"ports": [TCP_NODE]}, {"ports": ports(81)}),
        (SERVICE, {"ports": ports(81)}, {"ports": ports(81)}, {"ports": [*ports(81), TCP_NODE]},
         {"ports": [*ports(81), TCP_NODE]}),
        (SERVICE, {"ports": [DNS_UDP]}, {"ports": [DNS_UDP, {"port": 53, "name": "t"}]}, {"ports": [DNS_UDP, DNS_TCP]},
         {"ports": [DNS_UDP, DNS_TCP | {"name": "t"}]}),
        (SERVICE, {}, {"ports": ports(80, 80)}, {"ports": [TCP_NODE]}, {"ports": ports(80, 80)}),
        (SERVICE, {"clusterIPs": ["a", "b"]}, {"clusterIPs": ["a"]}, {"clusterIPs": ["a", "b"]}, {"clusterIPs": ["a"]}),
        (POD, {"containers": [{"name": "a", "image": "1"}]}, {"containers": [{"name": "a", "image": "2"}]},
         {"containers": [{"name": "a", "image": "1", "stdin": True}, {"name": "b"}]},
         {"containers": [{"name": "a", "image": "2", "stdin": True}, {"name": "b"}]}),
    ],
)  # fmt: skip
def test_three_way_merge(kind: Kind, last: Json, wanted: Json, live: Json, result: Json) -> None:
    stored: Json = {"metadata": {"annotations": {LAST_APPLIED: json.dumps({"spec": last})}}, "spec": live}
    assert merged(kind, stored, {"spec": wanted})["spec"] == result


def test_finalizers_are_a_set() -> None:
    stored: Json = {
        "metadata": {"finalizers": ["a", "x"], "annotations": {LAST_APPLIED: '{"metadata":{"finalizers":["a"]}}'}}
    }
    assert merged(SERVICE, stored, {"metadata": {"finalizers": ["b"]}})["metadata"]["finalizers"] == ["b", "x"]


def test_which_files_count(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "sub/c.json", ".hidden.yaml", ".git/d.yaml", "notes.txt", "e.yaml~"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in stamps([tmp_path])] == ["a.yml", "b.yaml", "sub/c.json"]
    assert list(stamps([tmp_path / "notes.txt"])) == [tmp_path / "notes.txt"]


def test_load_raises_the_first_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TWO)
    (tmp_path / "b.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ManifestError, match=r"b\.yaml:2: not UTF-8: byte 0xff"):
        load([tmp_path], CATALOGUE)
    with pytest.raises(ManifestError, match="no such file or folder"):
        load([tmp_path / "missing"], CATALOGUE)
    manifests, unknown = load([tmp_path / "a.yaml"], CATALOGUE)
    assert [m.name for m in manifests] == ["shop", "cart"]
    assert unknown == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_is_no_file_in_a_folder_is_a_problem_of_its_own(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(TWO)
    scanner = Scanner([tmp_path], CATALOGUE)
    assert scanner.scan(settle=False)
    assert (
        str(scanner.files[tmp_path / "a.yaml"].errors[0])
        == f"{tmp_path}/a.yaml: cannot be read: it is not a regular file"
    )
    assert len(scanner.files[tmp_path / "b.yaml"].manifests) == 2
    with pytest.raises(ManifestError, match="not a regular file"):
        load([tmp_path], CATALOGUE)


def test_a_pipe_and_standard_input_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TWO,))
    writing.start()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[")))
    paths = [tmp_path / "pipe", STDIN]
    scanner = Scanner(paths, CATALOGUE, texts_read_once(paths))
    writing.join()
    assert [scanner.scan(settle=False) for _ in range(2)] == [True, False]
    assert len(scanner.files[tmp_path / "pipe"].manifests) == 2
    assert str(scanner.files[STDIN].errors[0]).startswith("-:1: not YAML: ")


def test_a_file_without_end_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").touch()
    os.truncate(tmp_path / "a.yaml", BYTES_MAX + 1)
    for path in (tmp_path / "a.yaml", Path("/dev/zero")):
        with pytest.raises(ManifestError, match="too large, expected at most 64 MiB"):
            load([path], CATALOGUE, texts_read_once([path]))


def config_map(name: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"


A, B, C = map(config_map, "abc")
JSON_A, JSON_B, JSON_C = (
    json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}) for name in "abc"
)
ITEMS = "kind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: x}}\n- {}\n"


@pytest.mark.parametrize(
    ("text", "names", "says"),
    [
        pytest.param(f"{A}data: {{x: a}}\ndata: {{y: b}}\n", ["a"], ["5: data: duplicate key"], id="duplicate"),
        pytest.param(f"{JSON_A}\n{JSON_B}\n\n{JSON_C}", ["a", "b", "c"], [], id="JSON lines"),
        pytest.param(f"{JSON_A}{JSON_B}", ["a", "b"], [], id="JSON objects"),
        pytest.param(f'{JSON_A}\n{{\n"kind": 1}}\n{JSON_B}', ["a", "b"], ["2: apiVersion: "], id="JSON mistake"),
        pytest.param(f"{JSON_A}\n---\n{B}", ["a", "b"], [], id="JSON and YAML"),
        pytest.param(f"{{a: 1}}\n---\n{B}", ["b"], ["1: apiVersion: expected"], id="flow style"),
        pytest.param(f"\ufeff{A}---\n\ufeff{B}", ["a", "b"], [], id="byte order marks"),
        pytest.param(f"{A}---\n{B}".replace("\n", "\r\n"), ["a", "b"], [], id="line ends of Windows"),
        pytest.param(f"{A}---\nkind: [\n---\n{B}", ["a", "b"], ["5: : not YAML"], id="broken YAML"),
        pytest.param(f"{A}---\nx: y\n---\n{B}", ["a", "b"], ["5: apiVersion: "], id="no object"),
        pytest.param(f"{A}---\n{config_map('1')}---\n{B}", ["a", "b"], ["7: metadata.name: "], id="name"),
        pytest.param(config_map("a, labels: null, annotations: {a: null}"), ["a"], [], id="nulls"),
        pytest.param(f"---\n# a\n---\n\n---\n{A}---\n...\n", ["a"], [], id="empty documents"),
        pytest.param(ITEMS, ["a"], ["5: apiVersion: "], id="list"),
    ],
)
def test_what_kubectl_reads_is_read(tmp_path: Path, text: str, names: list[str], says: list[str]) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(text.encode())
    loaded = read(path, (1, 1, 1), CATALOGUE)
    assert [manifest.name for manifest in loaded.manifests] == names
    told = [f"{each.line}: {each.field}: {each.reason}" for each in (*loaded.errors, *loaded.warnings)]
    assert len(told) == len(says), told
    assert all(each.startswith(said) for each, said in zip(told, says, strict=True)), told


@pytest.mark.parametrize("kind", list(CATALOGUE), ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_a_file_may_have_every_kind_that_is_served(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"apiVersion: {kind.api_version}\nkind: {kind.kind}\nmetadata: {{name: a}}\n")
    loaded = read(path, (1, 1, 1), CATALOGUE)
    assert [manifest.kind for manifest in loaded.manifests] == [kind] * (not kind.is_review)
    assert [unknown.error.reason for unknown in loaded.unknown] == [
        f"skipped: {kind.api_version} {kind.kind} is a question to the API, which is answered and not stored"
    ] * kind.is_review


def test_aliases_are_copies_up_to_a_bound() -> None:
    (document,) = documents("a", "a: &a {x: [1]}\nb: *a\n")
    document.value["b"]["x"].append(2)
    assert document.value["a"] == {"x": [1]}


@pytest.mark.parametrize(("count", "is_refused"), [(600, False), (700, True)])
def test_how_much_aliases_may_repeat(count: int, is_refused: bool) -> None:
    """250,000 nodes and characters more than twice the text: an alias of 200 items of one character is 401."""
    stream = parse("a", f"a: &a [{'x, ' * 200}]\nb: [{'*a, ' * count}]\n")
    assert [mistake.reason for mistake in stream.mistakes] == ["its aliases repeat too much"] * is_refused
