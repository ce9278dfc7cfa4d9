"""`kdns up` as a user meets it: real kubectl writes, real dig reads."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fake_api_certs import authority
from kdns_process import ROOT, Running, kdns_up
from wholefiles import replace
from zone_text import zone_rrsets

from kdns.cli.main import main
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import NS
from kdns.dns.zonefile import rdata_text
from kdns.dnsserver.io.interfaces import reachable

REDIS_MASTER = """
apiVersion: v1
kind: Service
metadata: {name: redis-master}
spec:
  clusterIP: 10.96.0.11
  selector: {app: redis}
  ports: [{port: 6379}]
"""
MY_SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: my-service}
spec:
  selector: {app.kubernetes.io/name: MyApp}
  ports: [{protocol: TCP, port: 80, targetPort: 9376}]
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`kdns up` on the examples, shared by tests that only read."""
    with kdns_up(tmp_path_factory.mktemp("examples"), str(ROOT / "examples")) as running:
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`kdns up` with nothing in it, shared by tests that write objects of their own."""
    with kdns_up(tmp_path_factory.mktemp("empty")) as running:
        yield running


def zone_cases() -> list[RRset]:
    """Every record of zones/*.zone."""
    return [r for path in sorted((ROOT / "zones").glob("*.zone")) for r in zone_rrsets(path.read_text())]


def test_the_zone_files_hold_what_the_examples_give(examples: Running) -> None:
    wrong = []
    for rrset in zone_cases():
        if isinstance(rrset.rdata[0], Soa) or (rrset.rtype == NS and rrset.owner != "cluster.local."):
            continue  # the reverse files stand for parts of the zones in-addr.arpa and ip6.arpa
        answers = examples.rdata(rrset.owner, str(rrset.rtype).join(("TYPE", "")))
        text = rdata_text(rrset.rtype, rrset.rdata[0])
        if text not in answers:
            wrong.append(f"{rrset.owner} {text}: {answers}")
    assert not wrong, "\n".join(wrong)


def test_the_example_of_a_corefile_answers_beside_it_by_its_own_commands(examples: Running, tmp_path: Path) -> None:
    text = (ROOT / "Corefile.example").read_text(encoding="utf-8")
    serve, dig, _ = (shlex.split(line) for line in re.findall("^# {5}(.*)$", text, re.MULTILINE))
    assert examples.dig(dig[4]), "the cluster itself answers, and dig is here"
    api = examples.wait_for(r"^api +http://(\S+)")[1]
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.1\n")
    own = {r"\.:1054": ".:0", r"localhost:\d+": "localhost:0", "127.0.0.1:8001": api, "/etc/": f"{tmp_path}/"}
    for ours, here in own.items():
        text, count = re.subn(ours, here, text)
        assert count, ours
    (tmp_path / serve[-1]).write_text(text)
    command = [sys.executable, "-m", *serve]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout
        lines = list(takewhile("ready\n".__ne__, server.stdout))
        (port,) = re.findall(r"^dns +127\.0\.0\.1:(\d+)", "".join(lines), re.MULTILINE)
        assert dig[:4] == ["dig", "@127.0.0.1", "-p", "1054"]
        asked = subprocess.run([*dig[:3], port, *dig[4:]], capture_output=True, text=True, check=True)
        server.terminate()
    assert "10.96.0.1\n" in asked.stdout, "".join(lines)


def test_a_service_lives_and_dies_with_its_names(empty: Running) -> None:
    empty.kubectl("apply", "-f", "-", stdin=REDIS_MASTER)
    empty.until(["10.96.0.11"], "redis-master.default.svc.cluster.local")
    assert empty.rdata("11.0.96.10.in-addr.arpa", "PTR") == ["redis-master.default.svc.cluster.local."]
    empty.kubectl("apply", "-f", "-", stdin=MY_SERVICE)
    address = empty.kubectl("get", "service", "my-service", "-o", "jsonpath={.spec.clusterIP}")
    empty.until([address], "my-service.default.svc.cluster.local")
    empty.kubectl("delete", "service", "redis-master", "my-service")
    empty.until([], "redis-master.default.svc.cluster.local")
    empty.until([], "my-service.default.svc.cluster.local")
    empty.until([], "11.0.96.10.in-addr.arpa", "PTR")


def test_with_tls_alone_kubectl_works_and_every_namespace_has_the_certificate(tmp_path: Path) -> None:
    own = authority("kdns")
    key = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "tls.pem").write_bytes(key + own.pem)
    with kdns_up(tmp_path, "--tls-cert", "tls.pem") as running:
        running.kubectl("create", "namespace", "shop")
        running.kubectl("wait", "--for=create", "configmap/kube-root-ca.crt", "-n", "shop", "--timeout=60s")
        for namespace in ("default", "shop"):
            published = running.kubectl("get", "cm", "kube-root-ca.crt", "-n", namespace, "-o", "jsonpath={.data}")
            assert json.loads(published) == {"ca.crt": own.pem.decode()}


def test_manifests_are_followed(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    path = manifests / "redis.yaml"
    path.write_text(REDIS_MASTER)
    sent = REDIS_MASTER.replace("redis-master", "sent").replace("0.11", "0.13")
    with kdns_up(tmp_path, str(manifests), "-", stdin=sent) as running:
        running.until(["10.96.0.11"], "redis-master.default.svc.cluster.local")
        assert running.rdata("sent.default.svc.cluster.local") == ["10.96.0.13"]
        replace(path, REDIS_MASTER.replace("redis-master", "redis").replace("0.11", "0.12"))
        running.until(["10.96.0.12"], "redis.default.svc.cluster.local")
        running.until([], "redis-master.default.svc.cluster.local")
        assert running.wait_for(r"^/.*/redis\.yaml: service/redis-master deleted$")
        assert running.wait_for(r"^/.*/redis\.yaml: service/redis created$")
        replace(path, "kind: Service\n  metadata: [\n")
        assert running.wait_for(r"redis\.yaml:\d+: ")
        assert running.rdata("redis.default.svc.cluster.local") == ["10.96.0.12"]
        path.unlink()
        running.until([], "redis.default.svc.cluster.local")
        assert running.rdata("sent.default.svc.cluster.local") == ["10.96.0.13"], "it is read once"


