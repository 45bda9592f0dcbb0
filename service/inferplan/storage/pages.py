"""Keyset pages, and the opaque tokens that carry a position between calls.

A page goes on after the (create_time, id) of the last entry, so it costs the same however far down it is, and entries
that come in meanwhile neither repeat nor hide others. A token is signed together with the list that it belongs to: the
collection, its parent, the filter and the order. One that is forged, cut off or used with another list is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from sqlalchemy import Row, select

from inferplan.errors import InvalidInputError, StorageStateError
from inferplan.storage.database import Database
from inferplan.storage.failures import UPGRADE_COMMAND
from inferplan.storage.tables import ServiceSecretRow

DEFAULT_PAGE_SIZE = 50
MAXIMUM_PAGE_SIZE = 1000

MAXIMUM_PAGE_BYTES = 3 * 1024 * 1024
"""Payload that one page may hold; as protobuf it is smaller, so that a reply stays below gRPC's 4 MiB."""

PAGE_TOKEN_KEY = "page_token_key"

_Item = TypeVar("_Item")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMAT_VERSION = 2
_POSITION = struct.Struct(">Bqq")  # format version, microseconds since the epoch, id
_SIGNATURE_BYTES = 16


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The position of an entry in a list. `keys` are its values of what the list is ordered by before its time."""

    create_time: datetime
    id: int
    keys: tuple[str | int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Page(Generic[_Item]):
    """One page; `next_cursor` is None on the last."""

    items: tuple[_Item, ...]
    next_cursor: PageCursor | None = None


@dataclass(frozen=True, slots=True)
class ListScope:
    """Which list a token belongs to: everything in a request that changes which entries come, or in which order."""

    collection: str
    parent: str = ""
    filter: str = ""
    order_by: str = ""
    show_deleted: bool = False


class PageTokens:
    """Makes and reads tokens. All replicas of a service share the key, which lies in the database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, database: Database) -> PageTokens:
        """The tokens of this database. Raises StorageStateError if its key is not there."""
        with database.read() as session:
            key = session.scalar(select(ServiceSecretRow.value).where(ServiceSecretRow.name == PAGE_TOKEN_KEY))
        if key is None:
            raise StorageStateError(f"{database.display} lacks the key of page tokens; run `{UPGRADE_COMMAND}`")
        return cls(key)

    def encode(self, cursor: PageCursor | None, scope: ListScope) -> str:
        """The token of the page that follows `cursor`; empty if there is none."""
        if cursor is None:
            return ""
        microseconds = (cursor.create_time - _EPOCH) // timedelta(microseconds=1)
        position = _POSITION.pack(_FORMAT_VERSION, microseconds, cursor.id)
        position += json.dumps(cursor.keys, ensure_ascii=False, separators=(",", ":")).encode() if cursor.keys else b""
        return base64.urlsafe_b64encode(position + self._signature(position, scope)).decode().rstrip("=")

    def decode(self, token: str, scope: ListScope) -> PageCursor | None:
        """The position that `token` holds, None for an empty one. Raises InvalidInputError if it was not made here."""
        if not token:
            return None
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused() from None
        position, signature = data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(position, scope)):
            raise _refused()
        version, microseconds, row_id = _POSITION.unpack(position[: _POSITION.size])
        if version != _FORMAT_VERSION:
            raise _refused()  # of another release, from before an upgrade
        keys = tuple(json.loads(position[_POSITION.size :] or b"[]"))
        return PageCursor(_EPOCH + timedelta(microseconds=microseconds), row_id, keys)

    def _signature(self, position: bytes, scope: ListScope) -> bytes:
        signer = hmac.new(self._key, position, hashlib.sha256)
        for part in (scope.collection, scope.parent, scope.filter, scope.order_by, str(scope.show_deleted)):
            encoded = part.encode("utf-8", "surrogatepass")
            # With its length before it, no part can pass for the end of another.
            signer.update(struct.pack(">Q", len(encoded)) + encoded)
        return signer.digest()[:_SIGNATURE_BYTES]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which part of a list: `page_size` 0 means the default; filter and order as callers write them, empty for none."""

    page_size: int = 0
    cursor: PageCursor | None = None
    filter: str = ""
    order_by: str = ""
    show_deleted: bool = False


EVERYTHING = ListQuery()


def page_size_of(requested: int) -> int:
    """The page size that is used for a requested one. Raises InvalidInputError for a negative one."""
    if requested < 0:
        raise InvalidInputError.single(
            "page_size",
            f"is {requested}; legal: 0 (for {DEFAULT_PAGE_SIZE}) to {MAXIMUM_PAGE_SIZE}, more is taken as the latter",
        )
    return min(requested, MAXIMUM_PAGE_SIZE) or DEFAULT_PAGE_SIZE


def within_bytes(positions: Sequence[Row[int, int]], maximum_bytes: int) -> list[int]:
    """The leading ids of (id, payload bytes) whose payloads fit a page together, at least one if there are any."""
    ids: list[int] = []
    total_bytes = 0
    for row_id, payload_bytes in positions:
        total_bytes += payload_bytes
        if ids and total_bytes > maximum_bytes:
            break
        ids.append(row_id)
    return ids


def _refused() -> InvalidInputError:
    return InvalidInputError.single(
        "page_token",
        "is not a token of this list: it was changed, cut off, or made for another parent, filter or order; "
        "begin with an empty token",
        "INVALID_PAGE_TOKEN",
    )
