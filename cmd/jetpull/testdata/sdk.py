"""Uses each part of sdk/python once, and prints what it saw as JSON: python3 sdk.py SDK CONFIG"""

import json
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
from jetpull import Broker, ClaimLostError, FatalError, Message, Relay, ResponseError, SignatureError, verify  # noqa: E402

c = json.loads(sys.argv[2])
saw = {}


def failure(f):
    try:
        f()
    except Exception as e:
        return e
    return None


broker = Broker(c["flakyBroker"], c["admin"], pause=0.001)
broker.request("PUT", "/channel/orders", form={"token": "ct"})
broker.request("PUT", "/producer/shop", form={"token": "pt"})
broker.request("PUT", "/channel/orders/consumer/k", form={"token": "kt", "type": "pull", "callbackUrl": "http://127.0.0.1/unused"})
saw["token"] = broker.request("GET", "/channel/orders")["Token"]

producer = ("orders", "ct", "shop", "pt")
first = Message(b"first", id="a.1/ü", content_type="application/octet-stream", priority=1, headers={"X-Tenant": "acme"}, event_type="order.paid")
saw["location"] = broker.broadcast(*producer, first)
saw["duplicate"] = failure(lambda: broker.broadcast(*producer, first)).status
broker.broadcast(*producer, Message(b"\xff\x00", priority=2))
saw["denied"] = failure(lambda: broker.broadcast("orders", "ct", "shop", "wrong", Message(b"x"))).status

consumer = broker.consumer("orders", "ct", "k", "kt")
claimed = consumer.claim(10, wait=20)
saw["claimed"] = [[j.payload.decode() if j.message_id == "a.1/ü" else j.payload.hex(), j.content_type, j.event_type, j.headers.get("X-Tenant", ""),
                   j.priority] for j in claimed]
claimed[1].delivered()
claimed[1].delivered()
before = claimed[0]._expires
claimed[0].extend(1)
saw["extended"] = claimed[0]._expires > before
again = consumer.claim(wait=20)  # the claim expires, and another worker gets the job
saw["again"] = again[0].id == claimed[0].id
saw["lost"] = isinstance(failure(claimed[0].delivered), ClaimLostError)
again[0].dead()

for i in range(10):
    broker.broadcast(*producer, Message(str(i).encode(), id=f"work-{i}"))
stop = threading.Event()
done, errors, long, exits, retried = set(), [], [], [], set()


def handle(job):
    done.add(job.message_id)
    if job.message_id == "work-3":
        raise FatalError("never")
    if job.message_id == "work-4" and not long:
        long.append(job)
        raise RuntimeError("not now")
    if job.message_id == "work-5":
        at = job._expires
        while job._expires == at:
            time.sleep(0.005)
    if job.message_id == "work-6" and not exits:
        sys.exit("gone")
    if job.message_id in ("work-4", "work-6"):
        retried.add(job.message_id)
    if len(done) == 10 and len(retried) == 2:
        stop.set()


def on_error(e):
    if "SystemExit" in str(e):
        exits.append(e)
        raise RuntimeError("on_error has failed, too")
    errors.append(str(e))


consumer.consume(handle, stop, concurrency=4, on_error=on_error)
saw["errors"] = sorted(errors)
assert [str(e) for e in exits] == ["the handler raised SystemExit('gone')"], exits
saw["refused"] = failure(lambda: broker.consumer("orders", "ct", "k", "wrong").consume(handle, threading.Event())).status

relay = Relay(c["flakyRelay"], c["admin"], pause=0.001)
relay.request("PUT", "/v1/receivers/billing", body={"post_endpoint": c["receiver"]})
saw["sent"] = relay.send("shop.1", "m/1", "billing", {"amount": 12}, wait=20)["response"]
saw["response"] = relay.response("shop.1", "m/1")["status"]
saw["conflict"] = failure(lambda: relay.send("shop.1", "m/1", "billing", {"amount": 13})).code
saw["unknown"] = isinstance(failure(lambda: relay.send("shop.1", "m2", "nobody", {})), ResponseError)

saw["verdicts"] = []
for signed in c["signed"]:
    try:
        saw["verdicts"].append(verify(c["secrets"], signed["headers"], signed["body"].encode()))
    except SignatureError:
        saw["verdicts"].append("refused")
print(json.dumps(saw))
