"""Text of an expression → a function of a query; what is wrong with it is an error at its word.

The language is expr-lang (github.com/expr-lang/expr). Kinds are checked when the Corefile is read.
Differs: dates, JSON and `$env` are not there; the pattern of `matches` is determined by the text, so that nothing that
a client sends becomes a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, TypeAlias

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError
from kdns.serverblocks.expressions.functions import (
    BUILTINS,
    PREDICATES,
    UNSUPPORTED,
    Environment,
    Function,
    Predicate,
)
from kdns.serverblocks.expressions.literals import unquoted
from kdns.serverblocks.expressions.values import (
    ANY,
    BOOL,
    INT,
    LIST,
    MAP,
    NIL,
    NUMBERS,
    OPERATORS,
    STRING,
    EvaluationError,
    Value,
    ValueKind,
    bounded,
    fits,
    kind_of,
)
from kdns.serverblocks.patterns import MAX_REGEX_CHARS, Pattern, compiled
from kdns.spelling import closest

SINGLE_QUOTES: Final = "; double quotes are the Corefile's, strings of an expression stand in single quotes"
COMMENT: Final = "; an expression with # stands in double quotes, # begins a comment outside of them"
MAX_EXPRESSION_CHARS: Final = 10_000
MAX_DEPTH: Final = 40
"""The deepest nesting of expressions."""
MAX_STEPS: Final = 4000
"""The work of all predicates in one evaluation; a step takes about a microsecond, so all take less than 10 ms.

