"""The columns of forward's stanzas in corefile-parse-cases.json."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address

from scripted_upstream import ForwardSetup

from kdns.net import join_host_port
from kdns.plugins.sources.forward import plugin as forward
from kdns.plugins.sources.forward.config import ForwardConfig
from kdns.plugins.sources.forward.targets import Target

EXPRESSIONS: dict[str, str] = {
    "plugin/forward/setup_test.go:315": "forward . resolv",
    "plugin/forward/setup_test.go:317": "forward . nullResolv",
    "plugin/forward/setup_test.go:319": "forward . resolvIPV6",
    "plugin/forward/setup_test.go:321": "forward . emptyResolv 127.0.0.1",
}
"""Source of a case whose input is a Go expression → what it comes to."""
UPSTREAM_FILES: dict[str, str] = {
    "resolv": "nameserver 10.10.255.252\nnameserver 10.10.255.253",
    "nullResolv": "# nameserver 10.10.255.252",
    "resolvIPV6": "nameserver 0388:d254:7aec:6892:9f7f:e93b:5806:1b0f",
    "emptyResolv": "",
}


def number(text: str) -> float:
    """A number or time of the forward tests."""
    if text == "defaultReadTimeout":
        return 2.0
    count, _, unit = text.partition(" * time.")
    return float(count) * {"": 1.0, "Second": 1.0, "Millisecond": 0.001}[unit]


def options_text(config: ForwardConfig) -> set[str]:
    """The options as the forward tests write them."""
    check = config.health_check
    flags = {
        "ForceTCP": config.force_tcp,
        "PreferUDP": config.prefer_udp,
        "HCRecursionDesired": check.recursion_desired,
    }
    return {f"{name}: true" for name, is_set in flags.items() if is_set} | {f'HCDomain: "{check.domain}"'}


VALUES: dict[str, Callable[[ForwardConfig], float]] = {
    "TestSetupMaxConcurrent": lambda config: config.max_concurrent,
    "TestSetupMaxConnectAttempts": lambda config: config.max_connect_attempts or 0,
    "TestSetupMaxIdleConns": lambda config: config.max_idle or 0,
    "TestSetupMaxAge": lambda config: config.max_age_s or 0,
    "TestSetupReadTimeout": lambda config: config.read_timeout_s,
}
COLUMNS: dict[str, Callable[[ForwardConfig, str], bool]] = {
    "expectedFails": lambda config, text: config.max_fails == int(text),
    "expectedFrom": lambda config, text: config.zones[0] == text,
    "expectedIgnored": lambda config, _text: config.excluded in {(), ("miek.nl.",)},
    "expectedOpts": lambda config, text: options_text(config) == set(text[len("proxy.Options{") : -1].split(", ")),
    "expectedServerName": lambda config, text: server_name(config) == text,
    "expectedSet": lambda config, text: (config.max_connect_attempts is not None) == (text == "true"),
    "expectedDomain": lambda config, text: config.health_check.domain == text,
    "expectedRecVal": lambda config, text: config.health_check.recursion_desired == (text == "true"),
    "expectedPolicy": lambda config, text: config.policy == text,
    "expectedNames": lambda config, text: [canonical(name) for name in text.split('"')[1::2]] == upstreams(config),
    "resolverLen": lambda config, text: len(config.resolvers) == int(text),
    "name": lambda _config, _text: True,
}


def server_name(config: ForwardConfig) -> str:
    (target, *_) = config.targets
    assert isinstance(target, Target)
    return config.spec(target).tls.server_name


def canonical(address: str) -> str:
    host, _, port = address.rpartition(":")
    return join_host_port(str(ip_address(host.strip("[]"))), int(port))


def upstreams(config: ForwardConfig) -> list[str]:
    """The addresses of a stanza's upstreams; CorefileError where files have none."""
    plugin = forward.Forward((config,), ForwardSetup(files=UPSTREAM_FILES))
    return [str(member.upstream.spec.address) for member in plugin.forwarders[0].group.members]


def understood(test: str, expected: Mapping[str, str], config: ForwardConfig) -> bool:
    """Whether the columns of a case agree with what kdns read."""
    columns = {key: text for key, text in expected.items() if key != "expectedVal"}
    value = expected.get("expectedVal")
    is_same = value is None or VALUES[test](config) == number(value)
    return is_same and all(COLUMNS[key](config, text) for key, text in columns.items())