def addresses(running: Running, name: str) -> list[str]:
    return sorted(line.split()[-1] for line in running.dig(f"{name}.svc.cluster.local"))


def test_servers_that_run_are_services(tmp_path: Path) -> None:
    compose = tmp_path / "compose.yaml"
    compose.write_text("services: {my_db: {ports: ['${DB_PORT:-5433}:5432']}}")
    servers = ["--add", "web=127.0.0.1:8000", "--add", "shop/cart=192.0.2.5:80,192.0.2.6:80"]
    data = ["--data", str(tmp_path / "data")]
    with kdns_up(tmp_path, *servers, "--compose", str(compose), *data) as running:
        assert addresses(running, "web.default") == ["127.0.0.1"]
        assert addresses(running, "cart.shop") == ["192.0.2.5", "192.0.2.6"]
        (record,) = running.dig("_tcp-5433._tcp.my-db.default.svc.cluster.local", "SRV")
        assert " SRV 0 100 5433 " in record
    with kdns_up(tmp_path, *servers[:2], *data) as running:
        assert addresses(running, "web.default") == ["127.0.0.1"]
        assert addresses(running, "cart.shop") == []


@pytest.mark.parametrize(
    ("listening", "asked"), [("0.0.0.0", "127.0.0.1:1"), ("::", "[::1]:1"), ("192.0.2.1", "192.0.2.1:1")]
)
def test_the_kubeconfig_names_an_address_to_connect_to(listening: str, asked: str) -> None:
    assert str(reachable(listening, 1)) == asked


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--api", "0.0.0.0:0"), "--api 0.0.0.0: set --token-file or --client-ca-file and --tls-cert too"),
        (("--kubeconfig", "/proc/kdns"), "--kubeconfig /proc/kdns: cannot be written"),
        (("--tls-cert", "/no/such.pem"), "--tls-cert /no/such.pem: No such file or directory"),
        (("--tls-key", "/no/such.pem"), "set --tls-cert too"),
        (("--corefile", "/no/such/Corefile"), "/no/such/Corefile: cannot be read"),
    ],
)
def test_what_cannot_be_served_is_named(args: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", *args])
    assert done.exit_code == 2, done
    assert message in done.stderr


def test_files_that_are_open_to_all_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    (tmp_path / "tokens").write_text("s3cret\n")
    (tmp_path / "tokens").chmod(0o644)
    with kdns_up(tmp_path, "--data", "data", "--token-file", "tokens") as running:
        running.wait_for("--token-file tokens: all users of this machine may read it .mode 0644.; run chmod 600")
        running.wait_for("--data data: all users of this machine may write there .mode 0777.; run chmod 700")
        running.wait_for("--token-file without --tls-cert: kubectl sends no token over http")
