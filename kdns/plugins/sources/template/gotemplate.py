"""Text of a Go template → a function of its data (text/template).

Supports pipelines of fields, variables, literals and functions; `if`, `with`, `range`, `else`, `end`, `break`,
`continue`, comments, and trimming of white space.
Differs: `define`, `template`, `block`, `call` and the functions `html`, `js` and `urlquery` are missing; loops and
texts are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kdns.plugins.sources.template.gofunctions import (
    FUNCTIONS,
    MAX_CHARS,
    GoValue,
    Map,
    Struct,
    called,
    field,
    text,
)
from kdns.serverblocks.expressions.values import EvaluationError, unquoted

MAX_TEMPLATE_CHARS: Final = 65536
MAX_DEPTH: Final = 20
MAX_TURNS: Final = 1000
"""The most iterations of all loops in one execution."""

_LEXEME: Final = re.compile(
    r"""(?P<blank>\s+)
      | (?P<comment>/\*.*?\*/)
      | (?P<end>-?\}\})
      | (?P<assign>:=|=)
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|[0-9]+\.[0-9]+|[0-9]+)(?![A-Za-z0-9_]))
      | (?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
      | (?P<char>'(?:\\.|[^'\\\n])')
      | (?P<field>(?:\.[A-Za-z_]\w*)+)
      | (?P<variable>\$(?:[A-Za-z_]\w*)?(?:\.[A-Za-z_]\w*)*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>[().,|])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KEYWORDS: Final = frozenset(("if", "else", "end", "range", "with", "break", "continue"))
_MISSING: Final = frozenset(("define", "template", "block"))
_CONSTANTS: Final[dict[str, GoValue]] = {"true": True, "false": False, "nil": None}


class TemplateSyntaxError(ValueError):
    """An invalid template."""


class _Break(Exception):  # noqa: N818 - not an error
    """The end of a loop."""


class _Continue(Exception):  # noqa: N818 - not an error
    """The end of one iteration of a loop."""


class _Lexeme(NamedTuple):
    kind: str
    text: str


class _Run:
    """One execution: output, variables by slot, and the remaining iterations of loops."""

    __slots__ = ("pieces", "size", "turns_left", "variables")

    def __init__(self, data: Struct) -> None:
        self.pieces: list[str] = []
        self.size = 0
        self.variables: dict[int, GoValue] = {0: data}
        self.turns_left = MAX_TURNS

    def write(self, piece: str) -> None:
        self.size += len(piece)
        if self.size > MAX_CHARS:
            raise EvaluationError(f"a text of more than {MAX_CHARS} characters")
        self.pieces.append(piece)


_Evaluate: TypeAlias = Callable[[_Run, GoValue], GoValue]
"""(execution, value of the dot) → value of a pipeline."""
_Execute: TypeAlias = Callable[[_Run, GoValue], None]


