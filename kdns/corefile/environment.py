"""Environment variables in a Corefile: {$NAME} and {%NAME%}.

Pure: the variables are an argument. They may stand anywhere in a word; what they hold is put in as it is, so a value
with blanks stays one word and a value that looks like a variable is not looked up again. An unset variable is empty.

Differs: CoreDNS looks into values again and hangs on a variable that holds its own reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kdns.corefile.lexer import Token

_REFERENCE = re.compile(r"\{%(?P<percent>.+?)%\}|\{\$(?P<dollar>[^}]+)\}", re.DOTALL)


def expanded(tokens: Iterable[Token], environ: Mapping[str, str]) -> Iterator[Token]:
    """The tokens with their variables put in; each changed one keeps what was written."""
    for token in tokens:
        text = _REFERENCE.sub(lambda found: environ.get(found["percent"] or found["dollar"], ""), token.text)
        yield token if text == token.text else replace(token, text=text, written=token.text)
