#!/bin/sh
# Generates the passwords of compose.yaml at the first start, and keeps them afterwards: nats-credentials.sh NATS_DIR BROKER_DIR RELAY_DIR
# The three NATS servers read NATS_DIR/nats.conf. The brokers read BROKER_DIR/broker.cfg, and the relays of compose-relay.yaml read
# RELAY_DIR/relay.cfg. Each of the two systems has its own account. To change the passwords, stop all services and delete the three
# volumes.
set -eu
nats=$1/nats.conf
broker=$2/broker.cfg
relay=$3/relay.cfg
if [ -e "$nats" ] && [ -e "$broker" ] && [ -e "$relay" ]; then
	exit 0
fi
umask 077
# These files are left from a first start that was interrupted.
rm -f "$nats.new" "$broker.new" "$relay.new"
password() { od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }
route=$(password)
brokers=$(password)
relays=$(password)
cat >"$nats.new" <<END
listen: 0.0.0.0:4222
# The health check in the container uses this listener.
http: 127.0.0.1:8222
jetstream { store_dir: /data, sync_interval: always }
accounts {
  BROKER: { jetstream: enabled, users: [{ user: broker, password: "$brokers" }] }
  RELAY: { jetstream: enabled, users: [{ user: relay, password: "$relays" }] }
}
cluster {
  name: jetpull
  listen: 0.0.0.0:6222
  authorization { user: route, password: "$route" }
  routes: [nats://route:$route@n1:6222, nats://route:$route@n2:6222, nats://route:$route@n3:6222]
}
END
# config USER PASSWORD prints the configuration of a client.
config() {
	cat <<END
[nats]
url=nats://$1:$2@n1:4222,nats://$1:$2@n2:4222,nats://$1:$2@n3:4222
replicas=3
END
}
config broker "$brokers" >"$broker.new"
config relay "$relays" >"$relay.new"
# The image runs as this user.
[ "$(id -u)" != 0 ] || chown 65532:65532 "$broker.new" "$relay.new"
mv "$nats.new" "$nats"
mv "$broker.new" "$broker"
mv "$relay.new" "$relay"
