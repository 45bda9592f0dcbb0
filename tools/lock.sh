#!/usr/bin/env bash
# Write the three lock files: what the service needs, what a contributor needs, what builds the wheel.
# Universal (every supported Python and platform) and hashed, so that plain pip can install them.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    local output=$1
    shift
    # No configuration or variable of this machine may leave its mark in the files.
    env --unset=UV_INDEX --unset=UV_INDEX_URL --unset=UV_DEFAULT_INDEX --unset=UV_EXTRA_INDEX_URL --unset=UV_FIND_LINKS \
        "${UV:-uv}" pip compile --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --custom-compile-command "make lock" \
        ${UPGRADE:+--upgrade} --output-file "$output" "$@"
}

compile requirements.lock pyproject.toml
compile requirements-dev.lock pyproject.toml --group dev --constraint requirements.lock
compile requirements-build.lock --group build --constraint requirements-dev.lock
