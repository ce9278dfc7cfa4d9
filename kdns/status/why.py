"""Explanations for whoever asks a running server, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from kdns.dnsserver.blocks import Server
from kdns.errors import InputError
from kdns.explain.explain import Now
from kdns.explain.findings import Inquiry, findings
from kdns.explain.text import as_json, as_text
from kdns.plugins.sources.kubernetes.plugin import Kubernetes


class Why(NamedTuple):
    """An explanation, and whether the name has an answer."""

    text: str
    json: str
    is_answered: bool


async def why(servers: Iterable[Server], name: str, qtype: str, namespace: str, now: tuple[float, float]) -> Why:
    """By the first server with `kubernetes`; raises InputError as `findings` does, and for an empty name."""
    if not name:
        raise InputError("the name is missing")
    for server in servers:
        if any(isinstance(plugin, Kubernetes) for block in server.blocks for plugin in block.chain.plugins):
            found = await findings(server, Inquiry(name, qtype, namespace), Now(*now), is_brief=True)
            data = as_json(found.tried, found.chosen, found.remark)
            text = as_text(found.tried, found.chosen, found.remark)
            return Why(text, json.dumps(data, indent=2, ensure_ascii=False), found.chosen.is_answered)
    raise InputError("no `kubernetes` in the Corefile: there is nothing of the cluster to explain")
