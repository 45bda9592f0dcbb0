"""The KV cache that engines logged at start-up (tests/data/kv_capacity.csv, each row with its source)."""

from __future__ import annotations

import pytest

from support.kv_capacity import GIBIBYTE, WITHIN, KvCapacityRow, kv_capacity_report, read_rows

ROWS = read_rows()
COMPARED = [row for row in ROWS if not row.not_compared_because]
MEASURED = [row for row in COMPARED if row.states_every_component]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.row)
def test_logged_components_give_the_logged_kv_cache(row: KvCapacityRow) -> None:
    estimate = row.estimate(with_measured_components=True)
    assert row.kv_cache_gib is not None
    assert estimate.kv_cache_bytes / GIBIBYTE == pytest.approx(row.kv_cache_gib, rel=0.01)
    if row.kv_cache_tokens is not None:
        assert estimate.kv_cache_tokens == pytest.approx(row.kv_cache_tokens, rel=0.01)


def test_llama_2_7b_on_an_h100_has_exactly_the_logged_blocks() -> None:
    row = next(row for row in ROWS if row.row == "pr550")
    estimate = row.estimate(with_measured_components=True)
    assert estimate.kv_blocks == 7191
    assert estimate.kv_cache_tokens == 115_056


# vllm-21348 is left out: its KV connector takes part of the memory that the log calls available.
WITH_TOKENS = [row for row in COMPARED if row.kv_cache_tokens and row.kv_cache_gib and row.row != "vllm-21348"]


@pytest.mark.parametrize("row", WITH_TOKENS, ids=lambda row: row.row)
def test_bytes_of_a_token_are_the_engine_s(row: KvCapacityRow) -> None:
    # The log rounds the gibibytes to two digits.
    assert row.kv_cache_gib is not None
    assert row.kv_cache_tokens is not None
    logged = row.kv_cache_gib * GIBIBYTE / row.kv_cache_tokens
    assert row.estimate(with_measured_components=False).kv_bytes_per_token == pytest.approx(logged, rel=0.003)


def test_constants_alone_are_within_five_percent_on_four_of_five_rows() -> None:
    errors = {row.row: row.error(row.estimate(with_measured_components=False)) for row in COMPARED}
    close = [name for name, error in errors.items() if abs(error) <= WITHIN]
    assert len(COMPARED) >= 15
    assert len(close) / len(COMPARED) >= 0.8, kv_capacity_report()


def test_every_row_that_is_off_says_what_its_log_does_not_state() -> None:
    for row in COMPARED:
        if abs(row.error(row.estimate(with_measured_components=False))) > WITHIN:
            assert row.notes, row.row


def test_the_row_that_refused_to_start_does_not_fit() -> None:
    row = next(row for row in ROWS if row.row == "k0008")
    estimate = row.estimate(with_measured_components=False)
    assert not estimate.fits
    assert estimate.broken_rules[0].rule == "NO_MEMORY_FOR_KV_CACHE"
    # The log: -1.44 GiB.
    assert estimate.kv_cache_bytes / GIBIBYTE == pytest.approx(-1.44, abs=0.1)


def test_window_aware_concurrency_is_the_logged_one() -> None:
    """Row k0033, gpt-oss-120b: 284.25 sequences of 16,384 tokens in 45.32 GiB, which is 2,640,144 nominal tokens."""
    row = next(row for row in ROWS if row.row == "k0033")
    estimate = row.estimate(with_measured_components=False)
    assert row.kv_cache_gib is not None
    scaled = estimate.concurrency_at_max_model_len * row.kv_cache_gib * GIBIBYTE / estimate.kv_cache_bytes
    assert scaled == pytest.approx(284.25, rel=0.001)


def test_rows_that_are_not_compared_are_listed_with_the_reason() -> None:
    report = kv_capacity_report()
    for row in ROWS:
        assert row.row in report
        assert row.source
        if row.not_compared_because:
            assert row.not_compared_because in report