class Template:
    """A compiled template. `fields` are the names of all fields that it reads, `.` for a dot alone.

    `chains` are nested fields of its data that it reads, such as `("Question", "Name")`. `has_branches`: it has `if`,
    `with` or `range`.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateSyntaxError(f"a template of more than {MAX_TEMPLATE_CHARS} characters")
        parser = _Parser(source)
        self.source = source
        self._execute = parser.whole()
        self.fields = frozenset(parser.fields)
        self.chains = tuple(parser.chains)
        self.has_branches = parser.has_branches

    def run(self, data: Struct) -> str:
        run = _Run(data)
        try:
            self._execute(run, data)
        except RecursionError as error:
            raise EvaluationError("values within values") from error
        return "".join(run.pieces)


class _Parser:
    """Parses texts and actions in one pass."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._trims_next = False
        self._depth = 0
        self._loops = 0
        self._lexemes: list[_Lexeme] = []
        self._slots = {"$": 0}
        self._slot_count = 1
        self._dots = 0
        self.fields: set[str] = set()
        self.chains: dict[tuple[str, ...], None] = {}
        self.has_branches = False

    def whole(self) -> _Execute:
        body, keyword = self._body()
        if keyword:
            raise TemplateSyntaxError(f"`{keyword}` without an `if`, `with` or `range` before it")
        return body

    def _body(self) -> tuple[_Execute, str]:
        """The actions up to the next `else` or `end`, and that word; "" at the end of the text."""
        steps: list[_Execute] = []
        while True:
            plain = self._text()
            if plain:
                steps.append(partial(_write, _constant(plain)))
            if self._at >= len(self._source):
                return _sequence(steps), ""
            self._lexemes = self._action()
            if not self._lexemes:
                continue
            first = self._lexemes[0]
            if first.kind == "word" and first.text in {"else", "end"}:
                self._lexemes.pop(0)
                return _sequence(steps), first.text
            steps.append(self._step(first))

    def _text(self) -> str:
        start = self._at
        opening = self._source.find("{{", start)
        self._at = opening + 2 if opening >= 0 else len(self._source)
        plain = self._source[start : opening if opening >= 0 else None]
        if self._trims_next:
            plain = plain.lstrip(" \t\r\n")
        if re.compile(r"-[ \t\r\n]").match(self._source, self._at) and opening >= 0:
            plain = plain.rstrip(" \t\r\n")
            self._at += 1
        if opening >= 0 and self._at >= len(self._source):
            raise TemplateSyntaxError("`{{` is not closed by `}}`")
        return plain

    def _action(self) -> list[_Lexeme]:
        lexemes: list[_Lexeme] = []
        is_comment = False
        while True:
            match = _LEXEME.match(self._source, self._at)
            if match is None or match.lastgroup is None:
                text = self._source[self._at : self._at + 20]
                raise TemplateSyntaxError(f"unexpected {text!r} in an action" if text else "`{{` is not closed by `}}`")
            self._at = match.end()
            if match.lastgroup == "end":
                self._trims_next = match.group().startswith("-")
                if not lexemes and not is_comment:
                    raise TemplateSyntaxError("an action with nothing in it")
                return lexemes
            is_comment = is_comment or match.lastgroup == "comment"
            if match.lastgroup not in {"blank", "comment"}:
                lexemes.append(_Lexeme(match.lastgroup, match.group()))

    def _step(self, first: _Lexeme) -> _Execute:
        word = first.text if first.kind == "word" else ""
        if word in _MISSING:
            raise TemplateSyntaxError(f"`{word}` is not part of kdns's templates")
        if word in {"break", "continue"}:
            self._lexemes.pop(0)
            self._finish()
            if not self._loops:
                raise TemplateSyntaxError(f"`{word}` outside of a `range`")
            return partial(_leave, _Break if word == "break" else _Continue)
        if word in _KEYWORDS:
            self._lexemes.pop(0)
            return self._control(word)
        name, is_new = self._assigned()
        value = self._pipeline()
        self._finish()
        if not name:
            return partial(_write, value)
        return partial(_assign, self._new_slot(name) if is_new else self._slot(name), value)

    def _assigned(self) -> tuple[str, bool]:
        """The variable that an action or condition sets, "" for none, and whether it is a new one."""
        if len(self._lexemes) < 2 or self._lexemes[0].kind != "variable" or self._lexemes[1].kind != "assign":
            return "", False
        name, sign = self._lexemes.pop(0).text, self._lexemes.pop(0).text
        if "." in name or name == "$":
            raise TemplateSyntaxError(f"`{name}` is not the name of a variable, such as $x")
        return name, sign == ":="

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            raise TemplateSyntaxError(f"the variable `{name}` is not defined")
        return self._slots[name]

    def _new_slot(self, name: str) -> int:
        """A slot for a new variable, which hides one of the same name to the end of its block."""
        self._slots[name] = self._slot_count
        self._slot_count += 1
        return self._slots[name]

    def _control(self, word: str) -> _Execute:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateSyntaxError(f"blocks within blocks, more than {MAX_DEPTH} deep")
        outer = dict(self._slots)
        names = self._loop_variables() if word == "range" else ()
        name, is_new = ("", False) if names else self._assigned()
        value = self._pipeline()
        slots = tuple(map(self._new_slot, names))
        slot = None if not name else self._new_slot(name) if is_new else self._slot(name)
        self._finish()
        self.has_branches = True
        self._loops += word == "range"
        self._dots += word in {"range", "with"}
        body, keyword = self._body()
        self._loops -= word == "range"
        self._dots -= word in {"range", "with"}
        otherwise = _sequence([])
        if keyword == "else":
            otherwise = self._otherwise(word)
        elif not keyword:
            raise TemplateSyntaxError(f"`{word}` has no `end`")
        else:
            self._finish()
        self._slots = outer
        self._depth -= 1
        if word == "range":
            return partial(_loop, value, slots, body, otherwise)
        return partial(_choose, value, slot, body, otherwise, has_dot=word == "with")

    def _otherwise(self, word: str) -> _Execute:
        if self._lexemes:
            nested = self._lexemes.pop(0).text
            if nested != word or word == "range":
                raise TemplateSyntaxError(f"`else {nested}` behind `{word}`")
            return self._control(word)
        body, keyword = self._body()
        if keyword != "end":
            raise TemplateSyntaxError(f"`{word}` has no `end`" if not keyword else "a second `else`")
        self._finish()
        return body

    def _loop_variables(self) -> tuple[str, ...]:
        """Parses `$x :=` or `$i, $x :=` before the operand of `range`."""
        texts = [lexeme.text for lexeme in self._lexemes[:4]]
        kinds = [lexeme.kind for lexeme in self._lexemes[:4]]
        for count, shape in ((2, ["variable", "sign", "variable", "assign"]), (1, ["variable", "assign"])):
            if kinds[: len(shape)] == shape and (count == 1 or texts[1] == ","):
                del self._lexemes[: len(shape)]
                return tuple(texts[0 : 2 * count : 2])
        return ()

    def _finish(self) -> None:
        if self._lexemes:
            raise TemplateSyntaxError(f"{self._lexemes[0].text!r} is too much in an action")

    def _pipeline(self) -> _Evaluate:
        value = self._command(None)
        while self._lexemes and self._lexemes[0].text == "|" and self._lexemes[0].kind == "sign":
            self._lexemes.pop(0)
            value = self._command(value)
        return value

    def _command(self, piped: _Evaluate | None) -> _Evaluate:
        if not self._lexemes:
            raise TemplateSyntaxError("a value is missing in an action")
        first = self._lexemes[0]
        if first.kind == "word" and first.text not in _CONSTANTS:
            self._lexemes.pop(0)
            arguments = self._arguments(piped)
            if first.text in {"and", "or"}:
                return partial(_junction, tuple(arguments), until=first.text == "or")
            if first.text not in FUNCTIONS:
                raise TemplateSyntaxError(
                    f"unknown function `{first.text}`; functions: {', '.join(sorted((*FUNCTIONS, 'and', 'or')))}"
                )
            return partial(_call, first.text, tuple(arguments))
        operand = self._operand()
        arguments = self._arguments(piped)
        return partial(_apply, operand, tuple(arguments))

    def _arguments(self, piped: _Evaluate | None) -> list[_Evaluate]:
        arguments = []
        while self._lexemes and not (self._lexemes[0].kind == "sign" and self._lexemes[0].text in {"|", ")"}):
            arguments.append(self._operand())
        return [*arguments, piped] if piped else arguments

    def _operand(self) -> _Evaluate:
        lexeme = self._lexemes.pop(0)
        match lexeme.kind:
            case "number":
                return _constant(_number(lexeme.text))
            case "string":
                return _constant(_unquoted(lexeme.text))
            case "char":
                return _constant(ord(_unquoted(lexeme.text)))
            case "field":
                return self._fields(_dot, lexeme.text, of_data=not self._dots)
            case "variable":
                return self._variable(lexeme.text)
            case "word" if lexeme.text in _CONSTANTS:
                return _constant(_CONSTANTS[lexeme.text])
            case "word" if lexeme.text in FUNCTIONS:
                return partial(_call, lexeme.text, ())
        if lexeme.text == ".":
            self.fields.add(".")
            return _dot
        if lexeme.text == "(":
            return self._parenthesized()
        raise TemplateSyntaxError(f"expected a value, got {lexeme.text!r}")

    def _variable(self, chained: str) -> _Evaluate:
        name, _, chain = chained.partition(".")
        if name == "$" and not chain:
            self.fields.add(".")
        return self._fields(_variable(self._slot(name)), f".{chain}" if chain else "", of_data=name == "$")

    def _parenthesized(self) -> _Evaluate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateSyntaxError(f"parentheses within parentheses, more than {MAX_DEPTH} deep")
        inner = self._pipeline()
        if not self._lexemes or self._lexemes.pop(0).text != ")":
            raise TemplateSyntaxError("`(` is not closed by `)`")
        self._depth -= 1
        follows = self._lexemes and self._lexemes[0].kind == "field"
        return self._fields(inner, self._lexemes.pop(0).text) if follows else inner

    def _fields(self, value: _Evaluate, chain: str, *, of_data: bool = False) -> _Evaluate:
        names = chain.split(".")[1:]
        self.fields.update(names)
        if of_data and names:
            self.chains[tuple(names)] = None
        for name in names:
            value = partial(_field, value, name)
        return value


