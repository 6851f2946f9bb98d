#!/usr/bin/env bash
# Format, lint, types and tests, from a plain clone. With arguments: only pytest, with these arguments.
# `clients`, with or without further ones: the tests with real clients, which have an environment of their own.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/environment.sh"

if [ "${1:-}" = clients ]; then
    exec "$ROOT/tests/clients/run.sh" "${@:2}"
fi
ensure_environment dev,bench
cd "$ROOT"
if [ $# -gt 0 ]; then
    exec "$PYTHON" -P -m pytest "$@"
fi

# mypy finds the package under its import name through a link, since its folders lie at the root.
types() {
    mkdir -p "$VENV/src"
    ln -sfn "$ROOT" "$VENV/src/fourstroke"
    (cd "$VENV/src" && MYPYPATH=. "$PYTHON" -P -m mypy --config-file "$ROOT/pyproject.toml" -p fourstroke)
}

summary=()
status=0

check() { # name, command...
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then
        summary+=("ok      $name")
    else
        summary+=("FAILED  $name")
        status=1
    fi
}

check format "$PYTHON" -m ruff format --check .
check lint "$PYTHON" -m ruff check .
check types types
# On two cores side by side: what is not timed and owns nothing that others could take.
check "unit tests" "$PYTHON" -P -m pytest -q -n 2 --dist worksteal tests/unit
check "ring tests" "$PYTHON" -P -m pytest -q tests/ring
check "kernels in the interpreter" "$PYTHON" -P -m pytest -q -n 2 --dist loadfile tests/kernels
check "kernels compiled for AMD" "$PYTHON" -P -m fourstroke kernels check
check "process tests" "$PYTHON" -P -m pytest -q tests/process
check "fault tests" "$PYTHON" -P -m pytest -q tests/faults

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
exit "$status"
