"""Explanations for whoever asks a running server."""

from __future__ import annotations

from collections.abc import Sequence

from kdns.dnsserver.blocks import Server
from kdns.errors import InputError
from kdns.explain.explain import Now, cluster_plugins
from kdns.explain.findings import Inquiry, findings
from kdns.explain.text import as_json, as_text


async def why(servers: Sequence[Server], inquiry: tuple[str, str, str], now: Now, *, is_json: bool) -> tuple[str, bool]:
    """Text, and whether the name has an answer; `inquiry` is name, type and namespace. Raises InputError."""
    if not inquiry[0]:
        raise InputError("the name is missing")
    server = next(filter(cluster_plugins, servers), servers[0])
    answer = await findings(server, Inquiry(*inquiry), now, is_brief=True)
    return as_json(answer) if is_json else as_text(answer), answer.chosen.is_answered
