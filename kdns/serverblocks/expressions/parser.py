"""Text of an expression → a function of a query; a mistake is an error at its word.

The language is a subset of expr-lang (github.com/expr-lang/expr). Kinds are checked when the Corefile is read.
Differs: it has no statements, maps, slices and functions that no query needs. The pattern of `matches` is constant,
so that a client cannot send a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError
from kdns.serverblocks.expressions.functions import (
    BUILTINS,
    PREDICATES,
    Environment,
    Predicate,
)
from kdns.serverblocks.expressions.values import (
    ANY,
    BOOL,
    INDEX,
    LIST,
    NIL,
    OPERATORS,
    STRING,
    EvaluationError,
    Function,
    Value,
    ValueKind,
    bounded,
    fits,
    kind_of,
    result_kind,
    unquoted,
)
from kdns.serverblocks.patterns import Pattern, compiled
from kdns.spelling import closest

SINGLE_QUOTES: Final = "; double quotes are the Corefile's, strings of an expression stand in single quotes"
COMMENT: Final = "; an expression with # stands in double quotes, # begins a comment outside of them"
MAX_EXPRESSION_CHARS: Final = 10_000
MAX_DEPTH: Final = 40
"""The deepest nesting of expressions."""
MAX_STEPS: Final = 4000
"""Limits the work of all predicates in one evaluation; a step takes about 1 µs, so all take less than 10 ms.

