# shellcheck shell=bash
# Sourced by the run_*.sh scripts, which run in the checkout under `set -euo pipefail`.
#
# `prepare_environment [EXTRAS]` makes sure that what pyproject.toml requires (for its EXTRAS too,
# such as test or test,clients) is installed, and puts that environment first on PATH:
#   an environment is active   it is used; packages that satisfy pyproject.toml stay as they are
#   none is active             .venv is made here, with exactly the versions of constraints.txt
# A stamp in the environment says what was installed last, so that a later start costs nothing.
#
# Those scripts that are called from anywhere note the folder in $caller before they leave it.

fail() { # MESSAGE
  printf 'error: %s\n' "$1" >&2
  exit 1
}

prepare_environment() { # [EXTRAS]
  local extras=${1:-} own=$PWD/.venv digest
  local environment=${VIRTUAL_ENV:-${CONDA_PREFIX:-$own}}
  local stamp=$environment/tupelo-installed
  digest=$({ cat pyproject.toml constraints.txt && pwd; } | cksum)
  if [[ ! -x $environment/bin/python ]] || ! is_stamped "$stamp" "$digest" "$extras"; then
    # Whatever happens from here on, an older stamp is no longer true.
    grep -qs "^$digest " "$stamp" || rm -f "$stamp"
    if [[ $environment == "$own" ]]; then
      make_environment "$environment"
      install_packages "$environment" constraints.txt "$extras"
    else
      complete_environment "$environment" "$extras"
    fi
    # An environment that cannot be written is checked at every start.
    printf "$digest %s\n" '' ${extras//,/ } 2>/dev/null >>"$stamp" || true
  fi
  name_command "$environment"
  export PATH=$environment/bin:$PATH
}

is_stamped() { # STAMP DIGEST EXTRAS
  local extra
  for extra in '' ${3//,/ }; do
    grep -qsxF "$2 $extra" "$1" || return 1
  done
}

# Hints name a command that works in the shell of the caller: with its PATH, from its folder.
name_command() { # ENVIRONMENT
  local program=$1/bin/tupelo
  if [[ -x $program ]]; then
    TUPELO_COMMAND=tupelo
    [[ $(command -v tupelo || true) == "$program" ]] || printf -v TUPELO_COMMAND %q "${program#"$PWD/"}"
    [[ ${caller:-$PWD} == "$PWD" ]] || printf -v TUPELO_COMMAND 'cd %q && %s' "$PWD" "$TUPELO_COMMAND"
    export TUPELO_COMMAND
  fi
}

make_environment() { # ENVIRONMENT
  local environment=$1 python log=$1/install.log
  if [[ ! -e $environment/bin/python && ! -L $environment/bin/python ]]; then
    python=$(find_python)
    printf 'Making .venv with Python %s ...\n' "$(python_version "$python")" >&2
    mkdir -p "$environment" 2>/dev/null ||
      fail "cannot make $environment: make its folder writable, or free some disk space"
    "$python" -m venv --without-pip "$environment" >"$log" 2>&1 ||
      fail_with_log "Python cannot make .venv" "$log"
  fi
  recent_enough "$(python_version "$environment/bin/python")" ||
    fail "$environment is half-made or of another Python: remove it (rm -rf .venv) and start again"
  # A step of its own, so that it is repeated after an interruption or `apt install`.
  "$environment/bin/python" -m pip --version >/dev/null 2>&1 ||
    "$environment/bin/python" -m ensurepip --default-pip >"$log" 2>&1 ||
    fail_with_log "Python cannot put pip into .venv" "$log"
}

complete_environment() { # ENVIRONMENT EXTRAS
  local environment=$1 extras=$2 version missing pins=$1/tupelo-constraints.txt
  version=$(python_version "$environment/bin/python")
  recent_enough "$version" ||
    fail "the active environment $environment has Python ${version:-none}, Tupelo needs 3.11 or newer: deactivate it, then .venv is made here"
  missing=$(missing_packages "$environment/bin/python" "$extras" "$pins") ||
    fail "cannot find out what is missing in the active environment $environment: deactivate it, then .venv is made here"
  [[ -z $missing ]] && return
  printf 'Missing in the active environment: %s\n' "$missing" >&2
  install_packages "$environment" "$pins" "$extras"
}

# Prints the requirements that the environment does not meet, and writes the pins of the packages
# to install: pinning what is there would replace, say, a torch built for this machine's CUDA.
missing_packages() { # PYTHON EXTRAS PINS
  "$1" - "$2" "$3" <<'PYTHON'
import pathlib, sys, tomllib
from importlib.metadata import PackageNotFoundError, version
try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement

def satisfied(line):
    requirement = Requirement(line)
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False

extras, pins = sys.argv[1:]
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
required = project["dependencies"] + [
    line for extra in extras.split(",") for line in project["optional-dependencies"].get(extra, [])
]
missing = [Requirement(line).name.lower() for line in required if not satisfied(line)]
if missing:
    lines = pathlib.Path("constraints.txt").read_text().splitlines()
    names = {line: line.partition("==")[0] for line in lines if "==" in line}
    wanted = [
        line for line, name in names.items() if name.lower() in missing or not satisfied(name)
    ]
    pathlib.Path(pins).write_text("\n".join(wanted) + "\n")
    print(*missing, sep=", ")
PYTHON
}

install_packages() { # ENVIRONMENT CONSTRAINTS EXTRAS
  local environment=$1 constraints=$2 extras=$3 log=$1/install.log started=$SECONDS
  # DeepSpeed's operators are compiled on demand, if ever: needs no compiler here.
  local pip=(env DS_BUILD_OPS=0 "$environment/bin/python" -m pip install --no-input
    --disable-pip-version-check --progress-bar off -c "$constraints" -e ".${extras:+[$extras]}")
  printf 'Setting up %s (once, about two minutes) ...\n' "${environment#"$PWD/"}" >&2
  if [[ -t 2 ]]; then
    "${pip[@]}" 2>&1 | tee "$log" | show_progress
  else
    "${pip[@]}" >"$log" 2>&1
  fi || fail_with_log "pip cannot install the packages" "$log"
  printf 'Set up in %d s.\n' $((SECONDS - started)) >&2
}

show_progress() { # shows the newest line of stdin and the seconds so far, in one line of stderr
  local line newest='' status
  while true; do
    status=0
    IFS= read -r -t 1 line || status=$?
    ((status == 0)) && newest=$line
    ((status == 0 || status > 128)) || break # above 128: nothing came within the second
    printf '\r\033[K%4d s  %s' "$SECONDS" "${newest:0:64}" >&2
  done
  printf '\r\033[K' >&2
}

find_python() {
  local name version found=''
  for name in python3 python3.13 python3.12 python3.11; do
    version=$(python_version "$name")
    if recent_enough "$version"; then
      echo "$name"
      return
    fi
    found=${found:-${version:+, but the one on PATH is $version}}
  done
  fail "Tupelo needs Python 3.11 or newer${found:-, but there is no python3 on PATH}: install it (Debian: apt install python3 python3-venv) and start again"
}

python_version() { # PYTHON; prints nothing if it does not run
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

recent_enough() { # VERSION
  [[ $1 =~ ^3\.(1[1-9]|[2-9][0-9])$ ]]
}

fail_with_log() { # WHAT LOG
  local reason advice
  reason=$(grep -iE '^ *[a-z]*error: |no module named' "$2" |
    grep -v subprocess-exited-with-error | tail -n 1 | sed 's/^ *//') || reason='no reason given'
  case $(<"$2") in
    *'cancelled by user'*) advice='interrupted' ;;
    *'No space left on device'*) advice='free some disk space' ;;
    *ensurepip* | *'No module named venv'*) advice='on Debian: apt install python3-venv' ;;
    *'after connection broken'*) advice='check the network' ;;
    *) advice='see the log' ;;
  esac
  fail "$1 ($reason): $advice; start again to continue; log: $2"
}

path_from_caller() { # PATH; what exists in the folder of the caller is taken from there
  if [[ $caller != "$PWD" && $1 != /* && -e $caller/$1 ]]; then
    echo "$caller/$1"
  else
    echo "$1"
  fi
}

folder_from_caller() { # FOLDER; what is written belongs to the folder of the caller
  if [[ $caller != "$PWD" && $1 != /* ]]; then
    echo "$caller/$1"
  else
    echo "$1"
  fi
}
