# shellcheck shell=bash
# needs: curl jq etcd etcdctl
# The configuration of the page, its secrets, and an etcd for the commands that make room.
block toml 1 tier > shoal.toml
for file in tier-ca.pem tier-secret etcd-password; do
  echo secret > "/etc/shoal/$file"
  chmod 600 "/etc/shoal/$file"
done
printf '\n[[identity]]\naccess_key = "ETL"\nsecret_key = "s"\n[[identity]]\naccess_key = "CONSUMER-AK"\nsecret_key = "t"\n' >> shoal.toml
chmod 600 shoal.toml
bucket bucket
etcd --data-dir "$HOME/etcd" --log-level error > etcd.log 2>&1 &
until etcdctl endpoint health > /dev/null 2>&1; do sleep 0.1; done
