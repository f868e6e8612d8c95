/** @typedef {import('../types/broker-api.js').paths} Paths */
/** @typedef {import('../types/broker-api.js').components['schemas']} Schemas */
/** The claim is over: it expired, or another worker has the job. */
export class ClaimLostError extends Error {
    /** @param {string} text */
    constructor(text: string);
}
/** A handler throws it if the work can never be done: the job becomes dead without a retry. */
export class FatalError extends Error {
}
/** A client of a webhook broker. */
export class Broker {
    /**
     * @param {string} url such as http://127.0.0.1:8080
     * @param {import('./http.js').ClientOptions & {adminToken?: string}} [options]
     */
    constructor(url: string, options?: import("./http.js").ClientOptions & {
        adminToken?: string;
    });
    http: Http;
    /**
     * request makes any request of the interface, once. Forms are URLSearchParams.
     * @template {keyof Paths} P
     * @template {keyof Paths[P] & ('get' | 'put' | 'post' | 'delete')} M
     * @param {M} method
     * @param {P} path such as '/channel/{channel}'
     * @param {Partial<import('./http.js').Request<Paths[P][M]>> | {body: URLSearchParams}} [r]
     * @returns {Promise<import('./http.js').Answer<Paths[P][M]>>}
     */
    request<P extends keyof Paths, M extends keyof Paths[P] & ("get" | "put" | "post" | "delete")>(method: M, path: P, r?: Partial<import("./http.js").Request<Paths[P][M]>> | {
        body: URLSearchParams;
    }): Promise<import("./http.js").Answer<Paths[P][M]>>;
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
    broadcast(producer: {
        channel: string;
        channelToken: string;
        id: string;
        token: string;
    }, message: {
        payload: string | Uint8Array;
        id?: string | undefined;
        contentType?: string | undefined;
        eventType?: string | undefined;
        priority?: number | undefined;
        headers?: Record<string, string> | undefined;
        at?: Date | undefined;
    }, signal?: AbortSignal): Promise<string>;
    /**
     * consumer returns a pull consumer. It makes no request.
     * @param {{channel: string, channelToken: string, id: string, token: string}} of
     */
    consumer(of: {
        channel: string;
        channelToken: string;
        id: string;
        token: string;
    }): Consumer;
}
/** A pull consumer of a broker. */
export class Consumer {
    /** @param {Http} http @param {{channel: string, channelToken: string, id: string, token: string}} of */
    constructor(http: Http, of: {
        channel: string;
        channelToken: string;
        id: string;
        token: string;
    });
    http: Http;
    path: {
        channel: string;
        consumer: string;
    };
    header: {
        'X-Broker-Channel-Token': string;
        'X-Broker-Consumer-Token': string;
    };
    /**
     * claim claims up to `limit` jobs for this caller. If there are none, it waits for one for up to `wait` seconds, and then returns none. A claim
     * lasts for the broker's claim time, 32.25 s by default, plus `timeout` seconds.
     * @param {{limit?: number, wait?: number, timeout?: number, signal?: AbortSignal}} [options]
     * @returns {Promise<Job[]>}
     */
    claim({ limit, wait, timeout, signal }?: {
        limit?: number;
        wait?: number;
        timeout?: number;
        signal?: AbortSignal;
    }): Promise<Job[]>;
    /**
     * consume claims jobs and calls `handler` for each until `signal` is aborted; then it waits for the handlers that run. It extends claims meanwhile.
     * A job is completed when its handler returns, dead if it throws a FatalError, and queued again when its claim ends if it throws another error. The
     * handler's signal is aborted if the claim is lost. If the broker refuses the tokens or does not know the consumer, consume throws.
     * @param {(job: Job, signal: AbortSignal) => Promise<unknown> | unknown} handler
     * @param {{concurrency?: number, timeout?: number, signal?: AbortSignal, onError?: (error: unknown) => void}} [options]
     */
    consume(handler: (job: Job, signal: AbortSignal) => Promise<unknown> | unknown, { concurrency, timeout, signal, onError }?: {
        concurrency?: number;
        timeout?: number;
        signal?: AbortSignal;
        onError?: (error: unknown) => void;
    }): Promise<void>;
}
/** A message that one consumer has to work on. */
export class Job {
    /** @param {Consumer} consumer @param {Schemas['QueuedJob']} j @param {number} ahead milliseconds that this clock is ahead of the broker's */
    constructor(consumer: Consumer, j: Schemas["QueuedJob"], ahead: number);
    consumer: Consumer;
    id: string;
    messageId: string;
    /** @type {Uint8Array} */
    payload: Uint8Array;
    contentType: string;
    eventType: string | undefined;
    headers: {
        [key: string]: string;
    };
    priority: number;
    claimToken: string | undefined;
    ahead: number;
    /** when the claim ends, in milliseconds of this machine's clock */
    expires: number;
    /** text is the payload as UTF-8. */
    text(): string;
    /** @param {string} rest @param {object} body @param {boolean} repeat @param {AbortSignal} [signal] @returns {Promise<any>} */
    post(rest: string, body: object, repeat: boolean, signal?: AbortSignal): Promise<any>;
    /** delivered reports that the work is done. It throws a ClaimLostError if the claim is over. */
    delivered(): Promise<void>;
    /** dead reports that the work can never be done. It throws a ClaimLostError if the claim is over. */
    dead(): Promise<void>;
    /**
     * extend makes the claim last from now for the broker's claim time plus `timeout` seconds. It throws a ClaimLostError if the claim is over.
     * @param {number} [timeout]
     * @param {AbortSignal} [signal]
     */
    extend(timeout?: number, signal?: AbortSignal): Promise<void>;
    /**
     * handle runs a handler, extends the claim meanwhile, and reports the outcome.
     * @param {(job: Job, signal: AbortSignal) => unknown} handler
     * @param {number} timeout
     * @param {(error: unknown) => void} onError
     */
    handle(handler: (job: Job, signal: AbortSignal) => unknown, timeout: number, onError: (error: unknown) => void): Promise<void>;
    /**
     * keep extends the claim whenever half of its remaining time has passed.
     * @param {number} timeout
     * @param {AbortController} lost
     * @param {AbortSignal} ended
     * @param {(error: unknown) => void} onError
     */
    keep(timeout: number, lost: AbortController, ended: AbortSignal, onError: (error: unknown) => void): Promise<void>;
}
export type Paths = import("../types/broker-api.js").paths;
export type Schemas = import("../types/broker-api.js").components["schemas"];
import { Http } from './http.js';
