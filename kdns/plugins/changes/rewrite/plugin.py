"""rewrite [continue | stop] FIELD …: changes questions and answers.

The rules of a server block are tried in the order of the Corefile. After a rule that applies, `stop` (the default)
skips later ones, `continue` tries the next on the changed question. Answers are changed back in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, for_one_client, then
from kdns.answers.response import Response
from kdns.dns.types import SERVFAIL
from kdns.plugins.changes.rewrite.answers import Change, RetargetCname, in_records
from kdns.plugins.changes.rewrite.config import USAGES, RewriteConfig, parse
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.values import evolve

NO_NAME: Final = Response(SERVFAIL, plugin="rewrite", error="invalid name after rewrite")
"""For a rule that makes an invalid name."""


class Rewrite(Plugin):
    """Applies rules to each query, and reverts their changes in the answer.

    Differs: constant new names are checked when the Corefile is read.
    """

    sees = Sees.PACKET

    def __init__(self, configs: Iterable[RewriteConfig], world: World) -> None:
        self._steps = tuple(config.step(world) for config in configs)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        current, name = request, request.query.name
        changes: tuple[Change, ...] = ()
        is_of_packet = True
        try:
            for rule, stops in self._steps:
                outcome = rule.apply(current, name)
                if outcome is None:
                    is_of_packet = is_of_packet and not rule.reads_client
                    continue
                is_of_packet = is_of_packet and outcome.is_of_packet
                changes = (*outcome.changes, *changes)
                if outcome.request is not current:
                    current = outcome.request
                    name = current.query.name
                if stops:
                    break
        except ValueError:
            return NO_NAME
        reply = next(current)
        if current is request and not changes and is_of_packet:
            return reply
        return then(reply, _Work(request, current, changes, is_of_packet).done)


class _Work(NamedTuple):
    """Changes the reply to a rewritten query; `request` is the client's, `current` was answered."""

    request: Request
    current: Request
    changes: tuple[Change, ...]
    is_of_packet: bool

    def done(self, reply: Reply) -> ServeResult:
        if reply is None:
            return None
        query, answered = self.request.query, self.current.query
        is_same = (query.labels, query.qtype, query.qclass) == (answered.labels, answered.qtype, answered.qclass)
        response = reply
        if self.changes or not is_same:
            response = in_records(response, query.labels)
            if response.more_messages:
                response = evolve(response, more_messages=map(self._further, response.more_messages))
        return self._changed(self.changes, response)

    def _changed(self, changes: tuple[Change, ...], response: Reply) -> ServeResult:
        """Only one CNAME is retargeted: later rules have changed the records of its target already."""
        while changes and response is not None:
            change, changes = changes[0], changes[1:]
            changed = change(self.request, response)
            if isinstance(change, RetargetCname) and changed is not response:
                changes = tuple(other for other in changes if not isinstance(other, RetargetCname))
            if not isinstance(changed, Response):
                return then(changed, partial(self._changed, changes))
            response = changed
        return response if self.is_of_packet else for_one_client(response)

    def _further(self, message: Response) -> Response:
        """Changes a further message of a zone transfer; targets of CNAMEs stay."""
        message = in_records(message, self.request.query.labels)
        for change in self.changes:
            changed = change(self.request, message) if not isinstance(change, RetargetCname) else message
            message = changed if isinstance(changed, Response) else message
        return message


DIRECTIVE: Final = Directive(
    "rewrite [continue|stop] FIELD ...",
    RewriteConfig,
    Rewrite,
    USAGES,
    Repeat.ADD,
    parse=parse,
    warnings=lambda config: config.doubts,
    warned="rewrite in doubt",
)
