"""Text of an expression → a function of a query; what is wrong with it is an error at its word.

The language is the part of expr-lang (github.com/expr-lang/expr) that queries need: literals, lists, ranges, indexes,
slices, the functions of kdns.dnsserver.expressions.functions, arithmetic, comparisons, `in`, `matches`, `contains`,
`startsWith`, `endsWith`, `and`, `or`, `not`, `?:` and `??`. Kinds are checked when the Corefile is read.
Differs: maps, closures, pipes and `let` are not there; the pattern of `matches` is a constant, so that nothing that
a client sends becomes a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from kdns.corefile.lexer import Token
from kdns.dnsserver.expressions.functions import BUILTINS, Environment, Function
from kdns.dnsserver.expressions.values import (
    APPLY,
    NUMBERS,
    EvaluationError,
    Value,
    ValueKind,
    bounded_number,
    fits,
    kind_of,
    result_kind,
)
from kdns.dnsserver.patterns import MAX_REGEX_CHARS, compiled
from kdns.errors import CorefileError
from kdns.spelling import closest

Evaluate: TypeAlias = Callable[[Environment], Value]

SINGLE_QUOTES: Final = "; double quotes are the Corefile's, strings of an expression stand in single quotes"
MAX_EXPRESSION_CHARS: Final = 10_000
MAX_DEPTH: Final = 40
"""The deepest nesting of expressions."""

_LEXEME: Final = re.compile(
    r"""(?P<blank>\s+)
      | (?P<number>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+
          |(?:[0-9][0-9_]*)?\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?|[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?)
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`)
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<sign>\*\*|&&|\|\||==|!=|<=|>=|\?\?|\.\.|[-+*/%^<>!?:(),\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    sign: sign for sign in "\\'\""
}

_SYNONYMS: Final = {"||": "or", "&&": "and", "!": "not"}
_BINDING: Final = {
    "or": 10, "and": 15, "==": 20, "!=": 20, "<": 20, "<=": 20, ">": 20, ">=": 20, "in": 20, "matches": 20,
    "contains": 20, "startsWith": 20, "endsWith": 20, "..": 25, "+": 30, "-": 30, "*": 60, "/": 60, "%": 60,
    "**": 100, "^": 100, "??": 500,
}  # fmt: skip
"""The precedence of each binary operator, as in expr-lang."""
_NEGATABLE: Final = frozenset(("in", "matches", "contains", "startsWith", "endsWith"))
_NOT_BINDING: Final = 50
_SIGN_BINDING: Final = 90
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "nil": None}

RESERVED: Final = frozenset((*_CONSTANTS, *(word for word in _BINDING if word.isalpha()), "not", "let", "if", "else"))
"""Words that cannot be names of variables."""


class _Lexeme(NamedTuple):
    kind: str
    text: str
    at: int


class Expression(NamedTuple):
    """A compiled expression. `is_of_packet`: its value depends on the packet only."""

    kind: ValueKind
    run: Evaluate
    is_of_packet: bool

    def value(self, environment: Environment) -> Value:
        """Returns its value for a query; raises EvaluationError."""
        try:
            return self.run(environment)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise EvaluationError(f"an expression that does not fit its values: {error}") from error


class _Node(NamedTuple):
    kind: ValueKind
    run: Evaluate
    is_of_packet: bool = True
    is_constant: bool = False

    @property
    def constant(self) -> Value:
        return self.run(_NOTHING) if self.is_constant else None


_NOTHING: Final[Any] = None
"""The environment of constants."""


def expression(
    words: Sequence[Token], functions: Mapping[str, Function], variables: Mapping[str, ValueKind] | None = None
) -> Expression:
    """Returns the words of an option, joined by blanks as in CoreDNS, as an expression; raises CorefileError."""
    text = " ".join(word.text for word in words)
    if len(text) > MAX_EXPRESSION_CHARS:
        raise words[0].error(f"expected an expression of at most {MAX_EXPRESSION_CHARS} characters, got {len(text)}")
    parser = _Parser(words, text, {**BUILTINS, **functions}, variables or {})
    node = parser.whole()
    return Expression(node.kind, node.run, node.is_of_packet)


class _Parser:
    """Operator precedence over the lexemes of one expression."""

    def __init__(
        self, words: Sequence[Token], text: str, functions: Mapping[str, Function], variables: Mapping[str, ValueKind]
    ) -> None:
        self._words = words
        self._functions = functions
        self._variables = variables
        self._depth = 0
        self._next = 0
        self._lexemes = self._lexed(text)

    def whole(self) -> _Node:
        node = self._expression(0)
        if self._peek.kind != "end":
            self._fail(self._peek, f"expected the end of the expression, got `{self._peek.text[:30]}`")
        return node

    def _lexed(self, text: str) -> list[_Lexeme]:
        lexemes, at = [], 0
        while at < len(text):
            match = _LEXEME.match(text, at)
            if match is None or match.lastgroup is None:
                what = (
                    "the string is not closed"
                    if text[at] in "'\"`"
                    else f"unexpected character `{text[at]}` in the expression"
                )
                self._fail(_Lexeme("", text[at], at), what)
            if match.lastgroup != "blank":
                word = match.group()
                lexemes.append(_Lexeme(match.lastgroup, _SYNONYMS.get(word, word), at))
            at = match.end()
        return [*lexemes, _Lexeme("end", "", max(0, len(text) - 1))]

    def _fail(self, lexeme: _Lexeme, reason: str) -> NoReturn:
        raise self._error(lexeme, reason)

    def _error(self, lexeme: _Lexeme, reason: str) -> CorefileError:
        at = lexeme.at
        for word in self._words:
            if at <= len(word.text):
                return word.error(reason + SINGLE_QUOTES if word.quoted and "'" not in word.text else reason)
            at -= len(word.text) + 1
        return self._words[-1].error(reason)

    @property
    def _peek(self) -> _Lexeme:
        return self._lexemes[self._next]

    def _take(self) -> _Lexeme:
        lexeme = self._lexemes[self._next]
        self._next += lexeme.kind != "end"
        return lexeme

    def _is(self, text: str) -> bool:
        lexeme = self._peek
        return lexeme.text == text and lexeme.kind in {"sign", "name"}

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            found = f"`{self._peek.text[:30]}`" if self._peek.text else "the end"
            self._fail(self._peek, f"expected `{text}` in the expression, got {found}")

    def _expression(self, binding: int) -> _Node:
        """Returns the longest expression whose operators have at least this precedence."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(self._peek, f"expressions within expressions, more than {MAX_DEPTH} deep")
        left = self._unary()
        while True:
            operator = self._peek
            is_negated = operator.kind == "name" and operator.text == "not"
            if is_negated:
                after = self._lexemes[self._next + 1]
                if after.text not in _NEGATABLE or _BINDING[after.text] < binding:
                    break
                self._take()
                operator = self._peek
            if operator.kind not in {"sign", "name"} or _BINDING.get(operator.text, -1) < binding:
                break
            self._take()
            if operator.text in {"**", "^"}:
                right = self._expression(_BINDING[operator.text])
            else:
                right = self._expression(_BINDING[operator.text] + 1)
            left = self._binary(operator, left, right)
            if is_negated:
                left = _negated(left)
        sign = self._peek
        if binding == 0 and self._accept("?"):
            left = self._ternary(sign, left)
        self._depth -= 1
        return left

    def _ternary(self, sign: _Lexeme, condition: _Node) -> _Node:
        self._want(sign, condition, ValueKind.BOOL, "before `?`")
        if self._accept(":"):
            left, right = condition, self._expression(0)
        else:
            left = self._expression(0)
            self._expect(":")
            right = self._expression(0)
        test, first, second = _checked(condition, ValueKind.BOOL), left.run, right.run
        kind = left.kind if left.kind is right.kind else ValueKind.ANY
        is_of_packet = condition.is_of_packet and left.is_of_packet and right.is_of_packet
        return _Node(kind, lambda env: first(env) if test(env) else second(env), is_of_packet)

    def _unary(self) -> _Node:
        operator = self._peek
        if self._accept("not"):
            operand = self._expression(_NOT_BINDING)
            self._want(operator, operand, ValueKind.BOOL, "after `not`")
            return _negated(operand)
        for sign in ("-", "+"):
            if self._accept(sign):
                operand = self._expression(_SIGN_BINDING)
                if operand.kind not in NUMBERS | {ValueKind.ANY}:
                    self._fail(operator, f"expected a number after `{sign}`, got a {operand.kind.value}")
                if sign == "+":
                    return operand
                return _combined("-", _Node(ValueKind.INT, lambda _: 0, is_constant=True), operand, operand.kind)
        return self._postfix(self._primary())

    def _binary(self, operator: _Lexeme, left: _Node, right: _Node) -> _Node:
        match operator.text:
            case "and" | "or":
                self._want(operator, left, ValueKind.BOOL, f"before `{operator.text}`")
                self._want(operator, right, ValueKind.BOOL, f"after `{operator.text}`")
                return _junction(operator.text, left, right)
            case "??":
                kind = left.kind if left.kind is right.kind else ValueKind.ANY
                first, second = left.run, right.run
                is_of_packet = left.is_of_packet and right.is_of_packet
                return _Node(kind, lambda env: second(env) if (got := first(env)) is None else got, is_of_packet)
            case "matches":
                return self._matches(operator, left, right)
        result = result_kind(operator.text, left.kind, right.kind)
        if result is None:
            reason = f"`{operator.text}` does not take a {left.kind.value} and a {right.kind.value}"
            self._fail(operator, reason)
        return _combined(operator.text, left, right, result)

    def _matches(self, operator: _Lexeme, left: _Node, right: _Node) -> _Node:
        self._want(operator, left, ValueKind.STRING, "before `matches`")
        if not isinstance(right.constant, str):
            self._fail(operator, "expected a regular expression in quotes after `matches`")
        if len(right.constant) > MAX_REGEX_CHARS:
            self._fail(operator, f"expected a regular expression of at most {MAX_REGEX_CHARS} characters")
        try:
            pattern = compiled(right.constant)
        except ValueError as error:
            raise self._error(operator, f"expected a regular expression in RE2 syntax, as in Go: {error}") from error
        text = _checked(left, ValueKind.STRING)
        return _Node(ValueKind.BOOL, lambda env: pattern.search(text(env)) is not None, left.is_of_packet)

    def _want(self, at: _Lexeme, node: _Node, kind: ValueKind, where: str) -> None:
        if not fits(node.kind, kind):
            self._fail(at, f"expected a {kind.value} {where}, got a {node.kind.value}")

    def _primary(self) -> _Node:
        lexeme = self._take()
        match lexeme.kind:
            case "number":
                return self._number(lexeme)
            case "string":
                text = self._unquoted(lexeme)
                return _Node(ValueKind.STRING, lambda _: text, is_constant=True)
            case "name":
                return self._named(lexeme)
        if lexeme.text == "(":
            inner = self._expression(0)
            self._expect(")")
            return inner
        if lexeme.text == "[":
            return self._list()
        found = f"`{lexeme.text}`" if lexeme.text else "the end"
        raise self._error(lexeme, f"expected a value in the expression, got {found}")

    def _number(self, lexeme: _Lexeme) -> _Node:
        text = lexeme.text.replace("_", "").lower()
        try:
            is_whole = text[:2] in {"0x", "0b", "0o"} or text.isdecimal()
            number: Value = int(text, 0 if text[1:2].isalpha() else 10) if is_whole else float(text)
            bounded_number(number)
        except (ValueError, EvaluationError) as error:
            raise self._error(lexeme, f"expected a number of at most 64 bits, got `{lexeme.text[:30]}`") from error
        return _Node(kind_of(number), lambda _: number, is_constant=True)

    def _unquoted(self, lexeme: _Lexeme) -> str:
        inner = lexeme.text[1:-1]
        if lexeme.text[0] == "`":
            return inner

        def meant(match: re.Match[str]) -> str:
            escape = match[1]
            if escape in _ESCAPED:
                return _ESCAPED[escape]
            code = int(escape[1:], 16) if escape[0] in "xuU" and escape[1:] else int(escape, 8) if escape[1:] else -1
            if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._fail(lexeme, f"`\\{escape}` is not an escape; write a backslash in a string twice")
            return chr(code)

        return _ESCAPE.sub(meant, inner)

    def _named(self, lexeme: _Lexeme) -> _Node:
        name = lexeme.text
        if name in _CONSTANTS:
            value = _CONSTANTS[name]
            return _Node(kind_of(value), lambda _: value, is_constant=True)
        if name in RESERVED:
            self._fail(lexeme, f"expected a value in the expression, got `{name}`")
        if self._accept("("):
            return self._call(lexeme)
        if name in self._functions:
            self._fail(lexeme, f"`{name}` is a function: `{name}(...)` calls it")
        if name not in self._variables:
            self._fail(lexeme, self._unknown(name, (*self._variables, *self._functions)))
        return _Node(self._variables[name], lambda env: env.variables[name])

    def _unknown(self, name: str, names: Sequence[str]) -> str:
        meant = closest(name, names)
        hint = f"did you mean `{meant}`?" if meant else f"there are {', '.join(sorted(names))}"
        return f"unknown name `{name[:50]}` in the expression; {hint}"

    def _call(self, lexeme: _Lexeme) -> _Node:
        function = self._functions.get(lexeme.text)
        if function is None:
            self._fail(lexeme, self._unknown(lexeme.text, tuple(self._functions)))
        arguments = self._arguments(")")
        most = len(function.parameters)
        if not most - function.optional <= len(arguments) <= most:
            self._fail(lexeme, f"`{lexeme.text}` takes {most} arguments and got {len(arguments)}")
        for argument, kind in zip(arguments, function.parameters, strict=False):
            self._want(lexeme, argument, kind, f"as an argument of `{lexeme.text}`")
        if function.check and (reason := function.check(tuple(argument.constant for argument in arguments))):
            self._fail(lexeme, reason)
        call = function.call
        runs = tuple(_checked(argument, kind) for argument, kind in zip(arguments, function.parameters, strict=False))
        is_of_packet = function.is_of_packet and all(argument.is_of_packet for argument in arguments)
        if function.of_query:
            return _Node(function.result, lambda env: call(env, *(run(env) for run in runs)), is_of_packet)
        return _Node(function.result, lambda env: call(*(run(env) for run in runs)), is_of_packet)

    def _arguments(self, closing: str) -> list[_Node]:
        arguments: list[_Node] = []
        while not self._accept(closing):
            if arguments:
                self._expect(",")
            arguments.append(self._expression(0))
        return arguments

    def _list(self) -> _Node:
        nodes = self._arguments("]")
        is_of_packet = all(node.is_of_packet for node in nodes)
        if all(node.is_constant for node in nodes):
            values = tuple(node.constant for node in nodes)
            return _Node(ValueKind.LIST, lambda _: values, is_constant=True)
        runs = tuple(node.run for node in nodes)
        return _Node(ValueKind.LIST, lambda env: tuple(run(env) for run in runs), is_of_packet)

    def _postfix(self, node: _Node) -> _Node:
        """Returns a value with the indexes and slices after it."""
        while self._is("["):
            bracket = self._take()
            if node.kind not in {ValueKind.LIST, ValueKind.STRING, ValueKind.ANY}:
                self._fail(bracket, f"a {node.kind.value} has no elements")
            start = None if self._is(":") else self._whole_number()
            if self._accept(":"):
                stop = None if self._is("]") else self._whole_number()
                node = _slice(node, start, stop)
            elif start:
                node = _element(node, start)
            self._expect("]")
        return node

    def _whole_number(self) -> _Node:
        at = self._peek
        node = self._expression(0)
        self._want(at, node, ValueKind.INT, "as an index")
        return node


def _checked(node: _Node, kind: ValueKind) -> Evaluate:
    """Returns the value of a node; its kind is checked at run time if the Corefile does not determine it."""
    run = node.run
    if node.kind is not ValueKind.ANY or kind is ValueKind.ANY:
        return run

    def checked(environment: Environment) -> Value:
        value = run(environment)
        if not fits(kind_of(value), kind):
            raise EvaluationError(f"expected a {kind.value}, got a {kind_of(value).value}")
        return value

    return checked


def _negated(node: _Node) -> _Node:
    run = _checked(node, ValueKind.BOOL)
    return _Node(ValueKind.BOOL, lambda env: not run(env), node.is_of_packet)


def _junction(operator: str, left: _Node, right: _Node) -> _Node:
    first, second = _checked(left, ValueKind.BOOL), _checked(right, ValueKind.BOOL)
    is_of_packet = left.is_of_packet and right.is_of_packet
    if operator == "and":
        return _Node(ValueKind.BOOL, lambda env: first(env) and second(env), is_of_packet)
    return _Node(ValueKind.BOOL, lambda env: first(env) or second(env), is_of_packet)


def _combined(operator: str, left: _Node, right: _Node, kind: ValueKind) -> _Node:
    """Returns an operator on two values; unknown kinds are checked when it is evaluated."""
    apply, first, second = APPLY[operator], left.run, right.run
    is_of_packet = left.is_of_packet and right.is_of_packet
    if ValueKind.ANY not in {left.kind, right.kind}:
        return _Node(kind, lambda env: apply(first(env), second(env)), is_of_packet)

    def checked(environment: Environment) -> Value:
        one, other = first(environment), second(environment)
        if result_kind(operator, kind_of(one), kind_of(other)) is None:
            raise EvaluationError(f"`{operator}` does not take a {kind_of(one).value} and a {kind_of(other).value}")
        return apply(one, other)

    return _Node(kind, checked, is_of_packet)


def _element(node: _Node, index: _Node) -> _Node:
    run, at = _sequence(node), _checked(index, ValueKind.INT)
    kind = ValueKind.STRING if node.kind is ValueKind.STRING else ValueKind.ANY
    return _Node(kind, lambda env: run(env)[at(env)], node.is_of_packet and index.is_of_packet)


def _slice(node: _Node, start: _Node | None, stop: _Node | None) -> _Node:
    run = _sequence(node)
    first = _checked(start, ValueKind.INT) if start else lambda _: None
    last = _checked(stop, ValueKind.INT) if stop else lambda _: None
    is_of_packet = all(each.is_of_packet for each in (node, start, stop) if each)
    return _Node(node.kind, lambda env: run(env)[first(env) : last(env)], is_of_packet)


def _sequence(node: _Node) -> Evaluate:
    run = node.run
    if node.kind is not ValueKind.ANY:
        return run

    def checked(environment: Environment) -> Value:
        value = run(environment)
        if kind_of(value) not in {ValueKind.LIST, ValueKind.STRING}:
            raise EvaluationError(f"a {kind_of(value).value} has no elements")
        return value

    return checked
