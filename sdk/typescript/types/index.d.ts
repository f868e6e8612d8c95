export { Relay } from "./relay.js";
export { Broker, ClaimLostError, Consumer, FatalError, Job } from "./broker.js";
export { ResponseError, UnavailableError } from "./http.js";
export { SignatureError, verify } from "./webhooks.js";
