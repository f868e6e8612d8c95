import {Http, ResponseError, UnavailableError, escape, sleep} from './http.js';

/** @typedef {import('../types/broker-api.js').paths} Paths */
/** @typedef {import('../types/broker-api.js').components['schemas']} Schemas */

/** The claim is over: it expired, or another worker has the job. */
export class ClaimLostError extends Error {
  /** @param {string} text */
  constructor(text) {
    super(text);
    this.name = 'ClaimLostError';
  }
}

/** A handler throws it if the work can never be done: the job becomes dead without a retry. */
export class FatalError extends Error {}

const pollSeconds = 20, maxClaim = 100;

/** A client of a webhook broker. */
export class Broker {
  /**
   * @param {string} url such as http://127.0.0.1:8080
   * @param {import('./http.js').ClientOptions & {adminToken?: string}} [options]
   */
  constructor(url, options = {}) {
    this.http = new Http(url, options.adminToken ? {'X-Broker-Admin-Token': options.adminToken} : {}, options);
  }

  /**
   * request makes any request of the interface, once. Forms are URLSearchParams.
   * @template {keyof Paths} P
   * @template {keyof Paths[P] & ('get' | 'put' | 'post' | 'delete')} M
   * @param {M} method
   * @param {P} path such as '/channel/{channel}'
   * @param {Partial<import('./http.js').Request<Paths[P][M]>> | {body: URLSearchParams}} [r]
   * @returns {Promise<import('./http.js').Answer<Paths[P][M]>>}
   */
  request(method, path, r = {}) {
    return this.http.json(String(method), String(path), r, false);
  }

  /**
   * broadcast stores a message, and returns its path. It repeats the request while the broker is unavailable, with the same ID, so that the message
   * is stored once.
   * @param {{channel: string, channelToken: string, id: string, token: string}} producer
   * @param {object} message
   * @param {string | Uint8Array} message.payload at least one byte
   * @param {string} [message.id] unique in the channel; by default one is generated
   * @param {string} [message.contentType]
   * @param {string} [message.eventType]
   * @param {number} [message.priority] from 0; jobs of a higher priority go first
   * @param {Record<string, string>} [message.headers] passed on to consumers
   * @param {Date} [message.at] when the broker broadcasts it; at once by default
   * @param {AbortSignal} [signal]
   * @returns {Promise<string>}
   */
  async broadcast(producer, message, signal) {
    const id = message.id ?? crypto.randomUUID();
    const names = Object.keys(message.headers ?? {});
    /** @type {Record<string, unknown>} */
    const header = {
      ...message.headers, 'X-Broker-Channel-Token': producer.channelToken, 'X-Broker-Producer-ID': producer.id,
      'X-Broker-Producer-Token': producer.token, 'X-Broker-Message-ID': id, 'X-Broker-Message-Priority': message.priority,
      'X-Broker-Event-Type': message.eventType, 'X-Broker-Metadata-Headers': names.length ? names.join(',') : undefined,
      'X-Broker-Scheduled-For': message.at?.toISOString(), 'Content-Type': message.contentType ?? 'application/octet-stream',
    };
    const segments = {channel: producer.channel};
    try {
      const {response} = await this.http.send('POST', '/channel/{channel}/broadcast', {path: segments, header, body: message.payload, signal}, true);
      return response.headers.get('Location') ?? '';
    } catch (e) {
      // The response to an earlier try was lost, but the message is stored.
      if (e instanceof ResponseError && e.status === 409 && e.tries > 1) {
        return `/channel/${escape(producer.channel)}/message/${escape(id)}`;
      }
      throw e;
    }
  }

  /**
   * consumer returns a pull consumer. It makes no request.
   * @param {{channel: string, channelToken: string, id: string, token: string}} of
   */
  consumer(of) {
    return new Consumer(this.http, of);
  }
}

/** A pull consumer of a broker. */
export class Consumer {
  /** @param {Http} http @param {{channel: string, channelToken: string, id: string, token: string}} of */
  constructor(http, of) {
    this.http = http;
    this.path = {channel: of.channel, consumer: of.id};
    this.header = {'X-Broker-Channel-Token': of.channelToken, 'X-Broker-Consumer-Token': of.token};
  }

  /**
   * claim claims up to `limit` jobs for this caller. If there are none, it waits for one for up to `wait` seconds, and then returns none. A claim
   * lasts for the broker's claim time, 32.25 s by default, plus `timeout` seconds.
   * @param {{limit?: number, wait?: number, timeout?: number, signal?: AbortSignal}} [options]
   * @returns {Promise<Job[]>}
   */
  async claim({limit = 1, wait = 0, timeout = 0, signal} = {}) {
    const query = {limit, wait: wait ? `${wait}s` : undefined, timeout: timeout ? `${timeout}s` : undefined};
    const began = Date.now();
    const {response} = await this.http.send('POST', '/channel/{channel}/consumer/{consumer}/claim',
      {path: this.path, header: this.header, query, signal}, false);
    /** @type {Schemas['Jobs']} */
    const jobs = JSON.parse(await response.text());
    // Times are those of the broker, whose clock can differ from that of this machine. Date has whole seconds.
    const clock = Date.parse(response.headers.get('Date') ?? '') || began;
    const ahead = Math.abs(Date.now() - clock) > 2000 ? Date.now() - clock - 1000 : 0;
    return jobs.Result.map((j) => new Job(this, j, ahead));
  }

