"""The Corefiles that clusters begin with load unchanged, and answer names of the cluster and of others."""

from collections.abc import Sequence
from fnmatch import fnmatch

import pytest
from cluster_objects import service, state_of
from dns_chain import ask, server_of_blocks
from scripted_upstream import ForwardSetup, says

from kdns.corefile.parse import parse
from kdns.plugins.directives import configure

KUBEADM = """\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
"""
K3S = """\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
    }
    hosts /etc/coredns/NodeHosts {
      ttl 60
      reload 15s
      fallthrough
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
    import /etc/coredns/custom/*.override
    forward . /etc/resolv.conf
}
import /etc/coredns/custom/*.server
"""
AKS = """\
.:53 {
    errors
    ready
    health {
      lameduck 5s
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
      ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
    import custom/*.override
    template ANY ANY internal.cloudapp.net {
      match "^(?:[^.]+\\.){4,}internal\\.cloudapp\\.net\\.$"
      rcode NXDOMAIN
      fallthrough
    }
    template ANY ANY reddog.microsoft.com {
      rcode NXDOMAIN
    }
}
import custom/*.server
"""
NODE_LOCAL = """\
cluster.local:53 {
    errors
    cache {
        success 9984 30
        denial 9984 5
    }
    reload
    loop
    bind 169.254.20.10 10.96.0.10
    forward . 10.96.0.99 {
        force_tcp
    }
    prometheus :9253
    health 169.254.20.10:8080
}
in-addr.arpa:53 {
    errors
    cache 30
    reload
    loop
    bind 169.254.20.10 10.96.0.10
    forward . 10.96.0.99 {
        force_tcp
    }
    prometheus :9253
}
.:53 {
    errors
    cache 30
    reload
    loop
    bind 169.254.20.10 10.96.0.10
    forward . /etc/resolv.conf
    prometheus :9253
}
"""
COREFILES = {"kubeadm": KUBEADM, "k3s": K3S, "AKS": AKS, "NodeLocal": NODE_LOCAL}
FILES = {
    "/etc/resolv.conf": "search lan\nnameserver 192.0.2.53\noptions ndots:1\n",
    "/etc/coredns/NodeHosts": "192.0.2.10 node-1\n",
    "/etc/coredns/custom/a.override": "log\n",
    "/etc/coredns/custom/b.server": "corp.example:53 {\n    forward . 192.0.2.54\n}\n",
    "custom/a.override": "log\n",
    "custom/b.server": "corp.example:53 {\n    errors\n    cache 30\n    forward . 192.0.2.54\n}\n",
}


def read(pattern: str) -> Sequence[tuple[str, str]]:
    return [(path, text) for path, text in FILES.items() if fnmatch(path, pattern)]


@pytest.mark.parametrize("name", COREFILES)
async def test_default_corefiles(name: str) -> None:
    setup = ForwardSetup(state=state_of(service("web", "10.96.0.7")), files=dict(FILES))
    setup.script = lambda query, _transport: says(f"{query.name} 60 IN A 192.0.2.99")
    blocks = configure(parse(COREFILES[name], read=read))
    server = server_of_blocks(blocks, lambda: setup)
    questions = {"www.example.com.": bytes((192, 0, 2, 99)), "web.shop.svc.cluster.local.": bytes((10, 96, 0, 7))}
    if name == "NodeLocal":  # which asks the cluster's DNS
        questions["web.shop.svc.cluster.local."] = bytes((192, 0, 2, 99))
    for question, address in questions.items():
        for _ in range(2):
            answered = await ask(server, question)
            assert [rrset.rdata for rrset in answered.answer] == [(address,)]
    setup.stop()
