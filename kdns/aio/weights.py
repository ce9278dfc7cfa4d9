"""The `loadbalance` directive at work: the order of addresses, and the weight file behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kdns import logs
from kdns.errors import CorefileError
from kdns.plugins.cluster_zones import ClusterZones
from kdns.plugins.loadbalance import LoadbalanceConfig, parse_weights
from kdns.wire.order import Order

log = logs.get(__name__)


class Balance:
    """One server block's `loadbalance` and the zones it puts in order.

    The constructor raises CorefileError, with the weight file's own line, for a file that cannot be used.
    Differs: CoreDNS starts without a weight file that is not there, where it is to be read again.
    """

    def __init__(self, config: LoadbalanceConfig) -> None:
        self._config = config
        self._text = self._read()
        self._zones: list[ClusterZones] = []
        self.order = self._order(self._text)

    @property
    def is_followed(self) -> bool:
        """Whether there is a file to read again."""
        return bool(self._config.weight_path and self._config.reload_s)

    def add(self, zones: ClusterZones) -> None:
        """Put these zones' addresses in order, now and whenever the weights change."""
        self._zones.append(zones)
        zones.reorder(self.order)

    async def follow(self) -> None:
        """Read the file every `reload_s` seconds and apply what changed; never returns.

        A file that became unusable is logged, once, and the weights stay as they were.
        """
        told = ""
        while True:
            await asyncio.sleep(self._config.reload_s)
            try:
                text = await asyncio.to_thread(self._read)
                order = self._order(text)
            except CorefileError as error:
                if str(error) != told:
                    log.warning("weight file not usable", error=str(error), answers="weights as before")
                told = str(error)
                continue
            told = ""
            if text != self._text:
                self._text, self.order = text, order
                for zones in self._zones:
                    zones.reorder(order)
                log.info("weight file read", path=self._config.weight_path)

    def _order(self, text: str) -> Order:
        return self._config.order(parse_weights(text, self._config.weight_path))

    def _read(self) -> str:
        path = self._config.weight_path
        if not path:
            return ""
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CorefileError(path, 0, "", f"the weight file cannot be read: {reason}") from error
