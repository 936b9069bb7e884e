# shellcheck shell=bash
# A trace of two thousand reads of some hundred objects.
for read in $(seq 2000); do
  access_line "$(printf '2026-11-20T%02d:%02d:%02d.000Z' $((read / 3600)) $((read / 60 % 60)) $((read % 60)))" "k$((read * read % 331))"
done > access.log
