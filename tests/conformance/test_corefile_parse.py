"""Every recorded stanza of a directive that kdns has is accepted or refused as CoreDNS does, and understood alike."""

import re
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

import forward_columns
import pytest
import zone_columns
from configured import configured
from dns_chain import only
from recorded_cases import recorded

from kdns.cluster import selectors
from kdns.errors import CorefileError
from kdns.plugins.changes import autopath, bufsize, loadbalance, nsid
from kdns.plugins.changes.cache.config import CacheConfig, StaleConfig
from kdns.plugins.changes.dnssec import plugin as dnssec
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY
from kdns.plugins.observers import metadata
from kdns.plugins.settings import SETTINGS
from kdns.plugins.sources import chaos, k8s_external
from kdns.plugins.sources.forward import plugin as forward
from kdns.plugins.sources.hosts import Entry, HostsConfig
from kdns.plugins.sources.kubernetes import plugin as kubernetes
from kdns.plugins.sources.kubernetes.config import KubernetesConfig
from kdns.serverblocks.config import ServerConfig

NAMES = {"metrics": "prometheus", None: "server address"}

LISTENER = "the case is about SCHEME://IP:PORT of a listener; the same text as a server block's key reads otherwise"

KNOWN: dict[str, str] = {
    "plugin/dnssec/setup_test.go:57": "whose a key is stands in its file, which is read at the start",
    "plugin/autopath/setup_test.go:34": "a file that cannot be read is an error of the start, not of the parser",
    "plugin/health/setup_test.go:21": "a port that is no number is refused at once; CoreDNS finds out when it listens",
    "plugin/kubernetes/setup_test.go:621": "words behind `ignore empty_service` are refused; CoreDNS drops them",
    "plugin/root/root_test.go:54": "whether the folder can be read shows when a file in it is",
    "plugin/cache/setup_test.go:24": "`{}` is no empty block; CoreDNS takes it for a zone",
    "plugin/template/setup_test.go:103": "`(?P<x>` is no zone; CoreDNS takes any word for one",
    "core/dnsserver/address_test.go:15": LISTENER,
    "core/dnsserver/address_test.go:19": LISTENER,
}
"""Source of the case → why kdns differs."""
EXPRESSIONS: dict[str, str] = {
    **forward_columns.EXPRESSIONS,
    "plugin/autopath/setup_test.go:32": "autopath resolv.conf",
    "plugin/tls/tls_test.go:29": "tls test_cert.pem test_key.pem test_ca.pem {\nkeylog /tmp/tls.log\n}",
    "plugin/root/root_test.go:44": "root no-such-folder",
    "plugin/root/root_test.go:47": "root .",
    "plugin/root/root_test.go:54": "root /inaccessible",
    "plugin/root/root_test.go:57": "root {\n.\n}",
}
"""Source of a case whose input is a Go expression → what it comes to."""
VERDICTS = ("passed", "known deviation", "failed")


def servers(case: dict[str, Any]) -> tuple[ServerConfig, ...]:
    stanza = case["input"]
    if case.get("plugin") == "cache" and not stanza.startswith("cache"):  # options alone
        stanza = f"cache {{\n{stanza}\n}}"
    text = f'"{stanza}" {{\n}}\n' if "plugin" not in case else f".:1053 {{\n{stanza}\n}}\n"  # pages may be at port 53
    return configured(text)


def fallthrough_zones(expected: str) -> tuple[str, ...]:
    named = {"fall.Zero": (), "fall.Root": (".",)}
    return named.get(expected, tuple(expected.split('"')[1::2]))


def strings(expected: str) -> tuple[str, ...]:
    """The strings of a Go slice."""
    return tuple(expected.split('"')[1::2])


def same_selector(found: str, expected: str) -> bool:
    def conditions(text: str) -> set[tuple[str, str, frozenset[str]]]:
        return {
            (requirement.key, requirement.operator, frozenset(requirement.values))
            for requirement in selectors.parse(text).requirements
        }

    return conditions(found) == conditions(expected)


def startup_timeout(expected: str) -> float:
    return {"defaultStartupTimeout": 5.0, "time.Second * 1": 1.0}[expected]


POD_MODES = {"podModeDisabled": "disabled", "podModeInsecure": "insecure", "podModeVerified": "verified"}

