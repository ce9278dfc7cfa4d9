"""How many processes a server has; most have one, which needs no more of this room."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import inf

from kdns import logs
from kdns.runtime.process import processors
from kdns.serverblocks.config import ServerConfig

log = logs.get(__name__)


def number_of_processes(configs: Iterable[ServerConfig], default: int) -> int:
    configured = max((config.options.processes or default for config in configs), default=default)
    most = processors() if sys.platform == "linux" else 1
    if most < configured < inf:
        log.warning("fewer processes than configured", configured=configured, processors=most)
    return int(min(configured, most))
