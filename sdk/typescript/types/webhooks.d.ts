/**
 * verify throws a SignatureError unless the body is signed with one of the secrets, as Standard Webhooks describes, and the time of the signature is
 * within `tolerance` seconds of the clock. It returns the ID of the message, which is the same for each repetition.
 * @param {string | string[]} secrets
 * @param {Headers | Record<string, string | string[] | undefined>} headers names in lower case, as those of node:http
 * @param {string | Uint8Array} body as it was received
 * @param {{tolerance?: number, now?: number}} [options] now: milliseconds since 1970
 * @returns {string}
 */
export function verify(secrets: string | string[], headers: Headers | Record<string, string | string[] | undefined>, body: string | Uint8Array, { tolerance, now }?: {
    tolerance?: number;
    now?: number;
}): string;
/** A request has no valid signature. */
export class SignatureError extends Error {
}
