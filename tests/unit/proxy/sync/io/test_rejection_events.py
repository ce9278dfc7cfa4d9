"""Events about Services that a node's rules are without."""

from dataclasses import replace

from structlog.testing import capture_logs

from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.node.io.events import (
    LEFT_OUT,
    MAX_LEFT_OUT,
    QUIET_S,
    REFUSED,
    SERVICE_EVENTS,
    EventRecorder,
)
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import NOT_SUPPORTED, SHADOWS
from kdns.proxy.plan.planner import plan
from kdns.proxy.sync.io.runner import SyncResult


class Noted(EventRecorder):
    """Events that are noted in place of being written."""

    def __init__(self) -> None:
        super().__init__(Source(endpoint="http://127.0.0.1:1"), "here")
        self.told: list[tuple[str, ...]] = []

    def warn(self, namespace: str, service: str, reason: str, message: str) -> None:
        self.told.append((namespace, service, reason, message))


SYNCED = SyncResult(plan(State(), NodeView("here"), ProxyConfig(NFTABLES)), {}, {})


def test_each_refusal_is_told_and_of_many_the_first() -> None:
    events = Noted()
    events.rejected({("shop", "web"): "no such protocol"})
    assert events.told == [("shop", "web", LEFT_OUT, "the kernel refuses its rules: no such protocol")]
    events.rejected({("shop", f"s{number}"): "all" for number in range(1000)})
    assert [each[1] for each in events.told[1:]] == [f"s{number}" for number in range(MAX_LEFT_OUT)]


def test_an_address_that_a_service_does_not_get_is_told() -> None:
    events = Noted()
    refused = {(("shop", "web"), "external IP 192.0.2.1:22/TCP"): "it is ssh of this node"}
    events.synced(replace(SYNCED, refused=refused))
    message = "this node does not serve external IP 192.0.2.1:22/TCP for it: it is ssh of this node"
    assert events.told == [("shop", "web", REFUSED, message)]


def test_what_the_mode_does_not_do_for_a_service_is_told() -> None:
    events = Noted()
    events.synced(replace(SYNCED, limits={(("shop", "web"), "every client is served"): NOT_SUPPORTED}))
    assert events.told == [("shop", "web", NOT_SUPPORTED, "every client is served")]
    events.synced(replace(SYNCED, limits={(("shop", f"s{number}"), "all"): SHADOWS for number in range(1000)}))
    assert len(events.told) == 1 + MAX_LEFT_OUT


def test_a_service_that_is_warned_of_again_and_again_is_so_for_a_while() -> None:
    seconds = [1000.0]
    events = EventRecorder(Source(endpoint="http://127.0.0.1:1"), "here", wall_s=lambda: seconds[0])

    def warnings(service: str) -> int:
        with capture_logs() as lines:
            for number in range(200):
                events.warn("shop", service, REFUSED, f"address {number}")
        return len([line for line in lines if line["event"] == "event"])

    assert [warnings("web"), warnings("web"), warnings("other")] == [SERVICE_EVENTS, 0, SERVICE_EVENTS]
    seconds[0] += QUIET_S + 1
    assert warnings("web") == SERVICE_EVENTS
