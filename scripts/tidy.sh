#!/usr/bin/env bash
# Checks that no compiler makes: first lines, long files, wide lines, leftovers, links, shell scripts, Python.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# shellcheck source=tests/real/environment.sh
source tests/real/environment.sh

LINES_MAX=600
COLUMNS_MAX=110
problems=0

complain() {
  printf '%s\n' "$1"
  problems=$((problems + 1))
}

# New files count before they are committed.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
    [ -f "$file" ] && printf '%s\n' "$file"
  done
}

while IFS= read -r file; do
  case "$(head -n 1 "$file")" in
    '//! '*) ;;
    *) complain "$file: the first line does not say what the file is (//! ...)" ;;
  esac
done < <(files '*.rs')

while IFS= read -r file; do
  lines=$(wc -l < "$file")
  [ "$lines" -le "$LINES_MAX" ] || complain "$file: $lines lines, more than $LINES_MAX"
done < <(files '*.rs' '*.sh' '*.py')

# Prints the lines of files that are wider than code may be, but for lines that hold nothing but a link.
wide() {
  [ $# -gt 0 ] || return 0
  LC_ALL=C.UTF-8 grep -HnE "^.{$((COLUMNS_MAX + 1)),}\$" "$@" |
    grep -vE '^[^:]+:[0-9]+:[[:space:]>*-]*\[[^]]*\]\([^)]*\)[.,;:)]*$'
}

# Prints the lines of a page that a program wrote, between <!-- name --> and <!-- end -->.
generated() {
  awk -v page="$1" '/^<!-- end -->$/ { inside = 0 } inside { print page ":" NR } /^<!-- [a-z]+ -->$/ { inside = $2 != "end" }' "$1"
}

# Programs write the dated results, too, and scripts/layers.py reads the table of ARCHITECTURE.md row by row.
mapfile -t pages < <(files '*.md' ':!bench/results/2*.md' ':!experiments/*/results/*.md')
while IFS= read -r hit; do
  generated "${hit%%:*}" | grep -xF "$hit" > /dev/null || complain "$hit: wider than $COLUMNS_MAX columns"
done < <(wide "${pages[@]}" | grep -vE '^ARCHITECTURE.md:[0-9]+:\|' | cut -d : -f 1,2)

# A test compares the comments of settings.rs with those of shoal.toml, line by line.
mapfile -t sources < <(files '*.rs' ':(exclude,glob)**/config/settings.rs')
while IFS= read -r hit; do
  complain "$hit: a comment wider than $COLUMNS_MAX columns"
done < <(wide "${sources[@]}" | grep -E '^[^:]+:[0-9]+:[[:space:]]*//' | cut -d : -f 1,2)

# The marks are put together here so that this file does not find itself.
marks="TO""DO|FIX""ME|X""XX|HA""CK"
while IFS= read -r hit; do
  complain "$hit: a leftover; do it, or open an issue"
done < <(files '*.rs' '*.sh' '*.py' '*.toml' '*.md' Makefile | xargs grep -nEw "$marks" | cut -d : -f 1,2)

while IFS= read -r hit; do
  complain "$hit: white space at the end of the line"
done < <(files '*.rs' '*.sh' '*.py' '*.toml' '*.md' Makefile | xargs grep -nE '[[:blank:]]+$' | cut -d : -f 1,2)

while IFS= read -r file; do
  while IFS= read -r target; do
    path="$(dirname "$file")/${target%%#*}"
    [ -e "$path" ] || complain "$file: links to $target, which is not there"
  done < <(grep -oE '\]\([^)#:][^):]*\)' "$file" | sed -E 's/^\]\((.*)\)$/\1/')
done < <(files '*.md')

# Their versions matter: another one may find other problems.
if python=$(virtual_environment lint scripts/requirements.txt); then
  checkers=$(dirname "$python")
  # shellcheck disable=SC2046 # names of ours have no spaces
  "$checkers/shellcheck" --external-sources --severity=warning $(files '*.sh' .ci/run) || complain 'shellcheck found problems'
  "$checkers/ruff" check --quiet && "$checkers/ruff" format --quiet --check || complain 'ruff found problems'
else
  printf 'NOT CHECKED: shell scripts and Python, as shellcheck and ruff cannot be installed\n'
fi

# The client has its own environment, because its tests use the packages that its types come from.
if python=$(virtual_environment python-client clients/python/tests/requirements.txt); then
  (cd clients/python && "$python" -m mypy --no-error-summary) || complain 'mypy found problems in clients/python'
else
  printf 'NOT CHECKED: types of the Python client, as mypy cannot be installed\n'
fi

[ "$problems" -eq 0 ]
