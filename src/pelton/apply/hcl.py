"""Terraform's language, read with python-hcl2: bodies of attributes and blocks, and their values.

Understood: texts with ``${...}``, numbers, truths, lists, maps, heredocs, ``+ - * / %``, parentheses, references and
the function ``jsonencode``. Anything else (other functions, conditions, ``for``) is an error that names it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pelton.apply.model import ConfigurationError, Node, NodeValue, Place, fault
from pelton.apply.values import plain_value, shown

Tree: TypeAlias = Any
"""A tree of the parser: ``data`` is its rule, ``children`` are trees and tokens."""
Expression: TypeAlias = "Tree | Node"
Resolve: TypeAlias = Callable[[list[str], Place], tuple[Node, int]]
"""Gives a reference's value, and how many of its words that needed."""

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_DEPTH_MOST = 100
_TERM = ("expr_term", "interpolation", "string_part")
_NAMES = {
    "function_call": "functions",
    "conditional": "conditions",
    "for_tuple_expr": "for expressions",
    "for_object_expr": "for expressions",
    "attr_splat_expr_term": "splats",
    "full_splat_expr_term": "splats",
    "template_if_start": "template directives",
    "template_for_start": "template directives",
    "template_else": "template directives",
    "template_string": "template directives",
}


@dataclass
class Body:
    """The inside of a file or block."""

    place: Place
    attributes: dict[str, tuple[Expression, Place]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Block:
    """``kind "label" "label" { body }``."""

    kind: str
    labels: list[str]
    body: Body
    place: Place


def read_hcl(text: str, file: str) -> Body:
    """The body of a file. ConfigurationError with line and column."""
    tree = _parse(text if text.endswith("\n") else text + "\n", file)
    return _body(tree.children[0], file)


def _parse(text: str, file: str) -> Tree:
    try:
        import hcl2
        from lark import UnexpectedInput
        from lark.exceptions import LarkError
    except ImportError:
        raise fault(
            Place(file), "Terraform needs the package python-hcl2: pip install 'pelton[terraform]'"
        ) from None
    try:
        return hcl2.parses_to_tree(text)
    except UnexpectedInput as error:
        line, column = max(error.line, 0), max(error.column, 0)
        token = getattr(error, "token", None)
        got = "the end of the file" if token is None or token.type == "$END" else _near(token)
        if token is None and line:
            rest = text.splitlines()[line - 1][column - 1 :].strip()
            got = repr(rest[:20]) if rest else "the end of the line"
        raise fault(Place(file, line, column), f"did not expect {got}") from None
    except RecursionError:
        raise fault(Place(file), "values are nested too deeply") from None
    except LarkError as error:
        raise fault(Place(file), " ".join(str(error).split())) from None


def _near(token: str) -> str:
    return repr(token.strip()[:20]) if token.strip() else "the end of the line"


def _is(child: object, *names: str) -> bool:
    return str(getattr(child, "data", "")) in names


def _place(node: object, file: str) -> Place:
    while hasattr(node, "children"):
        if not node.children:
            return Place(file)
        node = node.children[0]
    return Place(file, getattr(node, "line", 0) or 0, getattr(node, "column", 0) or 0)


def _body(tree: Tree, file: str) -> Body:
    body = Body(_place(tree, file))
    for child in tree.children:
        if _is(child, "attribute"):
            name, value = _text(child.children[0]), child.children[-1]
            place = _place(child, file)
            if name in body.attributes:
                raise fault(place, f'"{name}" is given twice, also at {body.attributes[name][1]}')
            body.attributes[name] = (value, place)
        elif _is(child, "block"):
            body.blocks.append(_block(child, file))
    return body


def _block(tree: Tree, file: str) -> Block:
    words, inner = [], Body(_place(tree, file))
    for child in tree.children:
        if _is(child, "body"):
            inner = _body(child, file)
        elif _is(child, "identifier", "keyword", "literal_value", "string"):
            words.append(_text(child))
    inner.place = _place(tree, file)
    return Block(words[0], words[1:], inner, _place(tree, file))


def _text(tree: object) -> str:
    """The words of a name or of a text without templates."""
    if not hasattr(tree, "children"):
        return str(tree)
    return "".join(_text(child) for child in tree.children).strip('"')


def _parts(tree: Tree) -> list[Tree]:
    """The children that are expressions: without signs, lines and comments."""
    return [
        child
        for child in tree.children
        if hasattr(child, "children") and not _is(child, "new_line_or_comment")
    ]


class Evaluator:
    """Values of expressions; ``resolve`` knows what references mean."""

    def __init__(self, file: str, resolve: Resolve) -> None:
        """Expressions are of this file."""
        self.file, self.resolve = file, resolve
        self._depth = 0

    def value(self, expression: Expression) -> Node:
        """The value of an expression. ConfigurationError."""
        if isinstance(expression, Node):
            return self.json(expression)
        place = _place(expression, self.file)
        if self._depth > _DEPTH_MOST:
            raise fault(place, "values are nested too deeply")
        self._depth += 1
        try:
            return self._evaluated(expression, place)
        finally:
            self._depth -= 1

    def _evaluated(self, expression: Tree, place: Place) -> Node:
        kind = str(expression.data)
        parts = _parts(expression)
        if kind in _TERM:
            if parts:
                return self.value(parts[0])
        elif kind in ("int_lit", "float_lit"):
            return Node(_number(_text(expression)), place)
        elif kind == "literal_value":
            return Node({"true": True, "false": False}.get(_text(expression)), place)
        elif kind == "string":
            return self.text(expression, place)
        elif kind == "tuple":
            return Node([self.value(each) for each in parts], place)
        elif kind == "object":
            return Node(dict(self.elements(parts)), place)
        elif kind == "binary_op":
            return self.binary(expression, place)
        elif kind == "unary_op":
            sign, operand = str(expression.children[0]), self.value(parts[0])
            if sign == "-":
                return Node(-_numeric(operand), place)
        elif kind in ("identifier", "get_attr_expr_term", "index_expr_term"):
            return self.reference(expression, place)
        elif kind in ("heredoc_template", "heredoc_template_trim"):
            return Node(_heredoc(_raw(expression), place), place)
        elif kind == "function_call" and _text(parts[0]) == "jsonencode":
            return Node(self.json_text(parts[1:], place), place)
        what = _NAMES.get(kind, "this expression")
        name = f' ("{_text(parts[0])}")' if kind == "function_call" else ""
        verb = "is" if what == "this expression" else "are"
        raise fault(place, f"{what}{name} {verb} not understood here")

    def json_text(self, parts: list[Tree], place: Place) -> str:
        """The result of ``jsonencode``: JSON in one line with sorted keys, as Terraform writes it."""
        arguments = [inner for each in parts for inner in _parts(each)]
        if len(arguments) != 1:
            raise fault(place, f"jsonencode takes one value, got {len(arguments)}")
        value = plain_value(self.value(arguments[0]))
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text

    def elements(self, parts: list[Tree]) -> Iterator[tuple[str, Node]]:
        """The entries of a map."""
        for each in parts:
            key, value = _parts(each)
            place = _place(key, self.file)
            inner = _parts(key)
            while inner and _is(inner[0], "expr_term"):
                inner = _parts(inner[0])
            bare = not inner or _is(inner[0], "identifier", "literal_value")
            name = _text(key) if bare else self.value(inner[0]).value
            found = self.value(value)
            yield str(name), Node(found.value, found.place, place)

    def binary(self, tree: Tree, place: Place) -> Node:
        """Arithmetic."""
        first, term = _parts(tree)[:2]
        sign, second = _parts(term)
        operator = _text(sign)
        if operator not in "+-*/%":
            raise fault(
                _place(sign, self.file), f'the operator "{operator}" is not understood here'
            )
        left, right = _numeric(self.value(first)), _numeric(self.value(second))
        if operator in "/%" and not right:
            raise fault(_place(second, self.file), "division by zero")
        result = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: _quotient(left, right),
            "%": lambda: left % right,
        }[operator]()
        if isinstance(result, float) and result.is_integer() and abs(result) < 1 << 53:
            result = int(result)
        return Node(result, place)

    def text(self, tree: Tree, place: Place) -> Node:
        """A text; one that is only ``${...}`` is that value."""
        parts = _parts(tree)
        if len(parts) == 1 and _is(parts[0].children[0], "interpolation"):
            return self.value(parts[0])
        found = ""
        for part in parts:
            inner = part.children[0]
            if hasattr(inner, "children"):
                value = self.value(inner)
                if isinstance(value.value, list | dict) or value.value is None:
                    raise fault(
                        _place(part, self.file),
                        f"a text cannot hold {shown(value.value)}",
                    )
                found += value.value if isinstance(value.value, str) else shown(value.value)
            elif inner.startswith(("$${", "%%{")):
                found += inner[1:]
            else:
                found += _unescaped(inner, _place(inner, self.file))
        return Node(found, place)

    def reference(self, tree: Tree, place: Place) -> Node:
        """``var.days``, ``local.names[0]``, ``jetstream_stream.LOGS.id``."""
        words = self.words(tree)
        found, used = self.resolve(words, place)
        for word in words[used:]:
            value = found.value
            if isinstance(value, dict) and word in value:
                found = value[word]
            elif isinstance(value, list) and word.isdigit() and int(word) < len(value):
                found = value[int(word)]
            else:
                raise fault(place, f'{".".join(words)}: there is no "{word}"')
        return Node(found.value, place)

    def words(self, tree: Tree) -> list[str]:
        """The words of a reference."""
        parts = _parts(tree)
        if _is(tree, "identifier", "literal_value"):
            return [_text(tree)]
        if _is(tree, "expr_term", "get_attr"):
            return self.words(parts[0])
        if _is(tree, "get_attr_expr_term"):
            return [*self.words(parts[0]), *self.words(parts[1])]
        if _is(tree, "index_expr_term"):
            head, index = parts
            if _is(index, "short_index"):
                return [*self.words(head), _text(index).lstrip(".")]
            return [*self.words(head), str(self.value(_parts(index)[0]).value)]
        raise fault(_place(tree, self.file), "this reference is not understood")

    def json(self, node: Node) -> Node:
        """A value of a ``.tf.json`` file, whose texts may have ``${...}``."""
        value: NodeValue = node.value
        if isinstance(value, list):
            return Node([self.json(each) for each in value], node.place, node.key)
        if isinstance(value, dict):
            fields = {name: self.json(each) for name, each in value.items()}
            return Node(fields, node.place, node.key)
        if isinstance(value, str) and ("${" in value or "%{" in value):
            # quotation marks inside of ${...} are those of the expression
            inside = re.sub(
                r"\$\{[^}]*\}|[^$]+|\$",
                lambda found: found[0] if found[0].startswith("${") else json.dumps(found[0])[1:-1],
                value,
            )
            try:
                body = read_hcl(f'value = "{inside}"\n', node.place.file)
                found = self.value(body.attributes["value"][0])
            except ConfigurationError as error:
                text = error.problems[0].text
                raise fault(node.place, text) from None
            return Node(found.value, node.place, node.key)
        return node


def _raw(tree: Tree) -> str:
    return str(tree.children[0])


def _number(text: str) -> int | float:
    return float(text) if re.search(r"[.eE]", text) else int(text)


def _numeric(node: Node) -> int | float:
    value = node.value
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        return _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fault(node.place, f"expected a number, got {shown(value)}")
    return value


def _quotient(left: float, right: float) -> int | float:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


def _unescaped(text: str, place: Place) -> str:
    def one(found: re.Match[str]) -> str:
        letter = found[1]
        if letter[0] in "uU" and len(letter) > 1:
            return chr(int(letter[1:], 16))
        if letter not in _ESCAPES:
            raise fault(place, f'the escape "\\{letter}" is not understood')
        return _ESCAPES[letter]

    return _ESCAPE.sub(one, text)


def _heredoc(text: str, place: Place) -> str:
    head, _, rest = text.partition("\n")
    lines = rest.rstrip("\n").split("\n")[:-1]
    inner = "".join(f"{line}\n" for line in lines)
    if "${" in inner or "%{" in inner:
        raise fault(place, "templates in a heredoc are not understood")
    return textwrap.dedent(inner) if head.startswith("<<-") else inner
