#!/bin/sh
# Generates the passwords of compose.yaml at the first start, and keeps them afterwards: nats-credentials.sh NATS_DIR BROKER_DIR
# The three NATS servers read NATS_DIR/nats.conf, and the brokers read BROKER_DIR/broker.cfg. To change the passwords, stop all
# services and delete both volumes.
set -eu
nats=$1/nats.conf
broker=$2/broker.cfg
if [ -e "$nats" ] && [ -e "$broker" ]; then
	exit 0
fi
umask 077
# These files are left from a first start that was interrupted.
rm -f "$nats.new" "$broker.new"
password() { od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }
client=$(password)
route=$(password)
cat >"$nats.new" <<END
listen: 0.0.0.0:4222
# The health check in the container uses this listener.
http: 127.0.0.1:8222
jetstream { store_dir: /data, sync_interval: always }
authorization { user: broker, password: "$client" }
cluster {
  name: jetpull
  listen: 0.0.0.0:6222
  authorization { user: route, password: "$route" }
  routes: [nats://route:$route@n1:6222, nats://route:$route@n2:6222, nats://route:$route@n3:6222]
}
END
cat >"$broker.new" <<END
[nats]
url=nats://broker:$client@n1:4222,nats://broker:$client@n2:4222,nats://broker:$client@n3:4222
replicas=3
END
# The image runs as this user.
[ "$(id -u)" != 0 ] || chown 65532:65532 "$broker.new"
mv "$nats.new" "$nats"
mv "$broker.new" "$broker"