def _number(digits: str) -> GoValue:
    try:
        return float(digits) if "." in digits else int(digits, 0)
    except ValueError as error:
        raise TemplateSyntaxError(f"expected a number, got {digits[:30]!r}") from error


def _unquoted(quoted: str) -> str:
    try:
        return unquoted(quoted)
    except ValueError as error:
        raise TemplateSyntaxError(str(error)) from error


def _constant(value: GoValue) -> _Evaluate:
    return lambda _run, _dot: value


def _variable(slot: int) -> _Evaluate:
    return lambda run, _dot: run.variables.get(slot)


def _dot(_run: _Run, dot: GoValue) -> GoValue:
    return dot


def _field(value: _Evaluate, name: str, run: _Run, dot: GoValue) -> GoValue:
    return field(value(run, dot), name)


def _apply(operand: _Evaluate, arguments: tuple[_Evaluate, ...], run: _Run, dot: GoValue) -> GoValue:
    value = operand(run, dot)
    if callable(value):
        values = [argument(run, dot) for argument in arguments]
        if len(values) != 1 or not isinstance(values[0], str):
            raise EvaluationError("this takes one string")
        return value(values[0])
    if arguments:
        raise EvaluationError("arguments after a value that is not a function")
    return value


def _call(name: str, arguments: tuple[_Evaluate, ...], run: _Run, dot: GoValue) -> GoValue:
    return called(name, tuple(argument(run, dot) for argument in arguments))


