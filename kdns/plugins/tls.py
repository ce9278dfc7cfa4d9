"""tls CERT KEY [CA] { client_auth HOW; keylog FILE }: the certificate of tls://, https:// and quic://."""

from __future__ import annotations

from dataclasses import replace

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.listener_options import TLS_USAGE, ClientAuth, ListenerOptions, TlsConfig
from kdns.dnsserver.stanza import Option, choice, configured, count, sets, text

CLIENT_AUTHS = tuple(each.value for each in ClientAuth)

OPTIONS = {
    "client_auth": Option(
        f"client_auth {'|'.join(CLIENT_AUTHS)}",
        sets("client_auth", lambda word: ClientAuth(choice(word, CLIENT_AUTHS))),
    ),
    "keylog": Option("keylog FILE", sets("keylog", text)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> TlsConfig:
    """What a `tls` stanza says; raises CorefileError."""
    count(stanza, TLS_USAGE)
    cert, key, *rest = (token.text for token in stanza.args)
    return configured(TlsConfig(cert, key, rest[0] if rest else "", at=stanza.words[0]), stanza, OPTIONS)


def build(config: TlsConfig, setup: Setup) -> None:
    """Has the listeners of the block speak TLS, where their scheme is of TLS."""
    config = replace(
        config,
        cert=setup.path(config.cert),
        key=setup.path(config.key),
        ca=config.ca and setup.path(config.ca),
        keylog=config.keylog and setup.path(config.keylog),
    )
    setup.listener(ListenerOptions(tls=config))


DIRECTIVE = Directive("tls", parse, build, options=OPTIONS, is_certificate=True)
