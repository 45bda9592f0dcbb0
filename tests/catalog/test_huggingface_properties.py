"""No input makes the reader fail in another way than with InvalidInputError, and what it accepts keeps every rule."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.catalog import architecture_violations, read_huggingface_config
from inferplan.catalog.huggingface import KNOWN_MODEL_TYPES
from inferplan.errors import InvalidInputError

CONFIGS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parents[1] / "data" / "huggingface").glob("*.json"))
}
KEYS = sorted({key for config in CONFIGS.values() for key in config} | {"text_config", "vision_config"})

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, 2, 64, 4096]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=10,
)


def check_reading(text: str | bytes) -> None:
    """Either a sound architecture, or a refusal with paths below the field and sentences of bounded length."""
    try:
        architecture = read_huggingface_config(text, "config_json")
    except InvalidInputError as error:
        for violation in error.violations:
            assert violation.field.startswith("config_json")
            assert 0 < len(violation.description) < 2000
            violation.description.encode()
    else:
        assert architecture_violations(architecture) == []


@given(st.text() | st.binary())
def test_any_text(text: str | bytes) -> None:
    check_reading(text)


@given(json_values)
def test_any_json_value(value: object) -> None:
    check_reading(json.dumps(value))


@given(st.sampled_from(KNOWN_MODEL_TYPES), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=12))
@settings(max_examples=200)
def test_any_values_under_known_keys(model_type: str, values: dict[str, Any]) -> None:
    check_reading(json.dumps(values | {"model_type": model_type}))


@st.composite
def mutated_configs(draw: st.DrawFn) -> str:
    config = copy.deepcopy(CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(draw(st.integers(1, 3))):
        holder = config
        key = draw(st.sampled_from(sorted(holder)))
        while isinstance(holder[key], dict) and holder[key] and draw(st.booleans()):
            holder = holder[key]
            key = draw(st.sampled_from(sorted(holder)))
        if draw(st.booleans()):
            holder[key] = draw(json_values)
        elif len(holder) > 1:
            del holder[key]
    return json.dumps(config)


@given(mutated_configs())
@settings(max_examples=400)
def test_mutated_published_configs(text: str) -> None:
    check_reading(text)
