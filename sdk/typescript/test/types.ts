// Uses of the client that compile, and uses that the compiler refuses. make sdk compiles it.
import {Broker, Relay} from '../types/index.js';

const broker = new Broker('http://127.0.0.1:8080');
const channel = await broker.request('get', '/channel/{channel}', {path: {channel: 'orders'}});
export const token: string | undefined = channel.Token;
// @ts-expect-error There is no such path.
await broker.request('get', '/chanel/{channel}', {path: {channel: 'orders'}});
// @ts-expect-error There is no such field.
channel.Tokens;

const relay = new Relay('http://127.0.0.1:8080');
await relay.request('put', '/v1/receivers/{name}', {path: {name: 'billing'}, body: {post_endpoint: 'http://127.0.0.1:9000'}});
// @ts-expect-error There is no such field.
await relay.request('put', '/v1/receivers/{name}', {path: {name: 'billing'}, body: {post_endpoints: 'http://127.0.0.1:9000'}});
await relay.send({source_id: 'shop', message_id: '1', receiver: 'billing', payload: {amount: 12}});
// @ts-expect-error A receiver is missing.
await relay.send({source_id: 'shop', message_id: '1', payload: {amount: 12}});
