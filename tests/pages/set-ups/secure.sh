# shellcheck shell=bash
# needs: curl openssl
# The configuration of a node.
cp "$REPOSITORY/packaging/shoal.toml" shoal.toml
