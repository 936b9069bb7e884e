#!/usr/bin/env bash
# The life of the package on a machine: scripts/dist/boot.sh runs this there, as a service of systemd.
set -eEuo pipefail
export HOME=/root DEBIAN_FRONTEND=noninteractive
trap 'echo "failed: line $LINENO: $BASH_COMMAND"; systemctl status --no-pager shoal || true; journalctl --no-pager | tail -n 30' ERR

s3() {
  curl --silent --show-error --fail --aws-sigv4 aws:amz:us-east-1:s3 --user shoaldev:shoaldev-secret \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@"
}

# Fails if a command succeeds.
never() {
  if "$@"; then return 1; fi
}

node_process() {
  systemctl show --property MainPID --value shoal
}

# The lake of this machine is an embedded one.
dpkg --force-unsafe-io --install /old.deb
never systemctl is-active --quiet shoal
never systemctl is-enabled --quiet shoal
[ "$(stat -c '%a %U %G' /etc/shoal/shoal.toml)" = '640 root shoal' ]
systemd-run --quiet --unit lake shoal dev --nodes 1 --s3-port 0 --admin-port 0 --peer-port 0 --lake-port 9090 --dir /srv
until curl --silent --output /dev/null http://127.0.0.1:9090; do sleep 0.2; done
systemd-analyze verify --man=no /usr/lib/systemd/system/shoal.{service,socket}
echo 'installed: the node waits for its configuration'

install -m 0600 /dev/stdin /etc/shoal/secrets/shoaldev <<< shoaldev-secret
sed -i -e 's,https://s3.example.org,http://127.0.0.1:9090,' -e 's,"100GiB","1GiB",' \
  -e 's,^# \[\[identity,[[identity,' -e 's,^# access_key = "AK",access_key = "shoaldev",' \
  -e 's,^# secret_key_file = \(.*secrets_\)AK",secret_key_file = \1shoaldev",' /etc/shoal/shoal.toml
cat >> /etc/shoal/shoal.toml << 'MORE'

[write]
age = "10m"
[[write.rule]]
prefix = "s3://demo/back/"
mode = "back"
[[tier]]
name = "a"
folder = "/var/lib/shoal/tier"
capacity = "1GiB"
MORE
systemctl enable --quiet --now shoal
# systemctl has waited for READY=1.
curl --silent --fail http://127.0.0.1:9100/healthz > /dev/null
until curl --silent --fail http://127.0.0.1:9100/readyz > /dev/null; do sleep 0.2; done
# A machine may grant its systemd less than the unit asks for.
files() {
  awk '/^Max open files/ { print $5 }' "/proc/$1/limits"
}
[ "$(files "$(node_process)")" = 1048576 ] || [ "$(files "$(node_process)")" = "$(files 1)" ]
[ "$(stat -c %U "/proc/$(node_process)")" = shoal ]
echo hello > /hello
s3 --upload-file /hello http://127.0.0.1:9000/demo/back/hello
[ "$(s3 http://127.0.0.1:9000/demo/back/hello)" = hello ]
never s3 http://127.0.0.1:9090/demo/back/hello 2> /dev/null
echo 'started: the node serves, hardened, with its secret from systemd'

first=$(node_process)
systemctl reload shoal
until journalctl --no-pager -u shoal | grep -q 'configuration reloaded'; do sleep 0.2; done
[ "$(node_process)" = "$first" ]
echo 'reloaded: the same process'

# The port is systemd's from here on.
systemctl stop shoal
systemctl enable --quiet --now shoal.socket
systemctl start shoal
first=$(node_process)
while [ ! -e /restarted ]; do
  s3 http://127.0.0.1:9000/demo/back/hello > /dev/null || echo refused >> /refused
done &
reader=$!
systemctl restart shoal
touch /restarted
wait "$reader"
[ "$(node_process)" != "$first" ]
[ ! -e /refused ]
first=$(node_process)
echo 'restarted: the node refused nothing meanwhile'

dpkg --force-unsafe-io --install /new.deb
systemctl is-active --quiet shoal
[ "$(node_process)" != "$first" ]
grep -q shoaldev /etc/shoal/shoal.toml
never s3 http://127.0.0.1:9090/demo/back/hello 2> /dev/null
[ "$(s3 http://127.0.0.1:9000/demo/back/hello)" = hello ]
echo 'upgraded: the new node has the object that the lake does not have'

journalctl --no-pager -u shoal > /journal
never grep -E 'WARN|ERROR|SIGSYS' /journal

dpkg --remove shoal
never systemctl is-active --quiet shoal
[ -e /etc/shoal/shoal.toml ]
dpkg --purge shoal
[ ! -e /etc/shoal/shoal.toml ]
[ ! -e /var/cache/shoal ]
[ -e /var/lib/shoal/tier ]
[ "$(stat -c %U /var/lib/shoal/tier)" = shoal ]
echo 'the data outlived the package'
