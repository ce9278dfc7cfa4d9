"""The API is away for a while: what `kdns proxy` has made stays, /healthz is well, and what was missed comes then."""

import asyncio
import subprocess
from collections.abc import Iterator

import pytest
from gate import Gate
from node_process import Api, Started, fetched, start, until
from patience import surely
from world import World

SETTINGS = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: kdns
clusterCIDR: 10.1.0.0/24
clientConnection: {kubeconfig: through-the-gate}
oomScoreAdj: 0
conntrack: {maxPerCore: 0}
nftables: {minSyncPeriod: 50ms, syncPeriod: 100ms}
"""
"""With such a syncPeriod the node would be unwell soon if anything were waiting."""
AWAY = range(40)
"""How often clients come while it is away."""


@pytest.fixture(scope="module")
def api(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    assert world.names
    folder = tmp_path_factory.mktemp("cluster")
    cluster = start("up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", "--kubeconfig", "kc", folder=folder)
    cluster.wait_for("ready")
    yield Api(cluster.wait_for("api ").split()[1])
    assert cluster.stop() == 0


@pytest.fixture(scope="module")
def gate(api: Api) -> Iterator[Gate]:
    with Gate(int(api.url.rpartition(":")[2])) as made:
        yield made


@pytest.fixture(scope="module")
def node(gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("node")
    cluster = f"{{name: c, cluster: {{server: 'http://127.0.0.1:{gate.port}'}}}}"
    context = "{name: x, context: {cluster: c, user: ''}}"
    (folder / "through-the-gate").write_text(
        f"{{apiVersion: v1, kind: Config, clusters: [{cluster}], contexts: [{context}], current-context: x}}"
    )
    (folder / "config.yaml").write_text(SETTINGS)
    started = start("proxy", "--config", "config.yaml", folder=folder)
    started.wait_for("ready")
    yield started
    assert started.stop() == 0
    subprocess.run(["nft", "flush", "ruleset"], check=True)


@pytest.mark.parametrize("is_silent", [False, True])
def test_rules_stay_and_news_come_afterwards(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, gate: Gate, node: Started, is_silent: bool
) -> None:
    names = [f"{name}-{is_silent}".lower() for name in ("old", "new", "gone")]
    vips = {name: api.service(name)["spec"]["clusterIP"] for name in (names[0], names[2])}
    for name in vips:
        api.endpoints(name, "10.1.0.2")

    async def backend(name: str) -> str:
        answer = await surely(world, "10.1.1.2", vips[name], "TCP", 80)
        return answer.backend or answer.error

    async def works() -> list[str]:
        return [await backend(name) for name in (names[0], names[2])]

    loop.run_until_complete(until(["10.1.0.2", "10.1.0.2"], works))
    before = len([line for line in node.lines if "api server back" in line])
    gate.hold() if is_silent else gate.refuse()
    api.endpoints(names[0], "10.1.0.3")
    vips[names[1]] = api.service(names[1])["spec"]["clusterIP"]
    api.endpoints(names[1], "10.1.0.3")
    api.ask("DELETE", f"/api/v1/namespaces/default/services/{names[2]}")
    if not is_silent:
        node.wait_for("api server lost")
    for _ in AWAY:
        assert loop.run_until_complete(works()) == ["10.1.0.2", "10.1.0.2"]
        assert [fetched(f"http://127.0.0.1:10256/{path}")[0] for path in ("healthz", "livez")] == [200, 200]
    gate.open()

    async def is_told() -> int:
        return len([line for line in node.lines if "api server back" in line])

    if not is_silent:
        loop.run_until_complete(until(before + 1, is_told))

    async def news() -> list[str]:
        gone = await world.probe("10.1.1.2", vips[names[2]], "TCP", 80)
        return [*[await backend(name) for name in names[:2]], gone.error]

    loop.run_until_complete(until(["10.1.0.3", "10.1.0.3", "dropped"], news))
    assert node.process.poll() is None
