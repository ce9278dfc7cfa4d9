"""tls CERT KEY [CA] { client_auth HOW; keylog FILE }: the certificate of tls://, https:// and quic://."""

from __future__ import annotations

from dataclasses import replace

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.listener_options import TLS_USAGE, ClientAuth, TlsConfig
from kdns.serverblocks.stanza import Option, choice, configured, count, sets, text

CLIENT_AUTHS = tuple(each.value for each in ClientAuth)

ACME = frozenset(("acme", "email", "ca", "storage", "ca_root", "resolver"))
"""CoreDNS's options for certificates from an ACME server."""
NO_ACME = f"kdns obtains no certificates, use `{TLS_USAGE}` with files that cert-manager or an ACME client renews"

OPTIONS = {
    "client_auth": Option(
        f"client_auth {'|'.join(CLIENT_AUTHS)}",
        sets("client_auth", lambda word: ClientAuth(choice(word, CLIENT_AUTHS))),
    ),
    "keylog": Option("keylog FILE", sets("keylog", text)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> TlsConfig:
    """Returns the configuration of a `tls` stanza; raises CorefileError."""
    for line in stanza.block:
        if line.name in ACME:
            raise line.error(f"`{line.name}` is not supported: {NO_ACME}")
    count(stanza, TLS_USAGE)
    cert, key, *rest = (token.text for token in stanza.args)
    return configured(TlsConfig(cert, key, rest[0] if rest else "", at=stanza.words[0]), stanza, OPTIONS)


def sets_up(options: BlockOptions, config: TlsConfig) -> BlockOptions:
    """Sets the certificate of the block's listeners with a scheme of TLS."""
    tls = replace(
        config,
        cert=options.path(config.cert),
        key=options.path(config.key),
        ca=config.ca and options.path(config.ca),
        keylog=config.keylog and options.path(config.keylog),
    )
    return replace(options, listener=replace(options.listener, tls=tls))


DIRECTIVE = Directive("tls", parse, sets_up=sets_up, options=OPTIONS, is_certificate=True)
