"""tests/golden/corefile_directives.yaml: stanzas of every directive, read or refused; and fields that hold objects."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from test_corefile_servers import MINIMAL
from yaml_file import yaml_file

from kdns.cluster.source import Source
from kdns.corefile.lexer import Token
from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.plugins.directives import BY_NAME
from kdns.plugins.observers import errors, log
from kdns.plugins.sources.kubernetes.options import Options
from kdns.serverblocks import patterns
from kdns.serverblocks.config import server_configs
from kdns.serverblocks.stanza import UNLIMITED, argument_bounds, duration_s

GOLDEN: dict[str, Any] = yaml_file(Path(__file__).parents[2] / "golden" / "corefile_directives.yaml")
ZONES = ("example.org.",)
ACCEPTED = [(name, case) for name, cases in GOLDEN["accepted"].items() for case in cases]


def configured(stanza: str) -> Any:
    (block,) = parse(f"example.org\n{stanza}\n", "F")
    (line,) = block.stanzas
    return BY_NAME[line.name].read(line, ZONES)


def plain(found: object) -> object:
    """A field as YAML writes it."""
    if isinstance(found, tuple | frozenset):
        return [plain(each) for each in (found if isinstance(found, tuple) else sorted(found))]
    return found if isinstance(found, str | bool | int | float) else str(found)


def flat(config: Any, prefix: str = "") -> dict[str, object]:
    """The fields of a configuration, those of its parts with the part's name in front; `value` where it has none."""
    if not is_dataclass(config):
        return {"value": config}
    found: dict[str, object] = {}
    for field in fields(config):
        name, value = prefix + field.name, getattr(config, field.name)
        found |= flat(value, f"{name}.") if isinstance(value, Options | Source) else {name: value}
    return found


@pytest.mark.parametrize(("directive", "case"), ACCEPTED, ids=[case["stanza"] for _, case in ACCEPTED])
def test_accepted(directive: str, case: dict[str, Any]) -> None:
    config = flat(configured(case["stanza"]))
    expected = {key: value for key, value in case.items() if key != "stanza"}
    assert {key: plain(config[key]) for key in expected} == expected
    least = flat(configured(MINIMAL.get(directive, directive)))
    assert {key: value for key, value in config.items() if key not in expected} == {
        key: value for key, value in least.items() if key not in expected
    }


@pytest.mark.parametrize(("stanza", "line", "message"), GOLDEN["refused"], ids=[case[0] for case in GOLDEN["refused"]])
def test_refused(stanza: str, line: int, message: str) -> None:
    _, _, errors = server_configs(parse(f"example.org\n{stanza}\n", "F"), BY_NAME)
    assert str(errors[0]) == f"F:{line + 1}: {stanza.split(maxsplit=1)[0]}: {message}"


WITH_ZONES = [
    "acl ZONES",
    "auto ZONES {\n directory zones\n}",
    "autopath ZONES @kubernetes",
    "cache ZONES",
    "cache 30 ZONES",
    "cache a.test {\n disable success ZONES\n}",
    "cache a.test {\n disable denial ZONES\n}",
    "dnssec ZONES",
    "file db ZONES",
    "file db a.test {\n fallthrough ZONES\n}",
    "forward . ::1 {\n except ZONES\n}",
    "hosts hosts ZONES",
    "hosts hosts a.test {\n fallthrough ZONES\n}",
    "k8s_external ZONES",
    "k8s_external a.test {\n fallthrough ZONES\n}",
    "kubernetes ZONES",
    "kubernetes a.test {\n fallthrough ZONES\n}",
    "kubernetes a.test {\n multicluster ZONES\n}",
    "kubernetes a.test {\n namespaces ZONES\n}",
    "log ZONES",
    "log ZONES {type}",
    "metadata ZONES",
    "records ZONES",
    "rrl ZONES",
    "secondary ZONES {\n transfer from ::1\n}",
    "secondary a.test {\n transfer from ::1\n catalog ZONES\n}",
    "secondary a.test {\n transfer from ::1\n fallthrough ZONES\n}",
    "template ANY ANY ZONES",
    "template ANY ANY a.test {\n fallthrough ZONES\n}",
    "transfer ZONES {\n to *\n}",
    "tsig ZONES",
]
"""Every list of zones or namespaces."""


@pytest.mark.parametrize("stanza", WITH_ZONES)
def test_an_empty_word_is_no_zone(stanza: str) -> None:
    assert configured(stanza.replace("ZONES", '{$UNSET} a.test ""')) == configured(stanza.replace("ZONES", "a.test"))
    for zones, got in [
        ("{$UNSET}", "''; {$UNSET} is empty or not set"),
        ('""', "''"),
        ("{$UNSET}.", "'.'; {$UNSET}. stands for '.' here"),
    ]:
        if "namespaces" in stanza and zones == "{$UNSET}.":
            continue
        with pytest.raises(CorefileError, match="expected a ") as caught:
            configured(stanza.replace("ZONES", zones))
        assert str(caught.value).partition(", got ")[2] == got
        assert caught.value.line == 2 + stanza.partition("ZONES")[0].count("\n")


def test_every_directive_is_in_the_tables() -> None:
    assert {*GOLDEN["accepted"], "log"} == set(BY_NAME)
    assert {case[0].split()[0] for case in GOLDEN["refused"]} == set(BY_NAME)