KUBERNETES: dict[str, Callable[[KubernetesConfig, str], bool]] = {
    "expectedZoneCount": lambda config, text: len(config.options.zones) == int(text),
    "expectedNSCount": lambda config, text: len(config.options.namespaces or ()) == int(text),
    "expectedPodMode": lambda config, text: config.options.pods == POD_MODES[text],
    "expectedFallthrough": lambda config, text: config.fallthrough == fallthrough_zones(text),
    "expectedStartupTimeout": lambda config, text: config.startup_timeout_s == startup_timeout(text),
    "expectedLabelSelector": lambda config, text: same_selector(config.labels, text),
    "expectedNamespaceLabelSelector": lambda config, text: same_selector(config.namespace_labels, text),
    "expectedEndpointMode": lambda config, text: config.options.endpoint_pod_names == (text == "true"),
    "expectedQPS": lambda config, text: config.source.qps == float(text),
    "expectedBurst": lambda config, text: config.source.burst == int(text),
    "expectedMaxInf": lambda config, text: config.source.max_inflight == int(text),
    "expectedTTL": lambda config, text: config.options.ttl_s == (5 if text == "defaultTTL" else int(text)),
    "expectedZonal": lambda config, text: config.options.zonal == (text == "true"),
    "expectedMulticlusterZones": lambda config, text: config.options.multicluster == frozenset(strings(text)),
}
ENDPOINTS_COLUMN: dict[str, Callable[[KubernetesConfig, str], bool]] = {
    "TestKubernetesParseNoEndpoints": lambda config, text: config.options.endpoints == (text == "true"),
    "TestKubernetesParseIgnoreEmptyService": lambda config, text: (
        config.options.ignore_empty_service == (text == "true")
    ),
}
"""One column's name serves two tests."""


def number(pointer: str | None, default: int) -> int:
    """`intPtr(100)` is 100, no pointer the default."""
    return default if pointer in {None, "nil"} else int(re.findall(r"\d+", str(pointer))[0])


SOCKETS = {"runtime.GOMAXPROCS(0)": inf, "1": 1, "2": 2, "1024": 1024}
TCP_QUERIES = {"nil": 0, "&n128": 128, "&nUnlimited": inf}


def chaos_texts(server: ServerConfig, expected: dict[str, str]) -> bool:
    config = only(server, chaos.DIRECTIVE)
    authors = (expected["expectedAuthor"],) if expected["expectedAuthor"] else chaos.DEFAULT_AUTHORS
    return (config.version, config.authors) == (expected["expectedVersion"], authors)


def external_as(config: k8s_external.ExternalConfig, expected: dict[str, str]) -> bool:
    return (
        config.zones == (expected["expectedZone"] or ".",)
        and config.apex == expected["expectedApex"]
        and config.headless == (expected["expectedHeadless"] == "true")
        and config.fallthrough == fallthrough_zones(expected["expectedFallthrough"])
    )


CHECKS: dict[str, Callable[[ServerConfig, dict[str, str]], bool]] = {
    "chaos": chaos_texts,
    "nsid": lambda server, expected: (
        only(server, nsid.DIRECTIVE) == expected["expectedData"].replace("defaultNsid", "")
    ),
    "autopath": lambda server, expected: (
        only(server, autopath.DIRECTIVE).zones == (expected["expectedZone"] or ".",)
        and (only(server, autopath.DIRECTIVE).path == "") == (expected["expectedMw"] == "kubernetes")
    ),
    "dnssec": lambda server, expected: (
        only(server, dnssec.DIRECTIVE).zones == (strings(expected["expectedZones"]) or server.zones)
        and str(only(server, dnssec.DIRECTIVE).capacity) == expected["expectedCapacity"].replace("defaultCap", "10000")
    ),
    "k8s_external": lambda server, expected: external_as(only(server, k8s_external.DIRECTIVE), expected),
    "metadata": lambda server, expected: (
        only(server, metadata.DIRECTIVE) == (strings(expected["zones"]) or server.zones)
    ),
    "multisocket": lambda server, expected: (
        only(server, SETTINGS["multisocket"]).processes == SOCKETS[expected["expectedNumSockets"]]
    ),
    "timeouts": lambda server, expected: (
        only(server, SETTINGS["timeouts"]).max_queries == TCP_QUERIES[expected["expectedMaxTCPQueries"]]
    ),
    "https": lambda server, expected: (
        only(server, SETTINGS["https"]).https_connections
        == (number(expected.get("expectedMaxConnections"), 200) or inf)
    ),
    "quic": lambda server, expected: (
        only(server, SETTINGS["quic"]).quic_streams == number(expected["expectedMaxStreams"], 256)
        and only(server, SETTINGS["quic"]).quic_pending == number(expected["expectedWorkerPoolSize"], 1024)
    ),
    "tls": lambda server, _: len(server.directives) == 1,
    "pprof": lambda server, _: len(server.directives) == 1,
    "root": lambda server, _: len(server.directives) == 1,
}
"""By directive: whether it was understood as recorded."""
GO_TTLS = {"maxTTL": 3600, "maxNTTL": 1800, "minTTL": 5, "minNTTL": 5, "0": 0, "time.Minute": 60}
GO_UNITS = {"time.Millisecond": 0.001, "time.Second": 1, "time.Minute": 60, "time.Hour": 3600}


