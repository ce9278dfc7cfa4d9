"""Names of links that carry addresses of Services."""

from __future__ import annotations

from typing import Final

VIRTUAL_LINK: Final = "kube-ipvs0"
"""The link whose addresses are the virtual IPs of mode ipvs; they do not count as the node's own."""
NODE_LOCAL_LINK: Final = "nodelocaldns"
"""The default link of a node-local cache, of kdns and of NodeLocal DNSCache. It has a cluster IP."""
