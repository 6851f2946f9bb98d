#!/usr/bin/env bash
# Serve a model from a plain clone: makes the environment if need be, then becomes `fourstroke serve`.
# All arguments are passed on; see `launch/serve.sh --help`.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/environment.sh"

ensure_environment
exec "$PYTHON" -P -m fourstroke serve "$@"