def _junction(arguments: tuple[_Evaluate, ...], run: _Run, dot: GoValue, *, until: bool) -> GoValue:
    if not arguments:
        raise EvaluationError("`and` and `or` take at least one value")
    value: GoValue = None
    for argument in arguments:
        value = argument(run, dot)
        if bool(value) is until:
            break
    return value


def _write(value: _Evaluate, run: _Run, dot: GoValue) -> None:
    run.write(text(value(run, dot)))


def _assign(slot: int, value: _Evaluate, run: _Run, dot: GoValue) -> None:
    run.variables[slot] = value(run, dot)


def _leave(end: type[Exception], _run: _Run, _dot_value: GoValue) -> None:
    raise end


def _sequence(steps: list[_Execute]) -> _Execute:
    if len(steps) == 1:
        return steps[0]

    def execute(run: _Run, dot: GoValue) -> None:
        for step in steps:
            step(run, dot)

    return execute


def _choose(
    value: _Evaluate, slot: int | None, body: _Execute, otherwise: _Execute, run: _Run, dot: GoValue, *, has_dot: bool
) -> None:
    decisive = value(run, dot)
    if slot is not None:
        run.variables[slot] = decisive
    if decisive:
        body(run, decisive if has_dot else dot)
    else:
        otherwise(run, dot)


def _loop(
    value: _Evaluate, slots: tuple[int, ...], body: _Execute, otherwise: _Execute, run: _Run, dot: GoValue
) -> None:
    entries = list(_entries(value(run, dot)))
    if not entries:
        otherwise(run, dot)
    for key, element in entries:
        run.turns_left -= 1
        if run.turns_left < 0:
            raise EvaluationError(f"more than {MAX_TURNS} turns of loops")
        run.variables.update(zip(slots, (key, element)[-len(slots) :] if slots else (), strict=True))
        try:
            body(run, element)
        except _Break:
            break
        except _Continue:
            continue


def _entries(value: GoValue) -> Iterable[tuple[GoValue, GoValue]]:
    match value:
        case tuple():
            return enumerate(value[: MAX_TURNS + 1])
        case Map():
            return sorted(value.items())
        case int() if not isinstance(value, bool):
            return ((number, number) for number in range(min(value, MAX_TURNS + 1)))
        case None:
            return ()
    raise EvaluationError("range goes through a list or a map")
