#!/usr/bin/env bash
# The packages satisfy Debian's and Red Hat's linters, the unit is hardened, and in a fresh Debian a node lives
# through install, start, upgrade and removal; its data outlives it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
deb="$DIST/shoal_$VERSION-1_$ARCH.deb"
rpm=$(echo "$DIST"/shoal-"$VERSION"-1.*.rpm)
# Above it, systemd calls a service exposed.
EXPOSURE_MAX=2.0

made "$deb" 'the packages' || exit 0
if has lintian lintian 'the rules of Debian'; then
  lintian --allow-root --fail-on error,warning "$deb"
fi
# rpmlint asks rpm about the package.
if has rpm rpm 'the rules of Red Hat' && has rpmlint rpmlint 'the rules of Red Hat'; then
  rpmlint --config packaging/rpmlint.toml "$rpm"
fi
if has rpm rpm 'the package for Red Hat'; then
  work=$(mktemp -d)
  rpm --root "$work" --initdb
  rpm --root "$work" --install --nodeps --noscripts --noplugins --ignorearch "$rpm" 2> "$work/log" || fail "$(cat "$work/log")"
  [ -x "$work/usr/bin/shoal" ] || fail 'the package for Red Hat has no program'
  [ "$(stat -c %a "$work/etc/shoal/shoal.toml" "$work/etc/shoal/secrets" | paste -sd ' ')" = '640 700' ] \
    || fail 'the package for Red Hat lets others read secrets'
  rm -rf "$work"
fi
if has systemd-analyze systemd 'the unit'; then
  work=$(mktemp -d)
  dpkg-deb --extract "$deb" "$work"
  exposure=$(systemd-analyze security --offline=true --no-pager "$work/usr/lib/systemd/system/shoal.service" \
    | sed -n 's/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p')
  awk -v is="$exposure" -v most="$EXPOSURE_MAX" 'BEGIN { exit !(is > 0 && is <= most) }' \
    || fail "the exposure of the unit is '$exposure'"
  echo "the exposure of the unit is $exposure"
  rm -rf "$work"
fi
scripts/dist/boot.sh "$deb"
