"""Deletes UDP flows of connection tracking that lead to endpoints or relays which do not serve their front any more."""

from __future__ import annotations

import asyncio
import errno
import time
from functools import partial
from typing import Final

from kdns import logs
from kdns.net import FAMILIES, Family
from kdns.netlink.io.conntrack import delete_flows, udp_flows
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.stale_flows import Fronts, is_stale, udp_fronts
from kdns.proxy.sync.io.proxier import UdpTargets
from kdns.proxy.sync.io.runner import SyncResult
from kdns.runtime.metrics import Histogram

BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(15))
RETRY_S: Final = 5.0
MAX_RETRY_S: Final = 60.0
_UNSUPPORTED: Final = frozenset({errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT, errno.EPERM})
"""Errors of a kernel without ctnetlink, and of a process without the capability."""

log = logs.get(__name__)


class ConntrackReconciler:
    """Deletes stale UDP flows after each sync; `run` works until it is cancelled.

    `targets` are those of the mode, see `RunningMode.udp_targets`; None: there are no flows to delete. By family,
    `durations` are how long listing and deleting took, and `deleted` how many flows were deleted.
    """

    def __init__(self, targets: UdpTargets | None) -> None:
        self.durations = {family: Histogram(BUCKETS_S) for family in FAMILIES}
        self.deleted = dict.fromkeys(FAMILIES, 0)
        self._targets = targets
        self._plan: Plan | None = None
        self._fronts: dict[Family, Fronts] = {family: {} for family in FAMILIES}
        self._pending = {family: asyncio.Event() for family in FAMILIES}

    def synced(self, result: SyncResult) -> None:
        """Notes the fronts whose flows may be stale now."""
        if self._targets is None:
            return
        self._plan = result.plan
        for family in FAMILIES:
            difference = result.differences[family] if result.differences else None
            fronts = udp_fronts(result.plan.of(family), difference, partial(self._targets, family))
            if fronts:
                self._fronts[family] = self._fronts[family] | fronts
                self._pending[family].set()

    def examine(self) -> None:
        """Examine all fronts, since until now rules of others may have led flows elsewhere."""
        if self._plan:
            self.synced(SyncResult(self._plan, {}, None))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for family in FAMILIES:
                tasks.create_task(self._run(family), name=f"conntrack {family}")

    async def _run(self, family: Family) -> None:
        """Reconcile one family. Retries are logged once for each reason in a row, and get slower up to MAX_RETRY_S."""
        reason, retry_s = "", RETRY_S
        while True:
            await self._pending[family].wait()
            self._pending[family].clear()
            fronts, self._fronts[family] = self._fronts[family], {}
            try:
                await self._reconcile(family, fronts)
            except OSError as error:
                self._fronts[family] = fronts | self._fronts[family]
                self._pending[family].set()
                if reason != str(error):
                    reason = str(error)
                    _log_failure(family, error, retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)
            else:
                reason, retry_s = "", RETRY_S

    async def _reconcile(self, family: Family, fronts: Fronts) -> None:
        assert self._plan  # noqa: S101 - fronts are noted with their plan
        started_s = time.monotonic()
        family_plan = self._plan.of(family)
        stale_flows = await asyncio.to_thread(udp_flows, family, lambda flow: is_stale(flow, fronts, family_plan))
        if later := self._fronts[family]:  # a sync during the listing may have led a flow to where it belongs now
            fronts, family_plan = fronts | later, self._plan.of(family)
            stale_flows = [flow for flow in stale_flows if is_stale(flow, fronts, family_plan)]
        if stale_flows:
            deleted = await asyncio.to_thread(delete_flows, family, stale_flows)
            self.deleted[family] += deleted
            log.info("stale UDP flows deleted", family=family, flows=deleted)
        self.durations[family].add(time.monotonic() - started_s)


def _log_failure(family: Family, error: OSError, retry_s: float) -> None:
    if error.errno in _UNSUPPORTED:
        log.warning(
            "stale UDP flows are not deleted",
            family=family,
            reason=f"connection tracking cannot be listed: {error.strerror}",
            expected="kernel module nf_conntrack_netlink, and the capability CAP_NET_ADMIN",
        )
    else:
        log.info("stale UDP flows not deleted yet", family=family, reason=str(error), retry_in_s=retry_s)