@pytest.mark.parametrize(
    ("usage", "bounds"),
    [
        ("keepttl", (0, 0)),
        ("ttl SECONDS", (1, 1)),
        ("tls [CERT KEY] [CA]", (0, 3)),
        ("serve_stale [DURATION] [immediate|verify [TIMEOUT]] [RESPONSE_TTL [RECHECK]]", (0, 5)),
        ("fallthrough [ZONES...]", (0, UNLIMITED)),
        ("transfer from HOST[:PORT]...", (2, UNLIMITED)),
    ],
)
def test_a_usage_has_the_bounds_of_its_arguments(usage: str, bounds: tuple[int, int]) -> None:
    assert argument_bounds(usage) == bounds


@pytest.mark.parametrize(("text", "seconds"), GOLDEN["durations"])
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(Token("F", 1, text)) == seconds


@pytest.mark.parametrize("text", ["", "s", "1", "1d", "1 s", "+1s", "1e3s", "٣s", "1s1", "0x1s", "1..0s", ".s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(CorefileError, match="expected a duration"):
        duration_s(Token("F", 1, text))


def test_client_certificates() -> None:
    tls = configured("kubernetes {\n tls a.crt a.key ca.crt\n}").source.tls
    assert (tls.cert, tls.key, tls.ca) == ("a.crt", "a.key", "ca.crt")


@pytest.mark.parametrize(
    ("zones", "primary"), [("a.org in-addr.arpa", "a.org."), ("in-addr.arpa b.org a.org", "b.org."), (".", ".")]
)
def test_ptr_records_point_into_the_first_forward_zone(zones: str, primary: str) -> None:
    assert configured(f"kubernetes {zones}").options.primary_zone == primary


RULES: list[tuple[str, errors.Consolidate]] = [
    (
        'consolidate 5m ".* i/o timeout$" warning',
        errors.Consolidate(300, patterns.compiled(".* i/o timeout$"), "warning"),
    ),
    ("consolidate 30s ^Failed", errors.Consolidate(30, patterns.compiled("^Failed"))),
    ("consolidate 1s x show_first", errors.Consolidate(1, patterns.compiled("x"), show_first=True)),
    ("consolidate 1s x info show_first", errors.Consolidate(1, patterns.compiled("x"), "info", show_first=True)),
    ("consolidate 1s x debug", errors.Consolidate(1, patterns.compiled("x"), "debug")),
]


def test_consolidate() -> None:
    text = "\n".join(option for option, _ in RULES)
    assert configured(f"errors {{\n{text}\n}}").consolidate == tuple(rule for _, rule in RULES)


TYPE, NAME, RCODE = log.Field("type"), log.Field("name"), log.Field("rcode")
FORMATS: list[tuple[str, log.Format]] = [
    ("", ()),
    ("plain", ("plain",)),
    ("{type}", (TYPE,)),
    ("{type}{name} {rcode}!", (TYPE, NAME, " ", RCODE, "!")),
    ('{"t": "{type}", "x": {}}', ('{"t": "', TYPE, '", "x": {}}')),
    ("{Type} {unknown}{{type}} } {", ("{Type} {unknown}{", TYPE, "} } {")),
    ("{/kubernetes/client-namespace}", (log.Field("/kubernetes/client-namespace"),)),
    ("{>id}{>do}{>nonsense}", (log.Field(">id"), log.Field(">do"), "{>nonsense}")),
]


@pytest.mark.parametrize(("text", "pieces"), FORMATS)
def test_log_formats(text: str, pieces: log.Format) -> None:
    assert log.compiled(text) == pieces


LOGS: list[tuple[str, tuple[str, ...], str, set[str]]] = [
    ("log", (".",), log.COMMON, set()),
    ("log Example.Org", ("example.org.",), log.COMMON, set()),
    ("log a b {\n class denial error\n class success\n}", ("a.", "b."), log.COMMON, {"denial", "error", "success"}),
    ('log . "{type} {name}"', (".",), "{type} {name}", set()),
    ("log a b {combined}", ("a.", "b."), log.COMMON + ' "{>opcode}"', set()),
    ("log . x{common}y {\n class all\n}", (".",), f"x{log.COMMON}y", {"all"}),
]


@pytest.mark.parametrize(("stanza", "zones", "text", "classes"), LOGS)
def test_log(stanza: str, zones: tuple[str, ...], text: str, classes: set[str]) -> None:
    config = configured(stanza)
    assert (config.zones, config.format, config.classes) == (zones, log.compiled(text), classes)
    every = not classes or "all" in classes
    assert {name for name in ("success", "denial", "error") if config.includes(name)} == (
        {"success", "denial", "error"} if every else classes
    )


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_001, "(" * 5_000, "a{1001}", "((a{100}){100}){100}", "(?=a)", "(?!a)", "(?<=a)",
        "(?x)a", "(?P=n)", r"\1", r"\Z", r"\8", r"\\\C", "a**", "*a", "[b-a]", "[a", "a)", r"\pX", "[[:foo:]]",
        "(?P<n>a)(?<n>b)", "(?P<n-x>a)",
    ],
)  # fmt: skip
def test_what_go_refuses_is_no_regular_expression(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CorefileError, match="regular expression") as caught:
        configured(f"errors {{\n consolidate 1s {text}\n}}")
    assert caught.value.line == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"[[:alpha:]]+\.", "abc."), (r"\pL{3}", "abc"), ("(?i)ABC", "abc"), (r"\Qa.b\E\z", "a.b"), (r"\\C", r"a\C"),
        ("(?P<n>a)(?P<m>b)", "ab"), ("(?s)a.b", "a\nb"),
    ],
)  # fmt: skip
def test_what_go_reads_is_one(pattern: str, text: str) -> None:
    assert patterns.compiled(pattern).search(text)


def test_looking_for_one_takes_linear_time() -> None:
    assert not patterns.compiled("^(a+)+$").search("a" * 100_000 + "b")
