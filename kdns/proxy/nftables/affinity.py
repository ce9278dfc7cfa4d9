"""Session affinity: one map of clients for all Service ports, and rules that any number of Service ports share.

The map's key is a client with the number of a Service port, its data an endpoint ID. Rules have one field of the
packet for what they look up, so an ID has both numbers: the Service port's in the upper 16 bits, the endpoint's in the
lower ones.
Clients whose endpoint is gone are not searched for: the next packet of such a client deletes its element.
"""

from __future__ import annotations

from functools import lru_cache

from kdns.net import Family
from kdns.proxy.nftables.objects import NFT_FAMILY, Chain, expression
from kdns.proxy.nftables.sets import CLIENT_OF_PORT, CLIENTS, EndpointMaps


@lru_cache(maxsize=4096)
def affinity_chain(maps: EndpointMaps, count: int, affinity_s: int, family: Family) -> Chain:
    """Returns the chain for fronts with so many endpoints and this affinity.

    A client goes to its last endpoint; one that is new, or whose endpoint is gone, goes to any.
    The first endpoint's ID tells the number of the Service port.
    A client whose endpoint is gone has to be deleted before it gets another, since an update does not overwrite.
    An endpoint may go between draw and look-up: then the list's first is taken.
    Where the map of clients is full, the update ends its rule, and the next one sends the client to what was drawn.
    """
    key, client, ip = expression(maps.key, family), expression(CLIENT_OF_PORT, family), NFT_FAMILY[family]
    remember = f"update @{CLIENTS.name} {{ {client} timeout {affinity_s}s : meta priority }}"
    send = f"dnat {ip} addr . port to {key} . meta priority map @{maps.by_id.name}"
    draw_any, draw_first = (
        f"meta priority set {key} . numgen random mod {number} map @{maps.ids.name}" for number in (count, 1)
    )
    rules = (
        draw_first,
        f"meta priority set {client} map @{CLIENTS.name} {remember} {send}",
        f"delete @{CLIENTS.name} {{ {client} : meta priority }}",
        f"{draw_any} {remember}",
        send,
        draw_first,
        send,
    )
    return Chain(f"{maps.ids.name}-{count}-{affinity_s}s", rules)
