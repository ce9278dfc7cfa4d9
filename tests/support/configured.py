"""What servers are configured with by the text of a Corefile."""

from kdns.corefile.parse import parse
from kdns.plugins.directives import configure
from kdns.serverblocks.config import ServerConfig


def configured(corefile: str) -> tuple[ServerConfig, ...]:
    return configure(parse(corefile))
