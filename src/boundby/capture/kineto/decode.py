"""Decodes bytes into events: in blocks if they are valid, event by event otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from boundby.capture.kineto.events import Event
from boundby.capture.kineto.stream import ByteStream
from boundby.model.errors import BoundbyError, NotATraceError

# Between two events. A quote inside a JSON string is escaped, so this does not match in one.
SEPARATOR = re.compile(rb'\}\s*,\s*(?=\{\s*")')
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY_END = re.compile(r"\s*\]")
_NOT_NUMBERS = re.compile(rb"(?<=[:\[,\s])-?(?:NaN|nan|Infinity|inf)(?=[\s,}\]])")
_HEADER_LIMIT = 64 << 20  # memory limit
_TAIL_LIMIT = 16 << 20  # memory limit
_EVENT_LIMIT = 64 << 20  # memory limit

_block = msgspec.json.Decoder(list[Event])
_single = msgspec.json.Decoder(Event)
_tolerant = json.JSONDecoder(strict=False)
_NOTHING = object()
_UNSOUND = (ValueError, msgspec.MsgspecError, RecursionError)


class _Block(NamedTuple):
    events: list[Event]
    bad: int = 0
    rest: bytes | None = None  # what follows the end of the array, if it ended here


class EventStream:
    """The events of a trace file in blocks; its metadata is known at the end."""

    def __init__(self, source: ByteStream) -> None:
        self._source = source
        self.metadata: dict[str, Any] = {}
        self.bad = 0
        self.truncated = False

    def __iter__(self) -> Iterator[list[Event]]:
        pieces = iter(self._source)
        buffer = bytearray(b"[") + self._header(pieces)
        tail: bytes | None = None
        searched = 0
        for piece in pieces:
            if tail is not None:
                tail += piece[: _TAIL_LIMIT - len(tail)]
                continue
            buffer += piece
            cut = _last_separator(buffer, searched)
            if cut is None:
                searched = max(0, len(buffer) - 1024)
                if len(buffer) > _EVENT_LIMIT:
                    self.bad += 1
                    buffer, searched = bytearray(b"["), 0
                continue
            end, following = cut.start() + 2, cut.end()
            left, searched = bytearray(b"[") + memoryview(buffer)[following:], 0
            buffer[end - 1] = ord("]")  # in place: copying whole pieces was a tenth of the time
            block = _decode(memoryview(buffer)[:end])
            buffer = left
            self.bad += block.bad
            yield block.events
            if block.rest is not None:
                tail = block.rest + b"," + left[1:]
        if tail is None:
            block = _decode_end(bytes(buffer[1:]))
            self.bad += block.bad
            tail = block.rest
            yield block.events
        self.truncated = self._source.broken or tail is None
        self.metadata |= _tolerant_object(b"{" + (tail or b"").lstrip(b" \t\r\n,"))

    def _header(self, pieces: Iterator[bytes]) -> bytes:
        """Read up to the first event; keep what precedes it; return what was read beyond."""
        buffer = b""
        for piece in pieces:
            buffer += piece
            text = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if text[:1] == b"[":
                return text[1:]
            if text and text[:1] != b"{":
                break
            if match := _EVENTS_KEY.search(text):
                before = text[: match.start()].rstrip(b" \t\r\n,")
                self.metadata |= _tolerant_object(before + b"}")
                return text[match.end() :]
            if len(buffer) > _HEADER_LIMIT:
                break
        path = self._source.path
        if not buffer:
            what = "it is empty" if not self._source.broken else "its gzip data is damaged"
            raise BoundbyError(f"{path}: not a profiler trace: {what}")
        raise NotATraceError(f"{path}: not a torch profiler trace: it has no traceEvents")


def _last_separator(buffer: bytearray, start: int) -> re.Match[bytes] | None:
    end = len(buffer)
    while (end := buffer.rfind(b"}", start, end)) >= 0:
        if match := SEPARATOR.match(buffer, end):
            return match
    return None


def _decode(array: memoryview) -> _Block:
    """An array of events; invalid if the real end of the array, and more, is inside it."""
    try:
        return _Block(_block.decode(array))
    except _UNSOUND:
        return _decode_repaired(bytes(array[1:-1]))


def _decode_end(body: bytes) -> _Block:
    """The last events and the end of the file, which usually has no other closing bracket."""
    close = body.rfind(b"]")
    if close >= 0:
        try:
            return _Block(_block.decode(b"[" + body[: close + 1]), 0, body[close + 1 :])
        except _UNSOUND:
            pass
    return _decode_repaired(body)


def _decode_repaired(body: bytes) -> _Block:
    repaired = body.decode("utf-8", "replace").encode()
    if b"NaN" in repaired or b"Infinity" in repaired:
        repaired = _NOT_NUMBERS.sub(b"null", repaired)
    try:
        return _Block(_block.decode(b"[" + repaired + b"]"))
    except _UNSOUND:
        return _decode_singly(repaired)


def _decode_singly(body: bytes) -> _Block:
    events: list[Event] = []
    bad = start = 0
    while start < len(body):
        cut = SEPARATOR.search(body, start)
        end, following = (cut.start() + 1, cut.end()) if cut else (len(body), len(body))
        part = body[start:end]
        try:
            events.append(_single.decode(part))
        except _UNSOUND:
            found, rest = _tolerant_entry(part)
            event = _lax_event(found)
            if event is not None:
                events.append(event)
            elif rest is None or found is not _NOTHING:
                bad += 1
            if rest is not None:
                return _Block(events, bad, rest + body[end:])
        start = following
    return _Block(events, bad)


def _tolerant_entry(part: bytes) -> tuple[Any, bytes | None]:
    """An entry that the strict decoder refused; and what follows the array, if it ends here."""
    text = _NOT_NUMBERS.sub(b"null", part).decode("utf-8", "replace").strip()
    found, end = _NOTHING, 0
    if not text.startswith("]"):
        try:
            found, end = _tolerant.raw_decode(text)
        except _UNSOUND:
            return _NOTHING, None
    if close := _ARRAY_END.match(text, end):
        return found, text[close.end() :].encode()
    return (_NOTHING if text[end:] else found), None


def _lax_event(entry: Any) -> Event | None:
    """An event whose numbers may be text, and whose empty fields may be null."""
    if not isinstance(entry, dict):
        return None
    present = {key: value for key, value in entry.items() if value is not None}
    try:
        return msgspec.json.decode(json.dumps(present), type=Event, strict=False)
    except _UNSOUND:
        return None


def _tolerant_object(text: bytes) -> dict[str, Any]:
    """The part of a JSON object that the file contains; damaged metadata must not make a file
    unreadable."""
    try:
        found, _ = _tolerant.raw_decode(text.decode("utf-8", "replace").strip())
    except _UNSOUND:
        return {}
    return found if isinstance(found, dict) else {}
