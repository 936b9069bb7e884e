# Runs a command in namespaces of its own, where it may build networks and where nothing outlives it.
# shellcheck shell=bash

# cannot_isolate: prints why this machine cannot do it, and succeeds; fails without a word when it can.
cannot_isolate() {
  local program
  for program in unshare setpriv ip tc nft python3; do
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$program" > /dev/null; then
      echo "$program is not installed (Debian: util-linux, iproute2, nftables)"
      return 0
    fi
  done
  local probe='
    mount -t tmpfs none /run && mkdir /run/netns && ip netns add probe &&
    ip link add probe0 type veth peer name probe1 && ip link add probe2 type bridge &&
    tc qdisc add dev probe0 root tbf rate 1mbit burst 64kb latency 50ms &&
    nft add table bridge probe'
  local reason
  if ! reason=$(isolated sh -c "$probe" 2>&1); then
    echo "namespaces, veth, bridges, tbf and nftables are needed: ${reason//$'\n'/; }"
    return 0
  fi
  return 1
}

# skip_without_isolation: ends the script where this machine cannot isolate, and says why.
skip_without_isolation() {
  local reason
  if reason=$(cannot_isolate); then
    echo "skipped: $reason"
    exit 0
  fi
}

# isolated COMMAND... runs the command as process 1 of a namespace of its own. When the command or this shell
# ends or is killed, the kernel ends all processes that the command started, and removes the networks.
isolated() {
  local user=()
  [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  PATH="$PATH:/usr/sbin:/sbin" setpriv --pdeathsig KILL \
    unshare "${user[@]}" --net --mount --pid --fork --kill-child=KILL --mount-proc "$@"
}

# in_scratch COMMAND... runs the command isolated, with a folder as its last argument, and removes the folder
# in every case.
in_scratch() {
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/shoal-net-XXXXXX")
  # A shell waits for a command in the foreground before it heeds a signal.
  isolated "$@" "$scratch" &
  isolated_pid=$!
  trap end_isolated EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  wait "$isolated_pid"
}

end_isolated() {
  kill -KILL "$isolated_pid" 2> /dev/null || true
  wait "$isolated_pid" 2> /dev/null || true
  # The last process may still be writing while the kernel ends it.
  rm -rf "$scratch" 2> /dev/null || { sleep 1 && rm -rf "$scratch"; }
}
