# Sourced by serve.sh, test.sh and .ci/run: a virtual environment at the root of the repository.
#
# Needs Python 3.11 or newer with venv, and nothing else. An environment that is up to date costs two file reads.
# torch is special: one that is there already is left alone, above all one for ROCm. Otherwise it comes
# from TORCH_INDEX_URL, if that is set, else it is the version in constraints-cpu.txt.

ROOT=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
VENV=$ROOT/.venv
PYTHON=$VENV/bin/python

say() { printf 'fourstroke: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# ensure_environment [EXTRAS]: make or renew the environment, with extras such as "dev,bench".
ensure_environment() {
    local extras=${1:-}
    up_to_date "$extras" && return
    # One at a time: two servers may be started at once. The lock is on the folder itself and leaves no file.
    (
        command -v flock >/dev/null && flock 9
        up_to_date "$extras" || install_all "$extras"
    ) 9<"$ROOT" || exit 1
}

# The environment with all extras serves those who need none.
up_to_date() {
    local stamp
    [ -x "$PYTHON" ] || return 1
    [ -z "${TORCH_INDEX_URL:-}" ] || [ "$TORCH_INDEX_URL" = "$(cat "$VENV/torch-index" 2>/dev/null)" ] || return 1
    stamp=$(wanted_stamp)
    [ "$stamp" = "$(cat "$(stamp_file "$1")" 2>/dev/null)" ] || {
        [ -z "$1" ] && [ "$stamp" = "$(cat "$(stamp_file dev,bench)" 2>/dev/null)" ]
    }
}

stamp_file() { printf '%s/installed-%s' "$VENV" "${1:-base}"; }

# What an installation depends on: the declared packages and the Python below.
wanted_stamp() {
    cat "$ROOT/pyproject.toml" "$ROOT/constraints-cpu.txt" "$VENV/pyvenv.cfg" 2>/dev/null | cksum
}

install_all() {
    make_venv
    install_torch
    say "installing fourstroke${1:+ with $1} (a minute, once)"
    pip_install -e "$ROOT${1:+[$1]}" || die "the installation failed; the lines above say why"
    advise_on_amd
    wanted_stamp >"$(stamp_file "$1")"
}

pip_install() { "$PYTHON" -m pip install -qq --disable-pip-version-check "$@"; }

make_venv() {
    local base outer
    "$PYTHON" -m pip --version >/dev/null 2>&1 && return
    "$PYTHON" -m ensurepip >/dev/null 2>&1 && return
    base=$(find_python) || die "needs Python 3.11 or newer with its venv module (Debian, Ubuntu: apt install python3-venv)"
    say "making $VENV with $("$base" --version)"
    "$base" -m venv --clear "$VENV" || die "could not make $VENV"
    # A Python that has a ROCm torch (AMD's containers) shares it: a .pth file works also where that Python is
    # itself a virtual environment, whose packages --system-site-packages would not show.
    if outer=$(rocm_torch_folder "$base"); then
        say "using the ROCm torch in $outer"
        printf '%s\n' "$outer" >"$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rocm_torch.pth"
    fi
}

# The first Python on the PATH that will do.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# The folder that holds the ROCm torch of a Python; fails if it has none.
rocm_torch_folder() {
    "$1" -c 'import pathlib, torch; assert torch.version.hip; print(pathlib.Path(torch.__file__).parent.parent)' 2>/dev/null
}

install_torch() {
    if rocm_torch_folder "$PYTHON" >/dev/null; then
        torch_is_new_enough || die "the ROCm torch here is older than 2.8: upgrade it and start again"
    elif [ -n "${TORCH_INDEX_URL:-}" ]; then
        say "installing torch from TORCH_INDEX_URL"
        "$PYTHON" -m pip uninstall --quiet --yes torch 2>/dev/null
        pip_install torch --index-url "$TORCH_INDEX_URL" || die "no torch could be installed from TORCH_INDEX_URL"
    elif ! torch_is_new_enough; then
        say "installing torch for the CPU"
        pip_install --requirement "$ROOT/constraints-cpu.txt" || die "torch could not be installed"
    fi
    printf '%s\n' "${TORCH_INDEX_URL:-}" >"$VENV/torch-index"
}

torch_is_new_enough() {
    "$PYTHON" - 2>/dev/null <<'EOF'
import importlib.metadata, sys
major, minor = importlib.metadata.version("torch").split(".")[:2]
sys.exit((int(major), int(minor)) < (2, 8))
EOF
}

advise_on_amd() {
    [ -e /dev/kfd ] && ! rocm_torch_folder "$PYTHON" >/dev/null || return 0
    say "an AMD GPU is here (/dev/kfd), but this torch is not for ROCm. (This version computes on the CPU all the same.)"
    say "For a torch that knows it, start once with"
    say "    TORCH_INDEX_URL=<the index of PyTorch's wheels for your ROCm version> $0"
}
