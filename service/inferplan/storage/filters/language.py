"""The filter language's grammar (https://google.aip.dev/160) and its syntax tree.

Comparisons of a field with a value, joined by AND, OR and NOT. As in AIP-160, OR binds tighter than AND, a space
between two comparisons means AND, and a minus sign means NOT. Functions, and values without a field, are not part of
the subset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from inferplan.errors import InvalidInputError

MAXIMUM_FILTER_CHARACTERS = 10_000
MAXIMUM_NESTING = 30
MAXIMUM_COMPARISONS = 100

_GRAMMAR = r"""
start: expression
expression: sequence (_AND sequence)*
sequence: factor+
factor: term (_OR term)*
term: negation? (comparison | "(" expression ")")
negation: _NOT | "-"
comparison: field OPERATOR value
field: NAME ("." (NAME | STRING))?
value: STRING | TEXT

_AND.3: /AND(?![A-Za-z0-9_.\/-])/
_OR.3: /OR(?![A-Za-z0-9_.\/-])/
_NOT.3: /NOT(?![A-Za-z0-9_.\/-])/
OPERATOR.2: "!=" | "<=" | ">=" | "=" | "<" | ">" | ":"
NAME: /[A-Za-z_][A-Za-z0-9_\/-]*/
STRING: /"(\\.|[^"\\])*"|'(\\.|[^'\\])*'/
TEXT: /[^\s()"'=<>!:][^\s()"']*/
%ignore /\s+/
"""

EXAMPLE = 'model = "llama-3.1-8b" AND cost_per_hour < 20'


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value. `key` is a label's; `position` counts the filter's characters from 1."""

    field: str
    key: str | None
    operator: str
    value: str
    position: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every term holds."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one term holds."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The term does not hold."""

    term: Expression


Expression = Comparison | AllOf | AnyOf | Negation


def parse(text: str, path: str = "filter") -> Expression:
    """The filter's syntax tree. Raises InvalidInputError with the position of what cannot be read."""
    if len(text) > MAXIMUM_FILTER_CHARACTERS:
        raise InvalidInputError.single(path, f"has {len(text)} characters; legal: at most {MAXIMUM_FILTER_CHARACTERS}")
    if _nesting(text) > MAXIMUM_NESTING:
        raise InvalidInputError.single(path, f"is nested deeper than {MAXIMUM_NESTING} parentheses")
    try:
        tree = _PARSER.parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error, path) from None
    expression = _ToExpression().transform(tree)
    count = len(comparisons(expression))
    if count > MAXIMUM_COMPARISONS:
        raise InvalidInputError.single(path, f"has {count} comparisons; legal: at most {MAXIMUM_COMPARISONS}")
    return expression


def comparisons(expression: Expression) -> list[Comparison]:
    """All of them, in the order in which they stand."""
    if isinstance(expression, Comparison):
        return [expression]
    if isinstance(expression, Negation):
        return comparisons(expression.term)
    return [found for term in expression.terms for found in comparisons(term)]


def _nesting(text: str) -> int:
    """Most parentheses that are open at once, quoted ones among them: an upper bound is all that is needed."""
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _syntax_error(text: str, error: UnexpectedInput, path: str) -> InvalidInputError:
    position = error.pos_in_stream
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    if at_end or position is None or not 0 <= position < len(text):
        where = "ends too early"
    else:
        where = f"cannot be read from character {position + 1}, {text[position : position + 30]!r}, on"
    legal = (
        f"legal are comparisons with = != < <= > >= and :, joined by AND, OR, NOT and parentheses, such as {EXAMPLE}"
    )
    return InvalidInputError.single(path, f"{where}; {legal}", "FILTER_SYNTAX")


def _unquoted(token: Token) -> str:
    if token.type != "STRING":
        return str(token)
    body, characters, escaped = token[1:-1], [], False
    for character in body:
        if not escaped and character == "\\":
            escaped = True
            continue
        characters.append(character)
        escaped = False
    return "".join(characters)


@v_args(inline=True)
class _ToExpression(Transformer[Token, Expression]):
    """The parse tree's rules, one method each."""

    def start(self, expression: Expression) -> Expression:
        return expression

    def expression(self, *terms: Expression) -> Expression:
        return terms[0] if len(terms) == 1 else AllOf(terms)

    def sequence(self, *terms: Expression) -> Expression:
        return terms[0] if len(terms) == 1 else AllOf(terms)

    def factor(self, *terms: Expression) -> Expression:
        return terms[0] if len(terms) == 1 else AnyOf(terms)

    def negation(self, *_tokens: Token) -> bool:
        return True

    def term(self, *parts: Expression | bool) -> Expression:
        term = cast(Expression, parts[-1])
        return Negation(term) if len(parts) > 1 else term

    def comparison(self, field: tuple[Token, str | None], operator: Token, value: Token) -> Comparison:
        name, key = field
        position = (name.start_pos or 0) + 1
        return Comparison(str(name), key, str(operator), _unquoted(value), position, value.type == "STRING")

    def field(self, name: Token, key: Token | None = None) -> tuple[Token, str | None]:
        return name, None if key is None else _unquoted(key)

    def value(self, token: Token) -> Token:
        return token


_PARSER = Lark(_GRAMMAR, parser="lalr", lexer="contextual")
