/** A response with a status other than success. */
export class ResponseError extends Error {
  /**
   * @param {number} status the HTTP status
   * @param {string} text the error as the server states it
   * @param {string} [code] the relay's code of the error
   */
  constructor(status, text, code) {
    super(`the server answered ${status}: ${text}`);
    this.name = 'ResponseError';
    this.status = status;
    this.text = text;
    this.code = code;
    /** how often the request was made */
    this.tries = 1;
  }
}

/** The server could not be reached, or cannot serve the request now. The request may have been carried out. */
export class UnavailableError extends Error {
  /** @param {string} text @param {unknown} [cause] */
  constructor(text, cause) {
    super(text, {cause});
    this.name = 'UnavailableError';
  }
}

/**
 * @typedef {object} ClientOptions
 * @property {typeof globalThis.fetch} [fetch] used in place of the global one
 * @property {number} [tries] how often a request that can be repeated is made while the server is unavailable; 5 by default
 * @property {number} [timeout] milliseconds for one try, in addition to the time that it asks the server to wait; 30,000 by default
 * @property {number} [pause] milliseconds before the second try; they double with each, up to 5 s; 100 by default
 */

/**
 * @template T
 * @typedef {T extends {requestBody?: {content: infer C}} ? C[keyof C] : never} BodyOf
 */
/**
 * What a request of an operation has. `body` of JSON is a value, of a form an object of strings, and of another type a string or bytes.
 * @template O
 * @typedef {(O extends {parameters: infer P} ? Omit<P, 'cookie'> : {}) & {body?: BodyOf<O>, signal?: AbortSignal}} Request
 */
/**
 * @template O
 * @typedef {O extends {responses: infer R} ? {[S in keyof R]: S extends 200 | 201 | 202 ?
 *   (R[S] extends {content: infer C} ? C[keyof C] : undefined) : never}[keyof R] : never} Answer
 */

/** bytes returns the characters whose codes are the bytes of a value in UTF-8: fetch sends a character of a header as one byte. */
const bytes = (/** @type {unknown} */ value) => Buffer.from(String(value)).toString('latin1');

const retried = new Set([429, 502, 503, 504]);

/** escape makes an ID one segment of a path. */
export const escape = (/** @type {unknown} */ id) => encodeURIComponent(String(id)).replaceAll('.', '%2E');

/**
 * @param {string} base
 * @param {string} path
 * @param {Record<string, unknown>} [segments]
 * @param {Record<string, unknown>} [query]
 */
function address(base, path, segments = {}, query = {}) {
  const url = new URL(base.replace(/\/$/, '') + path.replace(/\{(\w+)\}/g, (_, name) => escape(segments[name])));
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.append(name, String(value));
  return url;
}

/** milliseconds are those of a duration such as 20s or 1m30s, or of a number of seconds. */
function milliseconds(/** @type {unknown} */ duration = 0) {
  const units = {ms: 1, s: 1000, m: 60_000, h: 3_600_000};
  let sum = 0;
  for (const [, n, unit] of String(duration).matchAll(/([\d.]+)(ms|s|m|h)?/g)) sum += Number(n) * units[/** @type {keyof units} */ (unit ?? 's')];
  return Math.ceil(sum) || 0;
}

/** @param {Response} response */
async function refusal(response) {
  const text = await response.text();
  if (response.status >= 502 && response.status <= 504) return new UnavailableError(`the server answered ${response.status}: ${text}`);
  try {
    const {error} = JSON.parse(text);
    return new ResponseError(response.status, error.message, error.code);
  } catch {
    return new ResponseError(response.status, text);
  }
}

/** A client of one server. Redirects are refused, because tokens are for this server only. */
export class Http {
  /** @param {string} base @param {Record<string, string>} header @param {ClientOptions} options */
  constructor(base, header, options) {
    this.base = base;
    this.header = header;
    this.fetch = options.fetch ?? globalThis.fetch;
    this.tries = options.tries ?? 5;
    this.pause = options.pause ?? 100;
    this.timeout = options.timeout ?? 30_000;
  }

  /**
   * send makes one request, again and again while the server is unavailable if `repeat` is true.
   * @param {string} method
   * @param {string} path
   * @param {{path?: Record<string, unknown>, query?: Record<string, unknown>, header?: Record<string, unknown>, body?: any, signal?: AbortSignal}} r
   * @param {boolean} repeat
   * @returns {Promise<{response: Response, tries: number}>}
   */
  async send(method, path, r, repeat) {
    const headers = new Headers(this.header);
    for (const [name, value] of Object.entries(r.header ?? {})) if (value !== undefined) headers.set(name, bytes(value));
    let body = r.body;
    if (body !== undefined && typeof body !== 'string' && !(body instanceof Uint8Array) && !(body instanceof URLSearchParams)) {
      body = JSON.stringify(body);
      if (!headers.has('Content-Type')) headers.set('Content-Type', 'application/json');
    }
    const url = address(this.base, path, r.path, r.query);
    for (let tries = 1, pause = this.pause; ; tries++, pause = Math.min(2 * pause, 5000)) {
      let error, wait = pause;
      try {
        const bound = AbortSignal.timeout(this.timeout + milliseconds(r.query?.wait));
        const signal = r.signal ? AbortSignal.any([r.signal, bound]) : bound;
        const response = await this.fetch(url, {method: method.toUpperCase(), headers, body, signal, redirect: 'error'});
        if (response.status < 300) return {response, tries};
        error = await refusal(response);
        if (error instanceof ResponseError) error.tries = tries;
        if (!retried.has(response.status)) throw error;
        wait = Math.max(wait, 1000 * Number(response.headers.get('Retry-After')) || 0);
      } catch (e) {
        r.signal?.throwIfAborted();
        if (e instanceof ResponseError && !retried.has(e.status)) throw e;
        error = e instanceof ResponseError || e instanceof UnavailableError ? e : new UnavailableError(`${url.origin} cannot be reached`, e);
      }
      if (!repeat || tries >= this.tries) throw error;
      await sleep(wait, r.signal);
    }
  }

  /** @param {string} method @param {string} path @param {any} r @param {boolean} repeat @returns {Promise<any>} */
  async json(method, path, r, repeat) {
    const {response} = await this.send(method, path, r, repeat);
    const text = await response.text();
    return response.headers.get('Content-Type')?.startsWith('application/json') ? JSON.parse(text) : text || undefined;
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => { clearTimeout(timer); reject(signal?.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener('abort', abort); resolve(); }, ms);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort, {once: true});
  });
}
