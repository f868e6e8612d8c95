/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<void>;
/** A response with a status other than success. */
export class ResponseError extends Error {
    /**
     * @param {number} status the HTTP status
     * @param {string} text the error as the server states it
     * @param {string} [code] the relay's code of the error
     */
    constructor(status: number, text: string, code?: string);
    status: number;
    text: string;
    code: string | undefined;
    /** how often the request was made */
    tries: number;
}
/** The server could not be reached, or cannot serve the request now. The request may have been carried out. */
export class UnavailableError extends Error {
    /** @param {string} text @param {unknown} [cause] */
    constructor(text: string, cause?: unknown);
}
export function escape(id: unknown): string;
/** A client of one server. Redirects are refused, because tokens are for this server only. */
export class Http {
    /** @param {string} base @param {Record<string, string>} header @param {ClientOptions} options */
    constructor(base: string, header: Record<string, string>, options: ClientOptions);
    base: string;
    header: Record<string, string>;
    fetch: typeof fetch;
    tries: number;
    pause: number;
    timeout: number;
    /**
     * send makes one request, again and again while the server is unavailable if `repeat` is true.
     * @param {string} method
     * @param {string} path
     * @param {{path?: Record<string, unknown>, query?: Record<string, unknown>, header?: Record<string, unknown>, body?: any, signal?: AbortSignal}} r
     * @param {boolean} repeat
     * @returns {Promise<{response: Response, tries: number}>}
     */
    send(method: string, path: string, r: {
        path?: Record<string, unknown>;
        query?: Record<string, unknown>;
        header?: Record<string, unknown>;
        body?: any;
        signal?: AbortSignal;
    }, repeat: boolean): Promise<{
        response: Response;
        tries: number;
    }>;
    /** @param {string} method @param {string} path @param {any} r @param {boolean} repeat @returns {Promise<any>} */
    json(method: string, path: string, r: any, repeat: boolean): Promise<any>;
}
export type ClientOptions = {
    /**
     * used in place of the global one
     */
    fetch?: typeof fetch | undefined;
    /**
     * how often a request that can be repeated is made while the server is unavailable; 5 by default
     */
    tries?: number | undefined;
    /**
     * milliseconds for one try, in addition to the time that it asks the server to wait; 30,000 by default
     */
    timeout?: number | undefined;
    /**
     * milliseconds before the second try; they double with each, up to 5 s; 100 by default
     */
    pause?: number | undefined;
};
export type BodyOf<T> = T extends {
    requestBody?: {
        content: infer C;
    };
} ? C[keyof C] : never;
/**
 * What a request of an operation has. `body` of JSON is a value, of a form an object of strings, and of another type a string or bytes.
 */
export type Request<O> = (O extends {
    parameters: infer P;
} ? Omit<P, "cookie"> : {}) & {
    body?: BodyOf<O>;
    signal?: AbortSignal;
};
export type Answer<O> = O extends {
    responses: infer R;
} ? { [S in keyof R]: S extends 200 | 201 | 202 ? (R[S] extends {
    content: infer C;
} ? C[keyof C] : undefined) : never; }[keyof R] : never;
