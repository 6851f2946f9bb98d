#!/usr/bin/env bash
# Tests with clients that others wrote, in an environment of their own: launch/test.sh clients [arguments of pytest]
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../launch/environment.sh"

CLIENTS=$ROOT/.venv-clients
REQUIREMENTS=$ROOT/tests/clients/requirements.txt

# Pinned packages, so nothing is resolved; and few tries, so that a machine without a network is told so at once.
ensure_clients() {
    local stamp
    stamp=$(cat "$REQUIREMENTS" "$VENV/pyvenv.cfg" | cksum)
    [ "$stamp" != "$(cat "$CLIENTS/installed" 2>/dev/null)" ] || return 0
    say "making $CLIENTS (a minute, once)"
    "$PYTHON" -m venv --clear "$CLIENTS" || die "could not make $CLIENTS"
    "$CLIENTS/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-compile \
        --retries 1 --timeout 20 --requirement "$REQUIREMENTS" ||
        die "the clients could not be installed: these tests need a package index, once"
    printf '%s\n' "$stamp" >"$CLIENTS/installed"
}

ensure_environment dev,bench
ensure_clients
[ "${1:-}" != --environment-only ] || exit 0
cd "$ROOT"
exec "$CLIENTS/bin/python" -P -m pytest -o testpaths=tests/clients --confcutdir=tests/clients --disable-warnings "$@"
