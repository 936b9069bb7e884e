# shellcheck shell=bash
# its own nodes
# needs: aws curl openssl
# stdin: shoaldev-secret
# Three machines of the page are three addresses here, and `systemctl` starts the nodes as the unit would: with the
# configuration of the page, but for the lake, the client's key, and what the page says to change.
install -d -m 0700 /etc/shoal/secrets
for number in 2 3; do ip address add "10.0.0.$number/8" dev lo; done
shoal dev --nodes 1 --s3-port 0 --admin-port 0 --peer-port 0 --lake-port 9090 > lake.log 2>&1 &
until curl --silent --output lake-answer http://127.0.0.1:9090; do sleep 0.1; done
block toml 1 install > page.toml
mkdir bin
cat > bin/systemctl << 'UNIT'
#!/bin/sh
set -e
[ "$*" = 'enable --now shoal' ]
install -d -m 0700 /run/credentials/shoal.service
for secret in /etc/shoal/secrets/*; do
  cp -p "$secret" "/run/credentials/shoal.service/secrets_$(basename "$secret")"
done
for number in 1 2 3; do
  sed -e "s,\"a1\",\"a$number\"," -e "s,rack-1,rack-$number," -e "s,^listen = \"10.0.0.1:,listen = \"10.0.0.$number:," \
    -e "s,https://s3.eu-central-1.amazonaws.com,http://127.0.0.1:9090," -e 's,eu-central-1,us-east-1,' \
    -e "s,AKIA…,shoaldev," -e "s,/var/cache/shoal,/var/cache/shoal-$number," "$HOME/page.toml" > "$HOME/$number.toml"
  chmod 600 "$HOME/$number.toml"
  shoal serve --config "$HOME/$number.toml" --admin-listen "127.0.0.$number:9100" > "$HOME/node-$number.log" 2>&1 &
  for try in $(seq 100); do
    curl --silent --fail "http://127.0.0.$number:9100/readyz" > "$HOME/ready" && break
    sleep 0.1
  done
done
cat "$HOME/ready"
UNIT
chmod +x bin/systemctl
