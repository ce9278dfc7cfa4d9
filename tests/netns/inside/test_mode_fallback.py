"""Mode ipvs on a kernel that has no IPVS: another mode takes its place, and says so everywhere."""

import asyncio
from pathlib import Path

import pytest
from mode_walk import METRICS, SETTINGS, cleaned, cluster, rules
from node_process import fetched, start, until

from kdns.proxy.settings.settings import Settings
from kdns.proxy.takeover.io.modes import runtime


@pytest.mark.usefixtures("world")
def test_a_fallback_is_told(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    if not (reason := loop.run_until_complete(runtime("ipvs").unsupported(Settings(mode="ipvs")))):
        pytest.skip("a kernel with IPVS")
    with cluster(tmp_path) as api:
        settings = SETTINGS.format(mode="ipvs")
        (tmp_path / "config.yaml").write_text(settings)
        node = start("proxy", "--config", "config.yaml", folder=tmp_path)
        node.wait_for("ready")

        async def events() -> list[str]:
            found = api.ask("GET", "/api/v1/namespaces/default/events")["items"]
            about = [each for each in found if each["involvedObject"]["kind"] == "Node"]
            return [each["message"] for each in about if each["reason"] == "ProxyModeFallback"]

        message = f"mode iptables takes the place of mode ipvs: mode ipvs cannot work here: {reason}"
        loop.run_until_complete(until([message], events))
        assert fetched(f"{METRICS}/proxyMode")[1] == "iptables"
        assert 'kdns_proxy_mode{configured="ipvs",mode="iptables"} 1.0' in fetched(f"{METRICS}/metrics")[1]
        assert '"mode": "ipvs"' in fetched(f"{METRICS}/configz")[1]
        assert sum("fallback to another mode" in line for line in node.lines) == 1
        (tmp_path / "config.yaml").write_text(settings + "ipvs: {scheduler: xx}\n")
        assert "unknown scheduler 'xx'; expected one of rr" in node.wait_for("cannot work, settings unchanged")
        assert node.stop() == 0
    assert rules()
    assert cleaned(tmp_path)
    assert not rules()