def go_seconds(text: str) -> float:
    """A duration of Go's source, such as `80 * time.Minute`."""
    if text.startswith("time.Duration(^uint32(0))"):
        return (1 << 32) - 1
    number, times, unit = text.partition(" * ")
    return int(number) * GO_UNITS[unit] if times else GO_TTLS[text]


def stale_of(config: CacheConfig) -> StaleConfig:
    return config.stale or StaleConfig(0.0)


CACHE: dict[str, Callable[[CacheConfig, str], bool]] = {
    "expectedPcap": lambda config, text: config.success.capacity == (9984 if text == "defaultCap" else int(text)),
    "expectedNcap": lambda config, text: config.denial.capacity == (9984 if text == "defaultCap" else int(text)),
    "expectedPttl": lambda config, text: config.success.max_ttl_s == go_seconds(text),
    "expectedNttl": lambda config, text: config.denial.max_ttl_s == go_seconds(text),
    "expectedMinPttl": lambda config, text: config.success.min_ttl_s == go_seconds(text),
    "expectedMinNttl": lambda config, text: config.denial.min_ttl_s == go_seconds(text),
    "expectedPrefetch": lambda config, text: (config.prefetch.amount if config.prefetch else 0) == int(text),
    "failttl": lambda config, text: config.failure_ttl_s == go_seconds(text),
    "staleUpTo": lambda config, text: stale_of(config).max_age_s == go_seconds(text),
    "staleTTL": lambda config, text: stale_of(config).ttl_s == go_seconds(text),
    "verifyStale": lambda config, text: stale_of(config).verify == (text == "true"),
    "verifyStaleTimeout": lambda config, text: stale_of(config).timeout_s == go_seconds(text),
    "wantRecheck": lambda config, text: stale_of(config).recheck_s == go_seconds(text),
    "preferPositive": lambda config, text: config.prefer_positive == (text == "true"),
    "pexcept": lambda config, text: config.disabled_success == strings(text),
    "nexcept": lambda config, text: config.disabled_denial == strings(text),
}
HOSTS: dict[str, Callable[[HostsConfig, str], bool]] = {
    "expectedPath": lambda config, text: config.path == text,
    "expectedOrigins": lambda config, text: config.zones == (strings(text) or (".",)),
    "expectedFallthrough": lambda config, text: config.fallthrough == fallthrough_zones(text),
    "expectedaddr": lambda config, _text: [*config.inline] == [Entry(b"\n\x00\x00\x01", ("example.org.",))],
    "name": lambda _config, _text: True,
}


def columns(checks: dict[str, Callable[[Any, str], bool]], name: str) -> Callable[[ServerConfig, dict[str, str]], bool]:
    """Whether each column agrees with the one configuration of a directive."""
    return lambda server, expected: all(
        checks[key](only(server, BY_NAME[name]), text) for key, text in expected.items()
    )


CHECKS["cache"] = columns(CACHE, "cache")
CHECKS["hosts"] = columns(HOSTS, "hosts")


