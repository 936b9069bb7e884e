#!/usr/bin/env bash
# Each alert fires at the node whose fault it is for, and none at a node without a fault.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
has prometheus prometheus 'alerts fired by faults' || exit 0
has etcd etcd-server 'alerts fired by faults' || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/dist/fire_alerts.py "$WORK/bin/shoal" packaging/prometheus/shoal.{rules,alerts}.yml "$work"
