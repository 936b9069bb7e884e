#!/usr/bin/env bash
# Lists what the programs contain: an SBOM in CycloneDX for each, and the texts of all licences.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
if ! cyclonedx=$(cargo_tool cargo-cyclonedx "$CYCLONEDX" 2> "$WORK/why"); then
  echo "skipped: the list of contents: $(cat "$WORK/why")"
  exit
fi
target=$(rustc -vV | sed -n 's/^host: //p')

# The tool writes beside each manifest.
for program in shoal shoal-planner; do
  name="sbom-$$"
  "$cyclonedx" cyclonedx --quiet --manifest-path "crates/$program/Cargo.toml" --format json --spec-version 1.5 \
    --no-build-deps --target "$target" --override-filename "$name"
  # Neither a number by chance nor the time and the paths of this machine are of use to others.
  python3 - "crates/$program/$name.json" "$PWD" "$DATE" > "$DIST/$program.cdx.json" << 'PYTHON'
import json
import sys

text = open(sys.argv[1]).read().replace(f"path+file://{sys.argv[2]}/", "path+file:///")
document = json.loads(text)
document.pop("serialNumber", None)
document["metadata"]["timestamp"] = sys.argv[3]
json.dump(document, sys.stdout, indent=1)
print()
PYTHON
  find crates -name "$name.json" -delete
done

if ! about=$(cargo_tool cargo-about "$ABOUT" --features cli 2> "$WORK/why"); then
  echo "skipped: the texts of licences: $(cat "$WORK/why")"
  exit
fi
# The crates of all systems, and then no other question to anybody.
cargo fetch --locked --quiet
"$about" about generate --config packaging/about.toml --workspace --locked --offline --fail \
  --output-file "$DIST/third-party.txt" packaging/third-party.hbs
