#!/usr/bin/env bash
# The image is what its labels say, and its program runs as its user with a root that cannot be written.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/dist/environment.sh
source scripts/dist/environment.sh
archive="$DIST/shoal-$VERSION-image-$ARCH.tar"
work=$(mktemp -d)
bundle="$work/bundle"
name="shoal-check-$$"
stop() {
  crun delete --force "$name" 2> /dev/null || true
  rm -rf "$work"
}
trap stop EXIT

made "$archive" 'the image' || exit 0
has skopeo skopeo 'the image' || exit 0
has umoci umoci 'the image' || exit 0
skopeo inspect "oci-archive:$archive" > "$work/image.json"
skopeo inspect --config "oci-archive:$archive" > "$work/config.json"
python3 - "$work" "$VERSION" << 'PYTHON'
import json
import sys

image = json.load(open(f"{sys.argv[1]}/image.json"))
config = json.load(open(f"{sys.argv[1]}/config.json"))["config"]
assert image["Labels"]["org.opencontainers.image.version"] == sys.argv[2], image["Labels"]
assert len(image["Layers"]) == 1, image["Layers"]
assert config["User"] == "65532:65532", config["User"]
assert config["Entrypoint"] == ["/usr/bin/shoal"], config["Entrypoint"]
PYTHON

mkdir "$work/oci"
tar -C "$work/oci" -xf "$archive"
umoci unpack --image "$work/oci:$VERSION" "$bundle" > /dev/null
if [ -n "$(find "$bundle/rootfs" -perm /6000)" ]; then
  fail 'a program of the image changes its user'
fi
if [ "$(id -u)" != 0 ] || ! has crun crun 'running the image'; then
  echo 'skipped: running the image: only root can'
  exit
fi
# A tier wants a disk.
install -d -m 0700 -o 65532 -g 65532 "$work/cache"
chmod 0711 "$work"
python3 - "$bundle/config.json" "$work/cache" << 'PYTHON'
import json
import sys

path = sys.argv[1]
spec = json.load(open(path))
spec["root"]["readonly"] = True
spec["process"]["terminal"] = False
spec["process"]["noNewPrivileges"] = True
spec["process"]["capabilities"] = {}
spec["process"]["args"] = ["/usr/bin/shoal", "dev", "--nodes", "1", "--s3-port", "0", "--admin-port", "0", "--peer-port",
                           "0", "--lake-port", "0", "--dir", "/var/cache/shoal/dev", "--json"]
spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != "/sys/fs/cgroup"]
spec["mounts"].append({"destination": "/var/cache/shoal", "type": "bind", "source": sys.argv[2], "options": ["rbind", "rw"]})
spec["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 16384, "hard": 16384}]
spec["linux"].pop("resources", None)
json.dump(spec, open(path, "w"))
PYTHON
# A machine with both kinds of control groups is more than crun takes, so it sees the second kind only.
unshare --mount bash -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"' - \
  crun --cgroup-manager=disabled run --bundle "$bundle" --pid-file "$work/process" "$name" > "$work/out" 2> "$work/err" &
until [ -s "$work/out" ]; do
  kill -0 $! 2> /dev/null || fail "the image does not run: $(cat "$work/err")"
  sleep 0.2
done
process=$(cat "$work/process")
[ "$(stat -c %u "/proc/$process")" = 65532 ] || fail 'the node of the image runs as another user'
nsenter --target "$process" --mount --setuid 0 -- /usr/bin/shoal man /etc/shoal > "$work/log" 2>&1 && fail 'the root of the image can be written'
grep -qi 'read-only' "$work/log" || fail "the root of the image is not read-only: $(cat "$work/log")"
kill -TERM "$process"
wait $! || fail "the node of the image did not stop well: $(cat "$work/err")"
