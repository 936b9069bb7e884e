# shellcheck shell=bash
# needs: dig
# The configuration of the page, for the nodes of this machine. Port 53 is free here.
ip address add 10.255.0.53/32 dev lo
block toml 1 lookup | sed 's,"http://10.1.1.1:9100"\, "http://10.2.1.1:9100"\, "http://10.3.1.1:9100",http://127.0.0.1:9100,' > shoal.toml
sed -i 's,\[http://127.0.0.1:9100\],["http://127.0.0.1:9100"],' shoal.toml