A function or operator takes a step, and more for what it gets and gives: one for each value of a list and for each
STEP_CHARS of a string. Each element takes a step, and more for each STEP_WORDS in its predicate.
"""
STEP_CHARS: Final = 4
STEP_WORDS: Final = 4

_LEXEME: Final = re.compile(
    r"""(?P<blank>\s+|/\*.*?\*/|//[^\n]*)
      | (?P<number>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+
          |(?:[0-9][0-9_]*)?\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?|[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?)
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`)
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<pointer>\#[a-z]*)
      | (?P<sign>\*\*|&&|\|\||==|!=|<=|>=|\?\?|\?\.|\.\.|[-+*/%^<>!?:(),.;=|{}\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_SYNONYMS: Final = {"||": "or", "&&": "and", "!": "not"}
_BINDING: Final = {
    "|": 0, "or": 10, "and": 15, "matches": 20, "??": 500, **{name: row.binding for name, row in OPERATORS.items()},
}  # fmt: skip
"""The precedence of each binary operator, as in expr-lang."""
_NEGATABLE: Final = frozenset(("in", "matches", "contains", "startsWith", "endsWith"))
_NOT_BINDING: Final = 50
_SIGN_BINDING: Final = 90
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "nil": None}

RESERVED: Final = frozenset((*_CONSTANTS, *(word for word in _BINDING if word.isalpha()), "not", "let", "if", "else"))
"""Words that cannot be names of variables."""
FUNCTION_NAMES: Final = frozenset((*BUILTINS, *PREDICATES, *UNSUPPORTED))
"""Names of functions of the language, which cannot be names of variables either."""


class _Lexeme(NamedTuple):
    kind: str
    text: str
    at: int


@dataclass(slots=True)
class _Scope:
    """One evaluation: its data, variables of `let`, and the element that the innermost predicate is about."""

    environment: Environment
    lets: dict[str, Value] = field(default_factory=dict)
    steps_left: int = MAX_STEPS
    element: Value = None
    index: int = 0
    accumulator: Value = None

    def spend(self, steps: int) -> None:
        """Accounts for work of a predicate; EvaluationError after too much."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise EvaluationError(f"predicates of more than {MAX_STEPS} steps")


_Evaluate: TypeAlias = Callable[[_Scope], Value]


class _Node(NamedTuple):
    """Part of an expression. `choices` are all values that it may have, None if they depend on the query."""

    kind: ValueKind
    run: _Evaluate
    is_of_packet: bool = True
    choices: tuple[Value, ...] | None = None
    is_range: bool = False


class Expression(NamedTuple):
    """A compiled expression. `is_of_packet`: its value depends on the packet only."""

    kind: ValueKind
    run: _Evaluate
    is_of_packet: bool

    def value(self, environment: Environment) -> Value:
        """Returns its value for a query; raises EvaluationError."""
        try:
            return self.run(_Scope(environment))
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise EvaluationError(f"an expression that does not fit its values: {error}") from error


def expression(
    words: Sequence[Token], functions: Mapping[str, Function], variables: Mapping[str, ValueKind] | None = None
) -> Expression:
    """Returns the words of an option, joined by blanks as in CoreDNS, as an expression; raises CorefileError."""
    text = " ".join(word.text for word in words)
    if len(text) > MAX_EXPRESSION_CHARS:
        raise words[0].error(f"expected an expression of at most {MAX_EXPRESSION_CHARS} characters, got {len(text)}")
    node = _Parser(words, text, {**BUILTINS, **functions}, variables or {}).whole()
    return Expression(node.kind, node.run, node.is_of_packet)


def _constant(value: Value) -> _Node:
    return _Node(kind_of(value), lambda _: value, choices=(value,))


def _depends(*nodes: _Node) -> bool:
    return all(node.is_of_packet for node in nodes)


def _common(*nodes: _Node) -> ValueKind:
    kinds = {node.kind for node in nodes}
    return kinds.pop() if len(kinds) == 1 else ANY


class _Parser:
    """Operator precedence over the lexemes of one expression."""

    def __init__(
        self, words: Sequence[Token], text: str, functions: Mapping[str, Function], variables: Mapping[str, ValueKind]
    ) -> None:
        self._words = words
        self._functions = functions
        self._variables = variables
        self._lets: dict[str, _Node] = {}
        self._elements: list[tuple[_Node, Predicate]] = []
        """The element of each predicate around, the innermost last."""
        self._depth = 0
        self._next = 0
        self._lexemes = self._lexed(text)

    def whole(self) -> _Node:
        node = self._sequence()
        if self._peek.kind != "end":
            hint = "; `==` compares" if self._peek.text == "=" else ""
            self._fail(self._peek, f"expected the end of the expression, got `{self._peek.text[:30]}`{hint}")
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
                break
            at -= len(word.text) + 1
        is_unquoted = len(self._words) > 1 and any(each.quoted and "'" not in each.text for each in self._words)
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
            found = f"`{self._peek.text[:30]}`" if self._peek.text else "the end"
            self._fail(self._peek, f"expected `{text}` in the expression, got {found}")

    def _want(self, at: _Lexeme, node: _Node, kind: ValueKind, where: str) -> _Evaluate:
        """Returns the value of a node, whose kind is checked at evaluation if the text does not determine it."""
        if not fits(node.kind, kind):
            self._fail(at, f"expected a {kind.value} {where}, got a {node.kind.value}")
        run = node.run
        if node.kind is not ANY or kind is ANY:
            return run

        def checked(scope: _Scope) -> Value:
            value = run(scope)
            if not fits(kind_of(value), kind):
                raise EvaluationError(f"expected a {kind.value}, got a {kind_of(value).value}")
            return value

        return checked

    def _accounted(self, call: Callable[..., Value]) -> Callable[..., Value]:
        """Returns a function of a scope and values, which spends steps in a predicate, and whose result is bounded."""
        if not self._elements:
            return lambda _, *values: bounded(call(*values))

        def accounted(scope: _Scope, *values: Value) -> Value:
            result = bounded(call(*values))
            steps = 1
            for value in (*values, result):
                if type(value) is str:
                    steps += len(value) // STEP_CHARS
                elif type(value) is tuple:
                    steps += len(value)
            scope.spend(steps)
            return result

        return accounted

    def _sequence(self) -> _Node:
        """Parses an expression, with `let NAME = VALUE;` before it."""
        if not self._accept("let"):
            return self._expression(0)
        name = self._take()
        if name.kind != "name" or name.text in RESERVED:
            self._fail(name, f"expected the name of a variable after `let`, got `{name.text[:30]}`")
        if name.text in {*self._functions, *FUNCTION_NAMES, *self._variables, *self._lets}:
            self._fail(name, f"`{name.text}` is already the name of a function or variable")
        self._expect("=")
        value = self._expression(0)
        self._expect(";")
        key, run = name.text, value.run
        self._lets[key] = value._replace(run=lambda scope: scope.lets[key])
        inner = self._sequence()
        del self._lets[key]

        def assigned(scope: _Scope) -> Value:
            scope.lets[key] = run(scope)
            return inner.run(scope)

        return inner._replace(run=assigned, is_of_packet=_depends(value, inner))

    def _expression(self, binding: int) -> _Node:
        """Returns the longest expression whose operators have at least this precedence."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(self._peek, f"expressions within expressions, more than {MAX_DEPTH} deep")
        left = self._unary()
        while True:
            sign = self._peek
            is_negated = sign.kind == "name" and sign.text == "not"
            if is_negated:
                sign = self._lexemes[self._next + 1]
            is_operator = sign.kind in {"sign", "name"} and _BINDING.get(sign.text, -1) >= binding
            if not is_operator or (is_negated and sign.text not in _NEGATABLE):
                break
            self._next += 1 + is_negated
            left = self._binary(sign, left)
            if is_negated:
                left = self._negated(sign, left)
        sign = self._peek
        if binding == 0 and self._accept("?"):
            middle = left if self._is(":") else self._expression(0)
            self._expect(":")
            left = self._choice(sign, left, middle, self._expression(0))
        self._depth -= 1
        return left

    def _choice(self, sign: _Lexeme, condition: _Node, left: _Node, right: _Node) -> _Node:
        test, first, second = self._want(sign, condition, BOOL, f"before `{sign.text}`"), left.run, right.run
        choices = (*left.choices, *right.choices) if left.choices and right.choices else None
        return _Node(
            _common(left, right),
            lambda scope: first(scope) if test(scope) else second(scope),
            _depends(condition, left, right),
            choices,
        )

    def _negated(self, sign: _Lexeme, node: _Node) -> _Node:
        run = self._want(sign, node, BOOL, f"after `{sign.text}`")
        return _Node(BOOL, lambda scope: not run(scope), node.is_of_packet)

    def _unary(self) -> _Node:
        sign = self._peek
        if self._accept("not"):
            return self._negated(sign, self._expression(_NOT_BINDING))
        if self._accept("-") or self._accept("+"):
            operand = self._expression(_SIGN_BINDING)
            if operand.kind not in {*NUMBERS, ANY}:
                self._fail(sign, f"expected a number after `{sign.text}`, got a {operand.kind.value}")
            return operand if sign.text == "+" else self._combined(sign, _constant(0), operand)
        return self._postfix(self._primary())

    def _binary(self, sign: _Lexeme, left: _Node) -> _Node:
        """Returns an operator on what is before it and what follows."""
        text = sign.text
        if text == "|":
            return self._call(self._take(), left)
        right = self._expression(_BINDING[text] + (text not in {"**", "^"}))
        match text:
            case "and" | "or":
                test = self._want(sign, left, BOOL, f"before `{text}`")
                then = self._want(sign, right, BOOL, f"after `{text}`")
                run: _Evaluate = lambda scope: test(scope) and then(scope)  # noqa: E731 - one of two
                if text == "or":
                    run = lambda scope: test(scope) or then(scope)  # noqa: E731 - the other one
                return _Node(BOOL, run, _depends(left, right))
            case "??":
                first, second = left.run, right.run
                return _Node(
                    right.kind if left.kind is NIL else _common(left, right),
                    lambda scope: second(scope) if (value := first(scope)) is None else value,
                    _depends(left, right),
                )
            case "matches":
                return self._matches(sign, left, right)
        return self._combined(sign, left, right)

    def _combined(self, sign: _Lexeme, left: _Node, right: _Node) -> _Node:
        """Returns an operator on two values; unknown kinds are checked when it is evaluated."""
        operator, first, second = OPERATORS[sign.text], left.run, right.run
        kind = operator.takes(left.kind, right.kind)
        if kind is None:
            self._fail(sign, f"`{sign.text}` does not take a {left.kind.value} and a {right.kind.value}")
        apply = self._accounted(operator.apply)
        if ANY not in {left.kind, right.kind}:
            is_range = sign.text == ".."
            run: _Evaluate = lambda scope: apply(scope, first(scope), second(scope))  # noqa: E731 - named for its type
            return _Node(kind, run, _depends(left, right), is_range=is_range)
        accepted: set[tuple[type, type]] = set()

        def checked(scope: _Scope) -> Value:
            one, other = first(scope), second(scope)
            if (type(one), type(other)) not in accepted:
                if operator.takes(kind_of(one), kind_of(other)) is None:
                    raise EvaluationError(
                        f"`{sign.text}` does not take a {kind_of(one).value} and a {kind_of(other).value}"
                    )
                accepted.add((type(one), type(other)))
            return apply(scope, one, other)

        return _Node(kind, checked, _depends(left, right))

    def _matches(self, sign: _Lexeme, left: _Node, right: _Node) -> _Node:
        text = self._want(sign, left, STRING, "before `matches`")
        patterns: dict[str, Pattern] = {}
        for choice in right.choices or (None,):
            if not isinstance(choice, str):
                self._fail(sign, "expected a regular expression in quotes after `matches`")
            if len(choice) > MAX_REGEX_CHARS:
                self._fail(sign, f"expected a regular expression of at most {MAX_REGEX_CHARS} characters")
            try:
                patterns[choice] = compiled(choice)
            except ValueError as error:
                raise self._error(sign, f"expected a regular expression in RE2 syntax, as in Go: {error}") from error
        which = right.run
        search = self._accounted(lambda value, choice: patterns[choice].search(value) is not None)
        return _Node(BOOL, lambda scope: search(scope, text(scope), which(scope)), left.is_of_packet)

    def _primary(self) -> _Node:
        lexeme = self._take()
        match lexeme.kind:
            case "number":
                return self._number(lexeme)
            case "string":
                try:
                    return _constant(unquoted(lexeme.text))
                except ValueError as error:
                    raise self._error(lexeme, f"{error}; write a backslash in a string twice") from error
            case "name":
                return self._named(lexeme)
            case "pointer":
                return self._pointer(lexeme)
        match lexeme.text:
            case "(":
                inner = self._sequence()
                self._expect(")")
                return inner
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "." if self._elements:
                self._next -= 1
                return self._pointer(lexeme._replace(text="#"))
        found = f"`{lexeme.text}`" if lexeme.text else f"the end{COMMENT if self._elements else ''}"
        raise self._error(lexeme, f"expected a value in the expression, got {found}")

    def _number(self, lexeme: _Lexeme) -> _Node:
        text = lexeme.text.replace("_", "").lower()
        try:
            is_whole = text[:2] in {"0x", "0b", "0o"} or text.isdecimal()
            return _constant(bounded(int(text, 0 if text[1:2].isalpha() else 10) if is_whole else float(text)))
        except (ValueError, EvaluationError) as error:
            raise self._error(lexeme, f"expected a number of at most 64 bits, got `{lexeme.text[:30]}`") from error

    def _pointer(self, lexeme: _Lexeme) -> _Node:
        """Returns the element that the innermost predicate is about, its index, or what `reduce` has so far."""
        if not self._elements:
            self._fail(lexeme, f"`{lexeme.text}` outside of a predicate, such as in `any(LIST, # > 1)`")
        element, predicate = self._elements[-1]
        if lexeme.text == "#index":
            return _Node(INT, lambda scope: scope.index)
        if lexeme.text == "#acc" and predicate is PREDICATES["reduce"]:
            return _Node(ANY, lambda scope: scope.accumulator)
        if lexeme.text != "#":
            self._fail(lexeme, f"expected #, #index, or #acc in `reduce`, got `{lexeme.text}`")
        return element

    def _named(self, lexeme: _Lexeme) -> _Node:
        name = lexeme.text
        if name in _CONSTANTS:
            return _constant(_CONSTANTS[name])
        if name in RESERVED:
            self._fail(lexeme, f"expected a value in the expression, got `{name}`")
        if self._is("("):
            return self._call(lexeme)
        if name in self._functions or name in PREDICATES:
            self._fail(lexeme, f"`{name}` is a function: `{name}(...)` calls it")
        if name in self._lets:
            return self._lets[name]
        if name not in self._variables:
            if self._peek.text == ".":
                self._fail(lexeme, f"unknown name `{name[:50]}` in the expression; strings stand in single quotes")
            self._fail(lexeme, self._unknown(name, (*self._lets, *self._variables, *self._functions, *PREDICATES)))
        return _Node(self._variables[name], lambda scope: scope.environment.variables[name])

    def _unknown(self, name: str, names: Sequence[str]) -> str:
        if name in UNSUPPORTED:
            return f"the function `{name}` of expr-lang is not supported"
        meant = closest(name, names)
        hint = f"did you mean `{meant}`?" if meant else f"there are {', '.join(sorted(names))}"
        return f"unknown name `{name[:50]}` in the expression; {hint}"

    def _call(self, name: _Lexeme, *piped: _Node) -> _Node:
        """Returns a function of the values in parentheses, after those that a pipe gives."""
        if predicate := PREDICATES.get(name.text):
            return self._predicate(name, predicate, piped)
        function = self._functions.get(name.text)
        if function is None:
            self._fail(name, self._unknown(name.text, (*self._functions, *PREDICATES)))
        self._expect("(")
        arguments = [*piped, *self._values(")")]
        parameters = function.parameters
        if function.is_variadic:
            parameters = parameters * max(1, len(arguments))
        if not len(parameters) - function.optional <= len(arguments) <= len(parameters):
            self._fail(name, f"`{name.text}` takes {len(parameters)} arguments and got {len(arguments)}")
        runs = [
            self._want(name, argument, kind, f"as an argument of `{name.text}`")
            for argument, kind in zip(arguments, parameters, strict=False)
        ]
        for position, argument in enumerate(arguments if function.check else ()):
            for choice in argument.choices or ():
                if function.check and (reason := function.check(position, choice)):
                    self._fail(name, reason)
        is_of_packet = function.is_of_packet and _depends(*arguments)
        call = self._accounted(function.call)
        if function.of_query:
            run: _Evaluate = lambda scope: call(scope, scope.environment, *(run(scope) for run in runs))  # noqa: E731 - one of two
        else:
            run = lambda scope: call(scope, *(run(scope) for run in runs))  # noqa: E731 - the other one
        return _Node(function.result, run, is_of_packet)

    def _predicate(self, name: _Lexeme, predicate: Predicate, piped: Sequence[_Node]) -> _Node:
        """Returns a function of a list and an expression about its elements, which may stand in braces."""
        self._expect("(")
        values = piped[0] if piped else self._expression(0)
        elements = self._want(name, values, LIST, f"as the first argument of `{name.text}`")
        known = None if values.choices is None else tuple(element for choice in values.choices for element in choice)
        kind = _common(*map(_constant, known)) if known else INT if values.is_range else ANY
        body = element = _Node(kind, lambda scope: scope.element, values.is_of_packet, known)
        self._elements.append((element, predicate))
        start = self._next
        if self._accept(",") or (piped and not self._is(")")):
            is_braced = self._accept("{")
            body = self._sequence()
            if is_braced:
                self._expect("}")
        elif not predicate.optional:
            self._fail(name, f"`{name.text}` takes a list and an expression about its elements, such as `# > 1`")
        test = self._want(name, body, predicate.body, f"as the predicate of `{name.text}`")
        self._elements.pop()
        steps = 1 + (self._next - start) // STEP_WORDS
        initial = self._expression(0) if predicate is PREDICATES["reduce"] and self._accept(",") else None
        self._expect(")")

        def run(scope: _Scope) -> Value:
            items = elements(scope)
            outer = scope.element, scope.index, scope.accumulator
            try:
                if predicate is PREDICATES["reduce"]:
                    scope.accumulator = initial.run(scope) if initial else items[0]
                    items = items if initial else items[1:]
                    if not items:
                        return scope.accumulator
                return bounded(predicate.call(_pairs(scope, items, test, steps)))
            finally:
                scope.element, scope.index, scope.accumulator = outer

        return _Node(predicate.result, run, _depends(values, body, *([initial] if initial else [])))

    def _values(self, closing: str) -> list[_Node]:
        nodes: list[_Node] = []
        while not self._accept(closing):
            if nodes:
                self._expect(",")
                if self._accept(closing):
                    break
            nodes.append(self._expression(0))
        return nodes

    def _list(self) -> _Node:
        nodes = self._values("]")
        if all(node.choices and len(node.choices) == 1 for node in nodes):
            return _constant(tuple(node.choices[0] for node in nodes if node.choices))
        runs = tuple(node.run for node in nodes)
        return _Node(LIST, lambda scope: tuple(run(scope) for run in runs), _depends(*nodes))

    def _map(self) -> _Node:
        nodes: dict[str, _Node] = {}
        while not self._accept("}"):
            if nodes:
                self._expect(",")
            key = self._take()
            if key.kind not in {"name", "string", "number"}:
                self._fail(key, f"expected a key of a map, got `{key.text[:30]}`")
            self._expect(":")
            nodes[unquoted(key.text) if key.kind == "string" else key.text] = self._expression(0)
        runs = {key: node.run for key, node in nodes.items()}
        return _Node(MAP, lambda scope: {key: run(scope) for key, run in runs.items()}, _depends(*nodes.values()))

    def _postfix(self, node: _Node) -> _Node:
        """Returns a value with the fields, indexes and slices after it; after `?.`, those of nil are nil."""
        is_optional = False
        while True:
            sign = self._peek
            is_optional |= self._is("?.")
            if (self._accept("?.") or self._accept(".")) and not self._is("["):
                name = self._take()
                if name.kind != "name":
                    self._fail(name, f"expected the name of a field, got `{name.text[:30]}`")
                self._has(sign, node, MAP)
                node = self._element(node, _constant(name.text), is_optional=is_optional)
                continue
            if not self._accept("["):
                return node
            start = None if self._is(":") else self._expression(0)
            if self._accept(":"):
                self._has(sign, node, LIST, STRING)
                stop = None if self._is("]") else self._expression(0)
                node = self._slice(sign, node, start, stop)
            elif start:
                self._has(sign, node, LIST, STRING, MAP)
                if node.kind is not ANY:
                    self._want(sign, start, STRING if node.kind is MAP else INT, "as an index")
                node = self._element(node, start, is_optional=is_optional)
            self._expect("]")

    def _has(self, sign: _Lexeme, node: _Node, *kinds: ValueKind) -> None:
        if node.kind not in {*kinds, ANY}:
            self._fail(sign, f"a {node.kind.value} has no {'fields' if kinds == (MAP,) else 'elements'}")

    def _element(self, node: _Node, key: _Node, *, is_optional: bool) -> _Node:
        run, at = node.run, key.run

        def element(scope: _Scope) -> Value:
            value, which = run(scope), at(scope)
            if value is None and is_optional:
                return None
            if isinstance(value, dict) and isinstance(which, str):
                return value.get(which)
            if isinstance(value, tuple | str | range) and kind_of(which) is INT:
                return value[which]
            raise EvaluationError(f"a {kind_of(value).value} has no element at a {kind_of(which).value}")

        return _Node(STRING if node.kind is STRING else ANY, element, _depends(node, key))

    def _slice(self, sign: _Lexeme, node: _Node, start: _Node | None, stop: _Node | None) -> _Node:
        bounds = [self._want(sign, at or _constant(None), INT if at else NIL, "as an index") for at in (start, stop)]
        first, last = bounds
        run = node.run

        def sliced(scope: _Scope) -> Value:
            value = run(scope)
            if not isinstance(value, tuple | str | range):
                raise EvaluationError(f"a {kind_of(value).value} has no elements")
            return value[first(scope) : last(scope)]

        return _Node(node.kind, sliced, _depends(node, *(at for at in (start, stop) if at)))


def _pairs(scope: _Scope, items: Sequence[Value], test: _Evaluate, steps: int) -> Iterator[tuple[Value, Value]]:
    """Yields elements with the value of a predicate of so many steps, which is also what `reduce` has so far."""
    for scope.index, item in enumerate(items):
        scope.element = item
        scope.spend(steps)
        scope.accumulator = value = test(scope)
        yield item, value
