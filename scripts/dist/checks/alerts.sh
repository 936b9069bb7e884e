#!/usr/bin/env bash
# Rules and alerts are valid, each alert fires in its test and has a runbook, and they name metrics that exist.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
alerts=packaging/prometheus/shoal.alerts.yml

mapfile -t names < <(sed -n 's/^ *- alert: //p' "$alerts")
for name in "${names[@]}"; do
  [ -s "docs/runbooks/$name.md" ] || fail "docs/runbooks/$name.md is missing"
  grep -qF "($name.md)" docs/runbooks/README.md || fail "docs/runbooks/README.md leaves out $name"
  grep -q "alertname: $name\$" packaging/prometheus/shoal.alerts.test.yml || fail "no test lets $name fire"
done
for page in docs/runbooks/Shoal*.md; do
  grep -q "alert: $(basename "$page" .md)\$" "$alerts" || fail "$page belongs to no alert"
done
scripts/dist/metric_names.py "$alerts" packaging/prometheus/shoal.rules.yml
if has promtool prometheus 'rules and alerts'; then
  cd packaging/prometheus
  promtool check rules shoal.rules.yml shoal.alerts.yml > "$WORK/promtool.log" || fail "$(cat "$WORK/promtool.log")"
  promtool test rules shoal.alerts.test.yml > "$WORK/promtool.log" 2>&1 || fail "$(cat "$WORK/promtool.log")"
fi
echo "${#names[@]} alerts"