  /**
   * consume claims jobs and calls `handler` for each until `signal` is aborted; then it waits for the handlers that run. It extends claims meanwhile.
   * A job is completed when its handler returns, dead if it throws a FatalError, and queued again when its claim ends if it throws another error. The
   * handler's signal is aborted if the claim is lost. If the broker refuses the tokens or does not know the consumer, consume throws.
   * @param {(job: Job, signal: AbortSignal) => Promise<unknown> | unknown} handler
   * @param {{concurrency?: number, timeout?: number, signal?: AbortSignal, onError?: (error: unknown) => void}} [options]
   */
  async consume(handler, {concurrency = 1, timeout = 0, signal, onError = () => {}} = {}) {
    /** @type {Set<Promise<void>>} */
    const running = new Set();
    let pause = 100;
    try {
      while (!signal?.aborted) {
        if (running.size >= concurrency) await Promise.race(running);
        if (signal?.aborted) break;
        try {
          const bound = AbortSignal.timeout(Math.ceil(1000 * (pollSeconds + 40 + timeout)));
          const either = signal ? AbortSignal.any([signal, bound]) : bound;
          const limit = Math.min(concurrency - running.size, maxClaim);
          for (const job of await this.claim({limit, wait: pollSeconds, timeout, signal: either})) {
            const one = job.handle(handler, timeout, onError).finally(() => running.delete(one));
            running.add(one);
          }
          pause = 100;
        } catch (e) {
          if (signal?.aborted) break;
          if (e instanceof ResponseError && [401, 403, 404, 412].includes(e.status)) throw e;
          onError(e);
          await sleep(pause, signal).catch(() => {});
          pause = Math.min(2 * pause, 5000);
        }
      }
    } finally {
      await Promise.all(running);
    }
  }
}

/** A message that one consumer has to work on. */
export class Job {
  /** @param {Consumer} consumer @param {Schemas['QueuedJob']} j @param {number} ahead milliseconds that this clock is ahead of the broker's */
  constructor(consumer, j, ahead) {
    this.consumer = consumer;
    this.id = j.ID;
    this.messageId = j.Message.MessageID;
    /** @type {Uint8Array} */
    this.payload = Buffer.from(j.Message.Payload, j.Message.PayloadEncoding ?? 'utf8');
    this.contentType = j.Message.ContentType;
    this.eventType = j.Message.EventType;
    this.headers = j.Message.Headers;
    this.priority = j.Priority;
    this.claimToken = j.ClaimToken;
    this.ahead = ahead;
    /** when the claim ends, in milliseconds of this machine's clock */
    this.expires = Date.parse(j.ClaimExpiresAt ?? '') + ahead;
  }

  /** text is the payload as UTF-8. */
  text() { return new TextDecoder().decode(this.payload); }

  /** @param {string} rest @param {object} body @param {boolean} repeat @param {AbortSignal} [signal] @returns {Promise<any>} */
  async post(rest, body, repeat, signal) {
    const path = {...this.consumer.path, job: this.id};
    try {
      return await this.consumer.http.json('POST', `/channel/{channel}/consumer/{consumer}/job/{job}${rest}`,
        {path, header: this.consumer.header, body: {...body, ClaimToken: this.claimToken}, signal}, repeat);
    } catch (e) {
      if (e instanceof ResponseError && e.status === 409) throw new ClaimLostError(`job ${this.id}: ${e.text}`);
      throw e;
    }
  }

  /** delivered reports that the work is done. It throws a ClaimLostError if the claim is over. */
  async delivered() { await this.post('', {NextState: 'DELIVERED'}, true); }

  /** dead reports that the work can never be done. It throws a ClaimLostError if the claim is over. */
  async dead() { await this.post('', {NextState: 'DEAD'}, true); }

  /**
   * extend makes the claim last from now for the broker's claim time plus `timeout` seconds. It throws a ClaimLostError if the claim is over.
   * @param {number} [timeout]
   * @param {AbortSignal} [signal]
   */
  async extend(timeout = 0, signal) {
    /** @type {Schemas['Extended']} */
    const extended = await this.post('/extend', {IncrementalTimeout: timeout}, false, signal);
    this.expires = Date.parse(extended.ClaimExpiresAt) + this.ahead;
  }

  /**
   * handle runs a handler, extends the claim meanwhile, and reports the outcome.
   * @param {(job: Job, signal: AbortSignal) => unknown} handler
   * @param {number} timeout
   * @param {(error: unknown) => void} onError
   */
  async handle(handler, timeout, onError) {
    const lost = new AbortController(), ended = new AbortController();
    const keeping = this.keep(timeout, lost, ended.signal, onError);
    /** @type {unknown} */
    let failed;
    try {
      await handler(this, lost.signal);
    } catch (e) {
      failed = e ?? new Error('the handler threw nothing');
    }
    ended.abort();
    await keeping;
    if (failed !== undefined) onError(failed);
    try {
      if (lost.signal.aborted) throw lost.signal.reason;
      if (failed === undefined) await this.delivered();
      else if (failed instanceof FatalError) await this.dead();
    } catch (e) {
      onError(e);
    }
  }

  /**
   * keep extends the claim whenever half of its remaining time has passed.
   * @param {number} timeout
   * @param {AbortController} lost
   * @param {AbortSignal} ended
   * @param {(error: unknown) => void} onError
   */
  async keep(timeout, lost, ended, onError) {
    while (!ended.aborted) {
      const left = this.expires - Date.now();
      if (left <= 0) return lost.abort(new ClaimLostError(`job ${this.id}: the claim has expired`));
      try {
        await sleep(left / 2, ended);
        await this.extend(timeout, AbortSignal.any([ended, AbortSignal.timeout(Math.ceil(left / 2))]));
      } catch (e) {
        if (ended.aborted) return;
        if (e instanceof ClaimLostError || e instanceof ResponseError && e.status === 404) return lost.abort(e);
        onError(e);
        if (e instanceof UnavailableError) await sleep(Math.min(1000, left / 10), ended).catch(() => {});
      }
    }
  }
}
