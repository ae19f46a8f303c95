# shellcheck shell=bash
# Sourced by the run_*.sh scripts, under `set -euo pipefail`.
checkout=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { # MESSAGE
  printf 'error: %s\n' "$1" >&2
  exit 1
}

# Install what pyproject.toml requires, for these extras too, and put that environment first on PATH:
# the active one, whose packages stay as they are where they suffice, or else .venv, with exactly the
# versions of constraints.txt. An environment that has everything is left alone. By uv, or a pip that
# is new enough to show where it is.
prepare_environment() { # [EXTRAS], such as test,clients
  local extras=${1:-} own=$checkout/.venv versions=() install python other=''
  local -x PYTHONSAFEPATH=1 # a random.py in the folder of the caller would be imported
  local environment=${VIRTUAL_ENV:-${CONDA_PREFIX:-$own}} tools=pip
  # Of conda, base is active in every shell: it is for conda itself.
  [[ -n ${VIRTUAL_ENV:-} || ${CONDA_DEFAULT_ENV:-} != base ]] || environment=$own
  if ! is_complete "$environment/bin/python" "$extras"; then
    printf 'Setting up %s (once, about two minutes) ...\n' "$environment" >&2
    if [[ $environment == "$own" ]]; then
      versions=(-c "$checkout/constraints.txt")
      python=$(find_python)
      local -x PIP_USER=0 PIP_CONSTRAINT='' # not those of the caller
      ! command -v uv >/dev/null || tools=sys # it brings no pip, and needs none
      "$own/bin/python" -c "import tomllib, $tools" 2>/dev/null ||
        "$python" -m venv --clear --upgrade-deps "$own" >&2 ||
        fail "$python cannot make $own, see above; without venv, on Debian: apt install python3-venv"
    else
      other=", or deactivate it: then $own is made"
    fi
    install=("$environment/bin/python" -m pip install --no-compile --no-input --disable-pip-version-check)
    ! command -v uv >/dev/null || install=(uv pip install --python "$environment/bin/python")
    # DeepSpeed's operators are compiled on demand, if ever: needs no compiler here.
    DS_BUILD_OPS=0 "${install[@]}" ${versions[@]+"${versions[@]}"} \
      -e "$checkout${extras:+[$extras]}" >&2 ||
      fail "$environment cannot be set up, see above; start again to continue$other"
  fi
  # Hints name a command that works in the shell of the caller.
  [[ $(command -v tupelo) == "$environment/bin/tupelo" || ! -x $environment/bin/tupelo ]] ||
    printf -v TUPELO_COMMAND %q "${environment#"$PWD/"}/bin/tupelo"
  [[ -z ${TUPELO_COMMAND:-} ]] || export TUPELO_COMMAND
  export PATH=$environment/bin:$PATH
}

is_complete() { # PYTHON EXTRAS
  [[ -x $1 ]] && "$1" - "$checkout/pyproject.toml" "$2" 2>/dev/null <<'PYTHON'
import sys, tomllib
from importlib.metadata import version
from packaging.requirements import Requirement

version("tupelo")
file, extras = sys.argv[1:]
project = tomllib.load(open(file, "rb"))["project"]
optional = [project["optional-dependencies"][name] for name in extras.split(",") if name]
for line in sum(optional, project["dependencies"]):
    required = Requirement(line)
    if not required.specifier.contains(version(required.name), prereleases=True):
        sys.exit(1)
PYTHON
}

find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    # For 3.15 there is no triton yet; ensurepip: Debian's python3-venv.
    if "$name" -c 'import sys, tomllib, ensurepip; sys.exit(sys.version_info >= (3, 15))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  fail "Tupelo needs Python 3.11 to 3.14: install it (Debian: apt install python3 python3-venv) and start again"
}

run_tupelo() { # ARGUMENT ...; with the code of this checkout, in the folder of the caller
  export PYTHONSAFEPATH=1 PYTHONPATH=$checkout${PYTHONPATH:+:$PYTHONPATH}
  exec python -m tupelo "$@"
}

print_header() { # SCRIPT
  sed -n '2,/^set /s/^# \{0,1\}//p' "$1"
}
