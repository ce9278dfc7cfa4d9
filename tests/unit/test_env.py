"""Service variables: names, selection, formats and the warning, as tables."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kdns import env
from kdns.cluster.objects import Service, ServiceMeta, ServicePort, ServiceSpec


def service(name: str, cluster_ip: str, *ports: ServicePort, namespace: str = "default") -> Service:
    return Service(ServiceMeta(name, namespace), ServiceSpec(cluster_ip=cluster_ip, ports=ports))


REDIS = service("redis-master", "10.96.0.11", ServicePort(6379))
REDIS_VARIABLES = {
    "REDIS_MASTER_SERVICE_HOST": "10.96.0.11",
    "REDIS_MASTER_SERVICE_PORT": "6379",
    "REDIS_MASTER_PORT": "tcp://10.96.0.11:6379",
    "REDIS_MASTER_PORT_6379_TCP": "tcp://10.96.0.11:6379",
    "REDIS_MASTER_PORT_6379_TCP_PROTO": "tcp",
    "REDIS_MASTER_PORT_6379_TCP_PORT": "6379",
    "REDIS_MASTER_PORT_6379_TCP_ADDR": "10.96.0.11",
}
MASTER = service("kubernetes", "10.96.0.1", ServicePort(443, "https"))
OWN_MASTER = service("kubernetes", "10.96.0.9", ServicePort(6443), namespace="shop")
SHOP = service("cart", "10.96.0.20", ServicePort(80), namespace="shop")


def test_redis_master_gives_the_seven_documented_variables_in_order() -> None:
    assert list(env.service_variables([REDIS], "default").items()) == list(REDIS_VARIABLES.items())


@pytest.mark.parametrize(
    ("services", "namespace", "links", "hosts"),
    [
        ([MASTER, REDIS, SHOP], "default", True, {"KUBERNETES": "10.96.0.1", "REDIS_MASTER": "10.96.0.11"}),
        ([MASTER, REDIS, SHOP], "default", False, {"KUBERNETES": "10.96.0.1"}),
        ([MASTER, REDIS, SHOP], "shop", True, {"KUBERNETES": "10.96.0.1", "CART": "10.96.0.20"}),
        ([MASTER, OWN_MASTER], "shop", True, {"KUBERNETES": "10.96.0.9"}),
        ([OWN_MASTER, MASTER], "shop", True, {"KUBERNETES": "10.96.0.9"}),
        ([MASTER, OWN_MASTER], "shop", False, {"KUBERNETES": "10.96.0.1"}),
        ([OWN_MASTER], "default", True, {}),
        ([service("a", "None", ServicePort(1)), service("b", "")], "default", True, {}),
        (
            [Service(ServiceMeta("x", "default"), ServiceSpec(type="ExternalName", external_name="a.b"))],
            "default",
            True,
            {},
        ),
        ([service("bare", "10.96.0.30")], "default", True, {"BARE": "10.96.0.30"}),
    ],
)
def test_selection(services: list[Service], namespace: str, links: bool, hosts: dict[str, str]) -> None:
    variables = env.service_variables(services, namespace, enable_service_links=links)
    suffix = "_SERVICE_HOST"
    assert {name.removesuffix(suffix): value for name, value in variables.items() if name.endswith(suffix)} == hosts


def test_ports_that_meet_in_one_name_leave_the_last() -> None:
    two = service("web", "10.96.0.5", ServicePort(80, "a-b"), ServicePort(81, "a_b"))
    assert env.service_variables([two], "default")["WEB_SERVICE_PORT_A_B"] == "81"


@pytest.mark.parametrize(
    ("links", "synced", "static", "says"),
    [(None, True, False, "enableServiceLinks"), (True, False, False, "have not been listed")],
)
def test_a_pod_whose_variables_cannot_be_known(links: bool | None, synced: bool, static: bool, says: str) -> None:
    with pytest.raises(env.EnvError, match=says):
        env.pod_service_variables(
            [REDIS], "default", enable_service_links=links, services_synced=synced, static_pod=static
        )


def test_a_static_pod_does_not_wait_and_a_node_without_api_has_none() -> None:
    known = env.pod_service_variables(
        [REDIS], "default", enable_service_links=True, services_synced=False, static_pod=True
    )
    assert known == REDIS_VARIABLES
    assert env.pod_service_variables(None, "default", enable_service_links=True, services_synced=True) == {}


def test_formats_of_redis_master() -> None:
    assert env.as_sh(REDIS_VARIABLES).splitlines()[2] == "export REDIS_MASTER_PORT=tcp://10.96.0.11:6379"
    assert env.as_docker(REDIS_VARIABLES).splitlines()[0] == "REDIS_MASTER_SERVICE_HOST=10.96.0.11"
    assert json.loads(env.as_json(REDIS_VARIABLES)) == REDIS_VARIABLES
    assert json.loads(env.as_cri(REDIS_VARIABLES)) == {
        "envs": [{"key": name, "value": value} for name, value in REDIS_VARIABLES.items()]
    }
    assert env.as_fish({"A": "it's\\"}) == "set -gx A 'it\\'s\\\\'\n"
    assert env.as_powershell({"A": "it's $x \u2019"}) == "${env:A} = 'it''s $x \u2019\u2019'\n"
    assert env.as_yaml({}) == "env: []\n"
    assert set(env.FORMATS) == {"sh", "docker", "json", "cri", "yaml", "fish", "powershell"}


@pytest.mark.parametrize("write", [env.as_fish, env.as_powershell])
def test_a_name_that_a_shell_does_not_take_is_refused(write: Callable[[dict[str, str]], str]) -> None:
    with pytest.raises(env.FormatError, match="A-B"):
        write({"A-B": "x"})


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=30), max_size=8))
def test_yaml_reads_back_exactly_the_variables(variables: dict[str, str]) -> None:
    entries = yaml.safe_load(env.as_yaml(variables))["env"]
    assert {entry["name"]: entry["value"].replace("$$", "$") for entry in entries} == variables


def test_a_name_no_shell_takes_becomes_a_comment() -> None:
    text = env.as_sh(env.service_variables([service("1st", "10.96.0.6", ServicePort(80))], "default"))
    assert all(line.startswith("# no shell variable: 1ST_") for line in text.splitlines())


@pytest.mark.parametrize(
    "variables", [{"A": "one\ntwo"}, {"A": "x\r"}, {"A=B": "x"}, {"#A": "x"}, {"A B": "x"}, {"": "x"}, {"A": "\0"}]
)
def test_what_an_env_file_cannot_say_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(env.FormatError):
        env.as_docker(variables)


@given(
    st.dictionaries(
        st.from_regex(r"KDNS_[A-Z0-9_]{1,12}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
        max_size=8,
    )
)
@pytest.mark.parametrize(("name", "write"), [("sh", env.as_sh), ("fish", env.as_fish), ("pwsh", env.as_powershell)])
def test_a_shell_reads_back_exactly_the_variables(
    name: str, write: Callable[[dict[str, str]], str], variables: dict[str, str]
) -> None:
    shell = shutil.which(name)
    if not shell:
        pytest.skip(f"{name} is not here")
    printed = subprocess.run(
        [shell, "-c", f"{write(variables)}\nenv -0"],
        env={"PATH": os.environ["PATH"], "HOME": os.devnull},
        capture_output=True,
        check=True,
        timeout=90,
    ).stdout.decode()
    pairs = dict(entry.split("=", 1) for entry in printed.split("\0") if entry.startswith("KDNS_"))
    assert pairs == variables


@pytest.mark.parametrize(
    ("count", "warns"), [(1, False), (env.MANY_VARIABLES // 7, False), (env.MANY_VARIABLES // 7 + 1, True)]
)
def test_many_services_are_warned_about(count: int, warns: bool) -> None:
    variables = env.service_variables([service(f"s{i}", "10.96.0.1", ServicePort(80)) for i in range(count)], "default")
    assert bool(env.size_warning(variables)) is warns


def test_few_but_long_variables_are_warned_about_with_their_size() -> None:
    warning = env.size_warning({"A": "x" * env.MANY_BYTES})
    assert "1024 KiB of the 2048 KiB" in warning
    assert "enableServiceLinks: false" in warning
    assert env.environment_bytes({"A": "xyz"}) == len("A=xyz\0") + 8
