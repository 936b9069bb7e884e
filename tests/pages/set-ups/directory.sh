# shellcheck shell=bash
# needs: curl jq
# dev: --cooperation directory
# Nodes that find blocks by a directory in their process.
