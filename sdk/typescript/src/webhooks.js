import {createHmac, timingSafeEqual} from 'node:crypto';

/** A request has no valid signature. */
export class SignatureError extends Error {}

/** @param {string} secret */
function key(secret) {
  const text = secret.replace(/^whsec_/, '');
  const bytes = Buffer.from(text, 'base64');
  if (!bytes.length || bytes.toString('base64').replace(/=+$/, '') !== text.replace(/=+$/, '')) {
    throw new TypeError('a secret is whsec_ and base64');
  }
  return bytes;
}

/**
 * verify throws a SignatureError unless the body is signed with one of the secrets, as Standard Webhooks describes, and the time of the signature is
 * within `tolerance` seconds of the clock. It returns the ID of the message, which is the same for each repetition.
 * @param {string | string[]} secrets
 * @param {Headers | Record<string, string | string[] | undefined>} headers names in lower case, as those of node:http
 * @param {string | Uint8Array} body as it was received
 * @param {{tolerance?: number, now?: number}} [options] now: milliseconds since 1970
 * @returns {string}
 */
export function verify(secrets, headers, body, {tolerance = 300, now = Date.now()} = {}) {
  const keys = [secrets].flat().map(key);
  if (!keys.length) throw new TypeError('no secret was given');
  const [id, time, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => {
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    if (typeof value !== 'string' || value === '') throw new SignatureError(`the header ${name} is missing, or there are several`);
    return value;
  });
  if (!/^\d{1,15}$/.test(time ?? '') || Math.abs(now / 1000 - Number(time)) > tolerance) {
    throw new SignatureError(`webhook-timestamp ${time} is not within ${tolerance} s of the clock`);
  }
  const given = (signatures ?? '').split(' ').filter((s) => s.startsWith('v1,')).map((s) => Buffer.from(s.slice(3), 'base64'));
  for (const k of keys) {
    const want = createHmac('sha256', k).update(`${id}.${time}.`).update(body).digest();
    if (given.some((g) => g.length === want.length && timingSafeEqual(g, want))) return id ?? '';
  }
  throw new SignatureError('webhook-signature is not one of the body with a known secret');
}
