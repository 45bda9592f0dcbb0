#!/usr/bin/env bash
# Compare the contract with the last commit, and with the one before it: in a clean checkout, as in CI, the last commit
# is the contract itself. Names of other commits to compare with can be given as arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! git rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    echo "buf breaking: no commit to compare with"
    exit 0
fi

baseline=$(mktemp -d)
trap 'rm -rf "$baseline"' EXIT
if [ $# -eq 0 ]; then
    set -- HEAD HEAD~1
fi
for commit in "$@"; do
    if ! git cat-file -e "$commit:buf.yaml" 2>/dev/null; then
        echo "buf breaking: $commit has no contract to compare with"
        continue
    fi
    mkdir "$baseline/$commit"
    git archive "$commit" buf.yaml proto third_party | tar -x -C "$baseline/$commit"
    buf breaking --against "$baseline/$commit"
    echo "buf breaking: nothing broken since $commit"
done
