/** @typedef {import('../types/relay-api.js').paths} Paths */
/** @typedef {import('../types/relay-api.js').components['schemas']} Schemas */
/** A client of a webhook relay. */
export class Relay {
    /**
     * @param {string} url such as http://127.0.0.1:8080
     * @param {import('./http.js').ClientOptions & {token?: string}} [options] token: of a sender, or of the administration
     */
    constructor(url: string, options?: import("./http.js").ClientOptions & {
        token?: string;
    });
    http: Http;
    /**
     * request makes any request of the interface, once.
     * @template {keyof Paths} P
     * @template {keyof Paths[P] & ('get' | 'put' | 'post' | 'patch' | 'delete')} M
     * @param {M} method
     * @param {P} path such as '/v1/receivers/{name}'
     * @param {Partial<import('./http.js').Request<Paths[P][M]>>} [r]
     * @returns {Promise<import('./http.js').Answer<Paths[P][M]>>}
     */
    request<P extends keyof Paths, M extends keyof Paths[P] & ("get" | "put" | "post" | "patch" | "delete")>(method: M, path: P, r?: Partial<import("./http.js").Request<Paths[P][M]>>): Promise<import("./http.js").Answer<Paths[P][M]>>;
    /**
     * send stores a message, and returns its state. source_id and message_id identify it: the relay delivers a message with the same pair once, however
     * often it is sent, so send repeats the request while the relay is unavailable. With `wait`, it waits for the receiver's response for up to that
     * many seconds, at most 300.
     * @param {Schemas['Message']} message
     * @param {{wait?: number, signal?: AbortSignal}} [options]
     * @returns {Promise<Partial<Schemas['Told']> & Schemas['Accepted']>}
     */
    send(message: Schemas["Message"], { wait, signal }?: {
        wait?: number;
        signal?: AbortSignal;
    }): Promise<Partial<Schemas["Told"]> & Schemas["Accepted"]>;
    /**
     * response waits for the response to a message for up to `wait` seconds, at most 300, and returns its state.
     * @param {string} source
     * @param {string} id
     * @param {{wait?: number, signal?: AbortSignal}} [options]
     * @returns {Promise<Schemas['Told']>}
     */
    response(source: string, id: string, { wait, signal }?: {
        wait?: number;
        signal?: AbortSignal;
    }): Promise<Schemas["Told"]>;
}
export type Paths = import("../types/relay-api.js").paths;
export type Schemas = import("../types/relay-api.js").components["schemas"];
import { Http } from './http.js';
