#!/usr/bin/env bash
# The chart satisfies helm's linter, its own tests and the schemas of Kubernetes, and its configuration a node.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
# What the linter and the schemas know.
KUBERNETES=1.30
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
made "$DIST/shoal-$VERSION.tgz" 'the Helm chart' || exit 0
helm=$(go_tool "$HELM")
tar -C "$work" -xzf "$DIST/shoal-$VERSION.tgz"
chart="$work/shoal"
cat > "$work/values.yaml" << 'VALUES'
lake: { endpoint: "https://s3.example.org", bandwidth: 10Gbit }
existingSecret: keys
identities: [{ accessKey: AK, secretKey: analytics }]
service: { trafficDistribution: PreferClose }
topology: { from: labels }
admin: { tokenKey: admin }
serviceMonitor: { enabled: true }
prometheusRule: { enabled: true }
grafanaDashboard: { enabled: true }
extraConfig: |
  [[write.rule]]
  prefix = "s3://b/tmp/"
  mode = "through"
VALUES
"$helm" lint --strict --quiet "$chart" --values "$work/values.yaml"
"$helm" template release "$chart" --values "$work/values.yaml" --kube-version "$KUBERNETES" > "$work/all.yaml"

if tool=$(go_tool "$HELM_UNITTEST" 2> "$work/why"); then
  # Packed charts have no tests.
  cp --recursive packaging/helm/shoal/tests "$chart"
  "$tool" --color=false "$chart" > "$work/log" || fail "$(cat "$work/log")"
  grep -E '^Tests:' "$work/log"
else
  echo "skipped: tests of the Helm chart: $(cat "$work/why")"
fi

if tool=$(go_tool "$KUBECTL_VALIDATE" 2> "$work/why") && operator=$(go_module "$PROMETHEUS_OPERATOR" 2> "$work/why"); then
  "$tool" --version "$KUBERNETES" --local-crds "$operator/example/prometheus-operator-crd" "$work/all.yaml" \
    > "$work/log" 2>&1 || fail "$(cat "$work/log")"
else
  echo "skipped: schemas of Kubernetes: $(cat "$work/why")"
fi

# A node takes what the chart writes, with the variables of a pod.
secrets="$work/secrets"
mkdir "$secrets"
openssl rand -hex 32 | tee "$secrets/cluster" "$secrets/admin" > "$secrets/analytics"
chmod 600 "$secrets"/*
python3 - "$work/all.yaml" "$secrets" > "$work/shoal.toml" << 'PYTHON'
import sys

inside = False
for line in open(sys.argv[1]):
    if line == "  shoal.toml: |\n":
        inside = True
    elif inside and line.strip() and not line.startswith("    "):
        break
    elif inside:
        print(line[4:].rstrip().replace("/etc/shoal/secrets", sys.argv[2]))
PYTHON
SHOAL_NODE_NAME=release-0 SHOAL_NODE_TOPOLOGY=r/z/m SHOAL_COOPERATION_ADVERTISE=10.0.0.1:9200 \
  "$WORK/bin/shoal" serve --check --config "$work/shoal.toml" > "$work/log" 2>&1 || fail "$(cat "$work/log")"
grep -q 'capacity = "90GiB"' "$work/log" || fail "the node understands another capacity: $(grep capacity "$work/log")"
