#!/usr/bin/env bash
# The wheels install into a fresh environment, offline, and what they bring runs.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
wheels=("$DIST"/*.whl)
[ -e "${wheels[0]}" ] || { echo 'skipped: wheels: none could be made' && exit; }
python3 -m venv "$fresh"
"$fresh/bin/pip" install --quiet --disable-pip-version-check --no-index "${wheels[@]}"
(cd "$fresh" && bin/python -c 'import shoal, importlib.metadata as m; print(m.version("shoal-client"))') | grep -qx "$VERSION" \
  || fail 'the wheel of the client has another version'
if [ -e "$WORK/bin/shoal-planner" ]; then
  [ -x "$fresh/bin/shoal-planner" ] || fail 'the wheel of the planner brings no program'
  # It is the same program, and it starts: it rejects what is no request.
  cmp "$fresh/bin/shoal-planner" "$WORK/bin/shoal-planner"
  "$fresh/bin/shoal-planner" < /dev/null > "$fresh/log" 2>&1 && fail 'the planner takes nothing for a request'
  grep -q . "$fresh/log" || fail 'the planner does not say why it refuses a request'
fi
