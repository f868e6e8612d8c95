// Uses each part of sdk/typescript once, and prints what it saw as JSON: node sdk.mjs SDK CONFIG
const {Broker, ClaimLostError, FatalError, Relay, ResponseError, SignatureError, UnavailableError, verify} = await import(process.argv[2]);
const c = JSON.parse(process.argv[3]);
const saw = {};
const failure = async (f) => { try { await f(); return null; } catch (e) { return e; } };
const tick = () => new Promise((resolve) => setTimeout(resolve, 5));

const broker = new Broker(c.flakyBroker, {adminToken: c.admin, pause: 1});
const of = {channel: 'orders', channelToken: 'ct'};
const form = (o) => new URLSearchParams(o);
await broker.request('put', '/channel/{channel}', {path: {channel: 'orders'}, body: form({token: 'ct'})});
await broker.request('put', '/producer/{producer}', {path: {producer: 'shop'}, body: form({token: 'pt'})});
await broker.request('put', '/channel/{channel}/consumer/{consumer}',
  {path: {channel: 'orders', consumer: 'k'}, body: form({token: 'kt', type: 'pull', callbackUrl: 'http://127.0.0.1/unused'})});
saw.token = (await broker.request('get', '/channel/{channel}', {path: {channel: 'orders'}})).Token;

const producer = {...of, id: 'shop', token: 'pt'};
saw.location = await broker.broadcast(producer,
  {id: 'a.1/ü', payload: 'first', priority: 1, headers: {'X-Tenant': 'acme'}, eventType: 'order.paid'});
saw.duplicate = (await failure(() => broker.broadcast(producer, {id: 'a.1/ü', payload: 'first'}))).status;
await broker.broadcast(producer, {payload: new Uint8Array([0xff, 0]), priority: 2});
saw.denied = (await failure(() => broker.broadcast({...producer, token: 'wrong'}, {payload: 'x'}))).status;

const consumer = broker.consumer({...of, id: 'k', token: 'kt'});
const claimed = await consumer.claim({limit: 10, wait: 20});
saw.claimed = claimed.map((j) => [j.messageId === 'a.1/ü' ? j.text() : Buffer.from(j.payload).toString('hex'), j.contentType, j.eventType ?? '',
  j.headers['X-Tenant'] ?? '', j.priority]);
await claimed[1].delivered();
await claimed[1].delivered();
const before = claimed[0].expires;
await claimed[0].extend(1);
saw.extended = claimed[0].expires > before;
// The claim expires, and another worker gets the job.
const again = await consumer.claim({wait: 20});
saw.again = again[0].id === claimed[0].id;
saw.lost = await failure(() => claimed[0].delivered()) instanceof ClaimLostError;
await again[0].dead();

for (let i = 0; i < 10; i++) await broker.broadcast(producer, {id: `work-${i}`, payload: String(i)});
const stop = new AbortController();
const done = new Set(), errors = [];
let long = 0;
await consumer.consume(async (job) => {
  done.add(job.messageId);
  if (job.messageId === 'work-3') throw new FatalError('never');
  if (job.messageId === 'work-4' && long++ === 0) throw new Error('not now');
  if (job.messageId === 'work-5') for (const at = job.expires; job.expires === at;) await tick();
  if (done.size === 10 && job.messageId === 'work-4') stop.abort();
}, {concurrency: 4, signal: stop.signal, onError: (e) => errors.push(e.message)});
saw.errors = errors.sort();
saw.refused = (await failure(() => broker.consumer({...of, id: 'k', token: 'wrong'}).consume(() => {}))).status;

const relay = new Relay(c.flakyRelay, {token: c.admin, pause: 1});
await relay.request('put', '/v1/receivers/{name}', {path: {name: 'billing'}, body: {post_endpoint: c.receiver}});
const message = {source_id: 'shop.1', message_id: 'm/1', receiver: 'billing', payload: {amount: 12}};
saw.sent = (await relay.send(message, {wait: 20})).response;
saw.response = (await relay.response('shop.1', 'm/1')).status;
saw.conflict = (await failure(() => relay.send({...message, payload: {amount: 13}}))).code;
saw.unknown = await failure(() => relay.send({...message, receiver: 'nobody', message_id: 'm2'})) instanceof ResponseError;

// A server that accepts a request and never answers.
const silent = (_, {signal}) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
const open = setTimeout(() => {}, 60_000); // the timer of a signal does not keep a process
const late = await failure(() => new Relay(c.flakyRelay, {fetch: silent, timeout: 10, tries: 2, pause: 1}).send(message, {wait: 0.01}));
clearTimeout(open);
if (!(late instanceof UnavailableError)) throw new Error(`a request without an answer ended with ${late}`);

saw.verdicts = c.signed.map(({headers, body}) => {
  try {
    return verify(c.secrets, headers, Buffer.from(body));
  } catch (e) {
    return e instanceof SignatureError ? 'refused' : String(e);
  }
});
console.log(JSON.stringify(saw));
