"""A tokenizer with one token a byte, in the files that Hugging Face's library reads, so that nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path

FIRST_SUBSTITUTE = 256
"""ByteLevel writes a byte that has no printable character of its own as one from here on, in the order of the bytes."""


def write_byte_tokenizer(folder: Path) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json` into `folder` and return it."""
    vocabulary = {character: index for index, character in enumerate(_byte_characters())}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def _byte_characters() -> list[str]:
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    characters, substitute = [], FIRST_SUBSTITUTE
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(substitute))
            substitute += 1
    return characters