A function or operator costs 1 step, and 1 for each list value and each STEP_CHARS of a string in its arguments and
result. Each element costs 1 step, and 1 for each STEP_WORDS in its predicate.
"""
STEP_CHARS: Final = 4
STEP_WORDS: Final = 4

_LEXEME: Final = re.compile(
    r"""(?P<blank>\s+)
      | (?P<number>0[xX][0-9a-fA-F]+|[0-9]+\.[0-9]+|[0-9]+)
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`)
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<element>\#)
      | (?P<sign>&&|\|\||==|!=|<=|>=|\?\?|\.\.|[-+*/%<>!?:(),=|{}\[\]])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_SYNONYMS: Final = {"||": "or", "&&": "and", "!": "not"}
BINDING: Final = {
    "|": 0, "or": 10, "and": 15, "matches": 20, "??": 500, **{name: row.binding for name, row in OPERATORS.items()},
}  # fmt: skip
"""The precedence of each binary operator, as in expr-lang."""
_NEGATABLE: Final = frozenset(("in", "matches", "contains", "startsWith", "endsWith"))
_NOT_BINDING: Final = 50
_SIGN_BINDING: Final = 90
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "nil": None}

RESERVED: Final = frozenset((*_CONSTANTS, *(word for word in BINDING if word.isalpha()), "not", "let", "if", "else"))
"""Words that cannot be names of variables."""
FUNCTION_NAMES: Final = frozenset((*BUILTINS, *PREDICATES))
"""Functions of the language: their names cannot be names of variables either."""


class _Lexeme(NamedTuple):
    kind: str
    text: str
    at: int


@dataclass(slots=True)
class _Scope:
    """One evaluation; `element` is that of the innermost predicate."""

    environment: Environment
    steps_left: int = MAX_STEPS
    element: Value = None

    def spend(self, steps: int) -> None:
        """EvaluationError after MAX_STEPS."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise EvaluationError(f"predicates of more than {MAX_STEPS} steps")


_Evaluate: TypeAlias = Callable[[_Scope], Value]


class Expression(NamedTuple):
    """A compiled expression, or a part of one. `is_of_packet`: its value depends on the packet only.

    `choices` are all its possible values, None if they depend on the query.
    """

    kind: ValueKind
    run: _Evaluate
    is_of_packet: bool = True
    choices: tuple[Value, ...] | None = None

    def value(self, environment: Environment) -> Value:
        """Raises EvaluationError."""
        try:
            return self.run(_Scope(environment))
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise EvaluationError(f"an expression that does not fit its values: {error}") from error


def expression(
    words: Sequence[Token], functions: Mapping[str, Function], variables: Mapping[str, ValueKind] | None = None
) -> Expression:
    """Words are joined by blanks, as in CoreDNS; raises CorefileError."""
    text = " ".join(word.text for word in words)
    if len(text) > MAX_EXPRESSION_CHARS:
        raise words[0].error(f"expected an expression of at most {MAX_EXPRESSION_CHARS} characters, got {len(text)}")
    return _Parser(words, text, {**BUILTINS, **functions}, variables or {}).whole()


def _constant(value: Value) -> Expression:
    return Expression(kind_of(value), lambda _: value, choices=(value,))


def _depends(*nodes: Expression) -> bool:
    return all(node.is_of_packet for node in nodes)


def _steps(values: tuple[Value, ...]) -> int:
    steps = 1
    for value in values:
        if type(value) is str:
            steps += len(value) // STEP_CHARS
        elif type(value) is tuple:
            steps += len(value)
    return steps


def _common(kinds: Sequence[ValueKind]) -> ValueKind:
    return kinds[0] if len(set(kinds)) == 1 else ANY


class _Parser:
    """Operator precedence over the lexemes of one expression."""

    def __init__(
        self, words: Sequence[Token], text: str, functions: Mapping[str, Function], variables: Mapping[str, ValueKind]
    ) -> None:
        self._words, self._functions, self._variables = words, functions, variables
        self._elements: list[Expression] = []
        """The element of each enclosing predicate, the innermost last."""
        self._depth = 0
        self._next = 0
        self._lexemes = self._lexed(text)

    def whole(self) -> Expression:
        node = self._expression(0)
        if self._peek.kind != "end":
            hint = "; `==` compares" if self._peek.text == "=" else ""
            raise self._error(self._peek, f"expected the end of the expression, got `{self._peek.text[:30]}`{hint}")
        return node

    def _lexed(self, text: str) -> list[_Lexeme]:
        lexemes = []
        for match in _LEXEME.finditer(text):
            kind, word = str(match.lastgroup), match.group()
            lexeme = _Lexeme(kind, _SYNONYMS.get(word, word), match.start())
            if kind == "other":
                is_quote = word in "'\"`"
                what = "the string is not closed" if is_quote else f"unexpected character `{word}` in the expression"
                what += "; strings stand in single quotes" if word == "." else ""
                raise self._error(lexeme, what)
            if kind != "blank":
                lexemes.append(lexeme)
        return [*lexemes, _Lexeme("end", "", max(0, len(text) - 1))]

    def _error(self, lexeme: _Lexeme, reason: str) -> CorefileError:
        at = lexeme.at
        for word in self._words:
            if at <= len(word.text):
                break
            at -= len(word.text) + 1
        is_unquoted = len(self._words) > 1 and any(token.quoted and "'" not in token.text for token in self._words)
        return word.error(reason + SINGLE_QUOTES if is_unquoted else reason)

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
            got = f"`{self._peek.text[:30]}`" if self._peek.text else "the end"
            raise self._error(self._peek, f"expected `{text}` in the expression, got {got}")

    def _want(self, at: _Lexeme, node: Expression, kind: ValueKind, where: str) -> _Evaluate:
        """Checks the kind of a node now, or at evaluation if the text does not determine it."""
        if not fits(node.kind, kind):
            raise self._error(at, f"expected a {kind.value} {where}, got a {node.kind.value}")
        run = node.run
        if node.kind is not ANY or kind is ANY:
            return run

        def checked(scope: _Scope) -> Value:
            value = run(scope)
            if not fits(kind_of(value), kind):
                raise EvaluationError(f"expected a {kind.value}, got a {kind_of(value).value}")
            return value

        return checked

    def _applied(self, at: _Lexeme, name: str, function: Function, *nodes: Expression) -> Expression:
        """A function of nodes; unknown kinds are checked at evaluation, and the result is bounded."""
        rows, call, of_query, is_counted = function.rows, function.call, function.of_query, bool(self._elements)
        runs, is_known = [node.run for node in nodes], all(node.kind is not ANY for node in nodes)
        taken: set[tuple[type, ...]] = set()

        def kind_on(kinds: tuple[ValueKind, ...]) -> ValueKind:
            kind = result_kind(rows, kinds)
            if kind is None:
                raise EvaluationError(f"`{name}` does not take {' and '.join(f'a {kind.value}' for kind in kinds)}")
            return kind

        def run(scope: _Scope) -> Value:
            values = [get(scope) for get in runs]
            if not is_known and (types := tuple(map(type, values))) not in taken:
                kind_on(tuple(map(kind_of, values)))
                taken.add(types)
            result = bounded(call(scope.environment, *values) if of_query else call(*values))
            if is_counted:
                scope.spend(_steps((*values, result)))
            return result

        try:
            kind = kind_on(tuple(node.kind for node in nodes))
        except EvaluationError as error:
            raise self._error(at, str(error)) from error
        return Expression(kind, run, function.is_of_packet and _depends(*nodes))

    def _expression(self, binding: int) -> Expression:
        """The longest expression whose operators have at least this precedence."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(self._peek, f"expressions within expressions, more than {MAX_DEPTH} deep")
        left = self._unary()
        while True:
            sign = self._peek
            is_negated = sign.kind == "name" and sign.text == "not"
            if is_negated:
                sign = self._lexemes[self._next + 1]
            is_operator = sign.kind in {"sign", "name"} and BINDING.get(sign.text, -1) >= binding
            if not is_operator or (is_negated and sign.text not in _NEGATABLE):
                break
            self._next += 1 + is_negated
            left = self._binary(sign, left)
            if is_negated:
                left = self._negated(sign, left)
        if binding == 0 and self._is("?"):
            left = self._choice(self._take(), left)
        self._depth -= 1
        return left

    def _choice(self, sign: _Lexeme, condition: Expression) -> Expression:
        test = self._want(sign, condition, BOOL, "before `?`")
        left = self._expression(0)
        self._expect(":")
        right = self._expression(0)
        return Expression(
            _common((left.kind, right.kind)),
            lambda scope: left.run(scope) if test(scope) else right.run(scope),
            _depends(condition, left, right),
        )

    def _negated(self, sign: _Lexeme, node: Expression) -> Expression:
        run = self._want(sign, node, BOOL, f"after `{sign.text}`")
        return Expression(BOOL, lambda scope: not run(scope), node.is_of_packet)

    def _unary(self) -> Expression:
        sign = self._peek
        if self._accept("not"):
            return self._negated(sign, self._expression(_NOT_BINDING))
        if self._accept("-"):
            operand = self._expression(_SIGN_BINDING)
            return self._applied(sign, "-", OPERATORS["-"], _constant(0), operand)
        return self._postfix(self._primary())

    def _binary(self, sign: _Lexeme, left: Expression) -> Expression:
        text = sign.text
        if text == "|":
            return self._call(self._take(), left)
        right = self._expression(BINDING[text] + 1)
        match text:
            case "and" | "or":
                test = self._want(sign, left, BOOL, f"before `{text}`")
                then = self._want(sign, right, BOOL, f"after `{text}`")
                run: _Evaluate = lambda scope: test(scope) and then(scope)  # noqa: E731 - one of two
                if text == "or":
                    run = lambda scope: test(scope) or then(scope)  # noqa: E731 - the other one
                return Expression(BOOL, run, _depends(left, right))
            case "??":
                return Expression(
                    right.kind if left.kind is NIL else _common((left.kind, right.kind)),
                    lambda scope: right.run(scope) if (value := left.run(scope)) is None else value,
                    _depends(left, right),
                )
            case "matches":
                return self._matches(sign, left, right)
        return self._applied(sign, text, OPERATORS[text], left, right)

    def _matches(self, sign: _Lexeme, left: Expression, right: Expression) -> Expression:
        patterns: dict[str, Pattern] = {}
        for choice in right.choices or (None,):
            if not isinstance(choice, str):
                raise self._error(sign, "expected a regular expression in quotes after `matches`")
            try:
                patterns[choice] = compiled(choice)
            except ValueError as error:
                raise self._error(sign, f"expected a regular expression in RE2 syntax, as in Go: {error}") from error
        search = Function(((STRING, STRING, BOOL),), lambda text, pattern: bool(patterns[pattern].search(text)))
        return self._applied(sign, "matches", search, left, right)

    def _primary(self) -> Expression:
        lexeme = self._take()
        match lexeme.kind, lexeme.text:
            case "number", text:
                try:
                    return _constant(
                        bounded(float(text) if "." in text else int(text, 0 if text[1:2].isalpha() else 10))
                    )
                except (ValueError, EvaluationError) as error:
                    raise self._error(lexeme, f"expected a number of at most 64 bits, got `{text[:30]}`") from error
            case "string", text:
                try:
                    return _constant(unquoted(text))
                except ValueError as error:
                    raise self._error(lexeme, f"{error}; write a backslash in a string twice") from error
            case "name", _:
                return self._named(lexeme)
            case "element", _ if self._elements:
                return self._elements[-1]
            case "element", _:
                raise self._error(lexeme, "`#` outside of a predicate, such as in `any(LIST, # > 1)`")
            case "sign", "(":
                inner = self._expression(0)
                self._expect(")")
                return inner
            case "sign", "[":
                return self._list()
        got = f"`{lexeme.text}`" if lexeme.text else f"the end{COMMENT if self._elements else ''}"
        raise self._error(lexeme, f"expected a value in the expression, got {got}")

    def _named(self, lexeme: _Lexeme) -> Expression:
        name = lexeme.text
        if name in _CONSTANTS:
            return _constant(_CONSTANTS[name])
        if name in RESERVED:
            raise self._error(lexeme, f"expected a value in the expression, got `{name}`")
        if self._is("("):
            return self._call(lexeme)
        if name in self._functions or name in PREDICATES:
            raise self._error(lexeme, f"`{name}` is a function: `{name}(...)` calls it")
        if name not in self._variables:
            raise self._unknown(lexeme, (*self._variables, *self._functions, *PREDICATES))
        return Expression(self._variables[name], lambda scope: scope.environment.variables[name])

    def _unknown(self, lexeme: _Lexeme, names: Sequence[str]) -> CorefileError:
        name, meant = lexeme.text, closest(lexeme.text, names)
        hint = f"did you mean `{meant}`?" if meant else f"there are {', '.join(sorted(names))}"
        return self._error(lexeme, f"unknown name `{name[:50]}` in the expression; {hint}")

    def _call(self, name: _Lexeme, *piped: Expression) -> Expression:
        if predicate := PREDICATES.get(name.text):
            return self._predicate(name, predicate, piped)
        function = self._functions.get(name.text)
        if function is None:
            raise self._unknown(name, (*self._functions, *PREDICATES))
        self._expect("(")
        arguments, counts = [*piped, *self._values(")")], [len(row) - 1 for row in function.rows]
        if len(arguments) not in counts:
            raise self._error(name, f"`{name.text}` takes {max(counts)} arguments and got {len(arguments)}")
        if check := function.check:
            try:
                for choice in arguments[-1].choices or ():
                    check(choice)
            except EvaluationError as error:
                raise self._error(name, str(error)) from error
        return self._applied(name, name.text, function, *arguments)

    def _predicate(self, name: _Lexeme, predicate: Predicate, piped: Sequence[Expression]) -> Expression:
        """The expression about the elements may be in braces."""
        self._expect("(")
        values = piped[0] if piped else self._expression(0)
        elements = self._want(name, values, LIST, f"as the first argument of `{name.text}`")
        choices = None if values.choices is None else tuple(element for known in values.choices for element in known)
        kind = _common([kind_of(choice) for choice in choices]) if choices else ANY
        self._elements.append(Expression(kind, lambda scope: scope.element, values.is_of_packet, choices))
        if not piped and not self._accept(","):
            reason = f"`{name.text}` takes a list and an expression about its elements, such as `# > 1`"
            raise self._error(name, reason)
        start, is_braced = self._next, self._accept("{")
        body = self._expression(0)
        if is_braced:
            self._expect("}")
        test = self._want(name, body, predicate.body, f"as the predicate of `{name.text}`")
        self._elements.pop()
        steps = 1 + (self._next - start) // STEP_WORDS
        self._expect(")")

        def pairs(scope: _Scope) -> Iterator[tuple[Value, Value]]:
            for element in elements(scope):
                scope.element = element
                scope.spend(steps)
                yield element, test(scope)

        def run(scope: _Scope) -> Value:
            outer = scope.element
            try:
                return bounded(predicate.call(pairs(scope)))
            finally:
                scope.element = outer

        return Expression(predicate.result, run, _depends(values, body))

    def _values(self, closing: str) -> list[Expression]:
        nodes: list[Expression] = []
        while not self._accept(closing):
            if nodes:
                self._expect(",")
                if self._accept(closing):
                    break
            nodes.append(self._expression(0))
        return nodes

    def _list(self) -> Expression:
        nodes = self._values("]")
        if all(node.choices and len(node.choices) == 1 for node in nodes):
            return _constant(tuple(node.choices[0] for node in nodes if node.choices))
        return Expression(LIST, lambda scope: tuple(node.run(scope) for node in nodes), _depends(*nodes))

    def _postfix(self, node: Expression) -> Expression:
        while self._is("["):
            sign, key = self._take(), self._expression(0)
            self._expect("]")
            node = self._applied(sign, "[]", INDEX, node, key)
        return node
