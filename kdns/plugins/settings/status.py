"""status [ADDRESS]: /status, what the server does and why a name has its answer, for people with a browser."""

from __future__ import annotations

from typing import Final

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.net import HostPort
from kdns.serverblocks.block_options import BlockOptions, StatusPage
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import configured, count

DEFAULT_ADDRESS: Final = HostPort("localhost", 8053)


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> StatusPage:
    """Returns the configuration of a `status` stanza; raises CorefileError."""
    count(stanza, "status [ADDRESS]")
    address = host_port(stanza.args[0]) if stanza.args else DEFAULT_ADDRESS
    return configured(StatusPage(address), stanza, {})


DIRECTIVE: Final = Directive("status", parse, sets_up=BlockOptions.with_page)
