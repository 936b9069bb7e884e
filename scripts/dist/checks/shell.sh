#!/usr/bin/env bash
# Completions are read by their shells, and manual pages by mandoc, without a complaint.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
made "$DIST/shoal-$VERSION-linux-$ARCH.tar.gz" 'completions and manual pages' || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" --strip-components 1 -xzf "$DIST/shoal-$VERSION-linux-$ARCH.tar.gz"
share="$work/share"

bash -n "$share/bash-completion/completions/shoal"
# What a user gets who types `shoal pre` and the tab key.
offered=$(bash -c '
  . "$1"
  COMP_WORDS=(shoal pre) COMP_CWORD=1
  _shoal shoal pre shoal
  echo "${COMPREPLY[@]}"' - "$share/bash-completion/completions/shoal")
[ "$offered" = prefetch ] || fail "bash completes 'shoal pre' to '$offered'"
if has zsh zsh 'completions of zsh'; then
  zsh -n "$share/zsh/vendor-completions/_shoal"
fi
if has fish fish 'completions of fish'; then
  offered=$(fish --no-config -c "source $share/fish/vendor_completions.d/shoal.fish; complete -C 'shoal pre'" | cut -f 1)
  [ "$offered" = prefetch ] || fail "fish completes 'shoal pre' to '$offered'"
fi
if has mandoc mandoc 'manual pages'; then
  gunzip "$share"/man/man1/*.gz
  # mandoc also has wishes for the style of sources, which are generated here, with breaks between paragraphs.
  complaints=$(mandoc -Tlint -W warning "$share"/man/man1/*.1 | grep -v 'skipping paragraph macro: br' || true)
  [ -z "$complaints" ] || fail "$complaints"
  # Settings are explained.
  mandoc -Tutf8 "$share/man/man1/shoal-serve.1" | col -b > "$work/serve"
  grep -q SHOAL_STORE_CAPACITY "$work/serve" || fail 'shoal-serve(1) does not explain --store-capacity'
fi
pages=$(find "$share/man" -name '*.1*' | wc -l)
[ "$pages" -gt 30 ] || fail "only $pages manual pages"
