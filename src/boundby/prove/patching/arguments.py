"""Adds, replaces or removes keyword arguments of a call, in the call's own layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

_NO_SPACES = cst.AssignEqual(
    whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
)


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    return next((arg for arg in call.args if arg.keyword and arg.keyword.value == name), None)


def with_keywords(
    call: cst.Call, values: Mapping[str, str], drop: tuple[str, ...] = ()
) -> cst.Call:
    """The call with these keyword arguments, and without those of `drop`.

    A dictionary that is unpacked into the call may contain the same keywords: then they are merged
    into it, `**{**options, "fused": True}`, which overrides its entries.
    """
    args = [arg for arg in call.args if not (arg.keyword and arg.keyword.value in drop)]
    if args and len(args) < len(call.args):
        args[-1] = args[-1].with_changes(comma=call.args[-1].comma)
    missing = dict(values)
    for place, arg in enumerate(args):
        name = arg.keyword.value if arg.keyword else ""
        if name in missing:
            args[place] = arg.with_changes(value=cst.parse_expression(missing.pop(name)))
    unpacked = next((place for place, arg in enumerate(args) if arg.star == "**"), None)
    if unpacked is not None and (missing or drop):
        args[unpacked] = _merged(args[unpacked], missing, drop)
    elif missing:
        args = _appended(args, missing)
    return call.with_changes(args=args)


def _merged(arg: cst.Arg, values: Mapping[str, str], drop: tuple[str, ...]) -> cst.Arg:
    """`**options` with more entries. A dropped keyword is set to None, torch's default."""
    options: Any = arg.value
    if isinstance(options, cst.Call) and getattr(options.func, "value", None) == "dict":
        return arg.with_changes(value=with_keywords(options, values, drop))
    if isinstance(options, cst.Dict):
        return arg.with_changes(value=_extended(options, values, drop))
    code = cst.Module(body=[]).code_for_node(options)
    added = "".join(f', "{name}": {value}' for name, value in values.items())
    # Setting both is an error; the dictionary may contain the other one.
    cleared = "".join(f', "{name}": None' for name in drop)
    return arg.with_changes(value=cst.parse_expression(f"{{**{code}{added}{cleared}}}"))


def _extended(options: cst.Dict, values: Mapping[str, str], drop: tuple[str, ...]) -> cst.Dict:
    changed = {*values, *drop}
    remaining = [
        element
        for element in options.elements
        if not (
            isinstance(element, cst.DictElement)
            and isinstance(element.key, cst.SimpleString)
            and element.key.evaluated_value in changed
        )
    ]
    added = [
        cst.DictElement(key=cst.SimpleString(f'"{name}"'), value=cst.parse_expression(value))
        for name, value in values.items()
    ]
    return options.with_changes(elements=[*remaining, *added])


def _appended(args: list[cst.Arg], values: Mapping[str, str]) -> list[cst.Arg]:
    """Add arguments, one per line if the existing ones are."""
    added = [
        cst.Arg(keyword=cst.Name(name), value=cst.parse_expression(value), equal=_NO_SPACES)
        for name, value in values.items()
    ]
    if not args:
        return [*(_followed(arg, _SPACE) for arg in added[:-1]), added[-1]]
    last = args[-1]
    between = _between(args)
    # What followed the last argument, with its comma if it had one, now ends the call; a comment on
    # its line stays there.
    if isinstance(last.comma, cst.Comma):
        end = last.comma.whitespace_after
        closing: dict[str, Any] = {
            "comma": last.comma.with_changes(whitespace_after=_without_comment(end))
        }
    else:
        end = last.whitespace_after_arg
        closing = {"whitespace_after_arg": _without_comment(end)}
    first = _with_comment_of(end, between)
    last = last.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
    return [
        *args[:-1],
        _followed(last, first),
        *(_followed(arg, between) for arg in added[:-1]),
        added[-1].with_changes(**closing),
    ]


_SPACE = cst.SimpleWhitespace(" ")


def _followed(arg: cst.Arg, whitespace: cst.BaseParenthesizableWhitespace) -> cst.Arg:
    return arg.with_changes(comma=cst.Comma(whitespace_after=whitespace))


def _between(args: list[cst.Arg]) -> cst.BaseParenthesizableWhitespace:
    """The separator of a call's arguments: a space, or a new line as between the last two."""
    comma = args[-2].comma if len(args) > 1 else None
    after = comma.whitespace_after if isinstance(comma, cst.Comma) else _SPACE
    return _without_comment(after) if isinstance(after, cst.ParenthesizedWhitespace) else _SPACE


def _without_comment(
    whitespace: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(whitespace, cst.ParenthesizedWhitespace):
        return whitespace
    first = whitespace.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return whitespace.with_changes(first_line=first, empty_lines=[])


def _with_comment_of(
    behind: cst.BaseParenthesizableWhitespace, between: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(behind, cst.ParenthesizedWhitespace) or behind.first_line.comment is None:
        return between
    if isinstance(between, cst.ParenthesizedWhitespace):
        return between.with_changes(first_line=behind.first_line)
    return behind.with_changes(indent=True, last_line=cst.SimpleWhitespace("    "))