def understood(case: dict[str, Any], server: ServerConfig) -> bool:
    """Whether every column the case expects agrees with what kdns read."""
    expected: dict[str, str] = {key: text for key, text in (case.get("expect") or {}).items() if "Err" not in key}
    if check := CHECKS.get(case.get("plugin", "")):
        return check(server, expected)
    match case.get("plugin"):
        case "kubernetes":
            checks = {**KUBERNETES, "expectedEndpointsInit": ENDPOINTS_COLUMN.get(case["test"], lambda *_: False)}
            return all(checks[key](only(server, kubernetes.DIRECTIVE), text) for key, text in expected.items())
        case "metrics":
            return str(only(server, SETTINGS["prometheus"]).address) == expected["addr"]
        case "ready":
            continuously = {"monitorTypeUntilReady": False, "monitorTypeContinuously": True}
            found = (str(only(server, SETTINGS["ready"]).address), only(server, SETTINGS["ready"]).continuously)
            return found == (expected["expectedAddr"], continuously[expected["expectedMonitorType"]])
        case "loadbalance":
            return only(server, loadbalance.DIRECTIVE).policy == (
                "weighted" if "weighted" in case["input"] else "round_robin"
            )
        case "bufsize":
            return bool(only(server, bufsize.DIRECTIVE) == int(expected["expectedData"]))
        case "forward":
            return forward_columns.understood(case["test"], expected, server.configs(forward.DIRECTIVE)[0])
        case "acl" | "debug" | "header" | "health" | "rewrite" | "template" | "view":
            return len(server.configs(BY_NAME[case["plugin"]])) > 0
        case _:
            address = server.addresses[0]
            zone = f"{expected['ip']}." if expected["ip"] else "."
            return (address.scheme, address.zone, str(address.port)) == (expected["proto"], zone, expected["port"])


def written_out(case: dict[str, Any]) -> dict[str, Any]:
    """The case with what its Go expression comes to as its input; deviations are those whose outcome is no parser's."""
    if "input" in case:
        return case
    if case["plugin"] in zone_columns.DIRECTIVES:
        return case | {"input": zone_columns.go_text(case["input_src"])}
    assert case["source"] in EXPRESSIONS, f"{case['source']}: a Go expression needs an entry in EXPRESSIONS"
    return case | {"input": EXPRESSIONS[case["source"]]}


def outcome(case: dict[str, Any]) -> str:
    """passed, or what went wrong."""
    try:
        found = servers(case)
        for config in found[0].configs(forward.DIRECTIVE):
            forward_columns.upstreams(config)
    except CorefileError as error:
        return "passed" if case["should_err"] else f"refused: {error}"
    if case["should_err"]:
        return "accepted"
    check = zone_columns.understood if case.get("plugin") in zone_columns.DIRECTIVES else understood
    return "passed" if check(case, found[0]) else f"understood otherwise: {found[0]}"


def test_stanzas_of_our_directives() -> None:
    counts: dict[str, Counter[str]] = {}
    failures, deviations = [], set()
    for case in recorded("corefile-parse-cases.json")["cases"]:
        plugin = case.get("plugin")
        name = str(NAMES.get(plugin, plugin))
        if name not in {*BY_NAME, "server address"}:
            continue
        verdict = outcome(written_out(case))
        if verdict != "passed" and case["source"] in KNOWN:
            deviations.add(case["source"])
            verdict = "known deviation"
        elif verdict != "passed":
            failures.append(f"{case['source']}: {written_out(case)['input']!r}: {verdict}")
            verdict = "failed"
        counts.setdefault(name, Counter())[verdict] += 1
    print("corefile-parse-cases.json, directives that kdns has:")
    for name, count in (*sorted(counts.items()), ("in all", sum(counts.values(), Counter()))):
        print(f"  {name:15}", ", ".join(f"{count[verdict]:3} {verdict}" for verdict in VERDICTS))
    assert not failures, "\n".join(failures)
    assert deviations == set(KNOWN), "a deviation that is none any more"


def test_stanzas_of_other_directives_are_refused_by_name() -> None:
    refused = 0
    for case in recorded("corefile-parse-cases.json")["cases"]:
        words = case.get("input", "").split()
        if not words or words[0] not in COREDNS_ONLY:
            continue
        with pytest.raises(CorefileError) as caught:
            servers(case)
        assert caught.value.token == ("{}" if "{}" in words else words[0])
        refused += 1
    print("corefile-parse-cases.json, other directives, refused by name:", refused)
    assert refused
