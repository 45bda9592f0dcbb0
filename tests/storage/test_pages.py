from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.storage.database import Database
from inferplan.storage.pages import ListScope, PageCursor, PageTokens, page_size_of
from support.strategies import values_of

TOKENS = PageTokens(bytes(range(32)))
SCOPE = ListScope("plans", "deployments/chat", 'model = "llama-2-7b"', "create_time desc")
CURSOR = PageCursor(datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC), 42)


@given(
    time=st.datetimes(timezones=st.just(UTC)),
    row_id=st.integers(1, 2**63 - 1),
    scope=values_of(ListScope),
)
def test_a_token_gives_back_its_position(time: datetime, row_id: int, scope: ListScope) -> None:
    cursor = PageCursor(time, row_id)
    assert TOKENS.decode(TOKENS.encode(cursor, scope), scope) == cursor


def test_no_position_is_the_empty_token() -> None:
    assert TOKENS.encode(None, SCOPE) == ""
    assert TOKENS.decode("", SCOPE) is None


def test_a_position_in_another_time_zone_is_the_same_position() -> None:
    in_tokyo = replace(CURSOR, create_time=CURSOR.create_time.astimezone(timezone(timedelta(hours=9))))
    assert TOKENS.encode(in_tokyo, SCOPE) == TOKENS.encode(CURSOR, SCOPE)


def refused(token: str, scope: ListScope = SCOPE, tokens: PageTokens = TOKENS) -> None:
    with pytest.raises(InvalidInputError) as caught:
        tokens.decode(token, scope)
    assert [violation.field for violation in caught.value.violations] == ["page_token"]


@pytest.mark.parametrize(
    "other",
    [
        replace(SCOPE, collection="deployments"),
        replace(SCOPE, parent="deployments/search"),
        replace(SCOPE, filter=""),
        replace(SCOPE, order_by="create_time"),
        replace(SCOPE, show_deleted=True),
        # The same text, cut elsewhere.
        replace(SCOPE, parent=SCOPE.parent + SCOPE.filter[:3], filter=SCOPE.filter[3:]),
    ],
)
def test_a_token_of_another_list_is_refused(other: ListScope) -> None:
    refused(TOKENS.encode(CURSOR, SCOPE), other)


def test_a_token_of_another_database_is_refused() -> None:
    refused(TOKENS.encode(CURSOR, SCOPE), tokens=PageTokens(b"another key"))


def test_every_truncation_is_refused() -> None:
    token = TOKENS.encode(CURSOR, SCOPE)
    for length in range(1, len(token)):
        refused(token[:length])


def test_every_flipped_bit_is_refused() -> None:
    data = base64.urlsafe_b64decode(TOKENS.encode(CURSOR, SCOPE) + "==")
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        refused(base64.urlsafe_b64encode(changed).decode())


@given(st.text(min_size=1))
def test_any_other_text_is_refused(token: str) -> None:
    refused(token)


@pytest.mark.parametrize(("requested", "used"), [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (10**9, 1000)])
def test_page_sizes_are_capped(requested: int, used: int) -> None:
    assert page_size_of(requested) == used


def test_a_negative_page_size_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="page_size"):
        page_size_of(-1)


def test_replicas_share_the_key_through_the_database(database: Database, database_url: str) -> None:
    other_replica = Database.open(database_url)
    token = PageTokens.load(database).encode(CURSOR, SCOPE)
    assert PageTokens.load(other_replica).decode(token, SCOPE) == CURSOR
    assert PageTokens.load(database).encode(CURSOR, SCOPE) != TOKENS.encode(CURSOR, SCOPE)
    other_replica.close()
