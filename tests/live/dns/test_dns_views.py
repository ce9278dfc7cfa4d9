"""Server blocks with views over sockets: which one answers, from the table too, and the labels of metrics."""

from dns_client import Udp, answers, packet
from dns_live import dns_server, page, port_of

COREFILE = """
x:0 {
    bind 127.0.0.1
    prometheus 127.0.0.1:0
    view old {
        expr name() endsWith '.old.x.'
    }
    rewrite name suffix .old.x .new.x answer auto
    template IN A new.x {
        answer "{{ .Name }} 60 IN A 10.0.0.1"
    }
}
x:0 {
    bind 127.0.0.1
    view client {
        expr incidr(client_ip(), '127.0.0.1/32') and port() != server_port()
    }
    rewrite cname suffix .far. .old.x.
    template IN A {
        answer "{{ .Name }} 60 IN CNAME a.far."
    }
}
"""


async def test_views_over_sockets() -> None:
    async with dns_server(COREFILE) as server:
        with Udp(port_of(server)) as udp:
            for _ in range(3):
                assert answers(await udp.ask(packet("a.old.x"))) == ["10.0.0.1"]
            assert answers(await udp.ask(packet("b.x"))) == ["10.0.0.1", "a.old.x."]
        lines = set((await page(server, "/metrics"))[1].splitlines())
    place = f'server="{server.servers[0].label}"'
    assert {
        f'coredns_plugin_enabled{{name="rewrite",{place},view="client",zone="x."}} 1.0',
        f'coredns_dns_responses_total{{plugin="template",rcode="NOERROR",{place},view="old",zone="x."}} 3.0',
        f'coredns_dns_responses_total{{plugin="template",rcode="NOERROR",{place},view="client",zone="x."}} 1.0',
        f'coredns_template_matches_total{{class="IN",{place},type="A",view="old",zone="new.x."}} 4.0',
        f'coredns_template_matches_total{{class="IN",{place},type="A",view="client",zone="x."}} 1.0',
    } - lines == set()
