// The HTTP API as the page uses it, and what the page keeps in sessionStorage.

/** An error answer, or no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(status, code, message, body = {}, retryAfter = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
    this.retryAfter = retryAfter;
  }

  /** The same request may be sent again as it is: nothing says that it was refused. */
  get transient() {
    return this.status === 0 || [408, 429, 502, 503, 504].includes(this.status);
  }
}

const FALLBACKS = {
  0: "The host did not answer.",
  401: "The host admits nobody without a token.",
  403: "This session belongs to somebody else.",
  404: "The host does not know this.",
  413: "The message is too large for this host.",
};

/** Read an error answer of any shape into an ApiError. */
async function errorFrom(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // A proxy may answer with HTML; the status says enough.
  }
  const status = response.status;
  const message = body.message || FALLBACKS[status] || `The host answered ${status}.`;
  const retryAfter = Number(response.headers.get("retry-after")) * 1000 || 0;
  return new ApiError(status, body.error || `http_${status}`, message, body, retryAfter);
}

export class Api {
  constructor(base, storage) {
    this.base = base;
    this.storage = storage;
  }

  #headers(extra = {}) {
    const bearer = this.storage.bearer;
    return bearer ? { ...extra, authorization: `Bearer ${bearer}` } : extra;
  }

  async #fetch(path, options = {}) {
    let response;
    try {
      response = await fetch(this.base + path, { cache: "no-store", ...options });
    } catch (error) {
      throw new ApiError(0, "no_answer", FALLBACKS[0], { cause: String(error) });
    }
    if (!response.ok) throw await errorFrom(response);
    return response;
  }

  async #json(path, options) {
    const response = await this.#fetch(path, options);
    try {
      return await response.json();
    } catch {
      throw new ApiError(0, "broken_answer", "The host's answer broke off.");
    }
  }

  get(path) {
    return this.#json(path, { headers: this.#headers(), signal: AbortSignal.timeout(30_000) });
  }

  post(path, body) {
    return this.#json(path, {
      method: "POST",
      headers: this.#headers({ "content-type": "application/json" }),
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(30_000),
    });
  }

  start(message, deliveryId) {
    return this.post("/v1/session", { message, deliveryId });
  }

  followUp(sessionId, continuationToken, message, deliveryId, admission) {
    const body = { continuationToken, message, deliveryId };
    if (admission === "coalesce") body.admission = admission;
    return this.post(`/v1/session/${encodeURIComponent(sessionId)}`, body);
  }

  stop(sessionId) {
    return this.post(`/v1/session/${encodeURIComponent(sessionId)}/stop`, {});
  }

  decide(sessionId, callId, decision, reason) {
    const path = `/v1/session/${encodeURIComponent(sessionId)}/approvals/${encodeURIComponent(callId)}`;
    return this.post(path, reason ? { decision, reason } : { decision });
  }

  async blob(sessionId, blobId) {
    const path = `/v1/session/${encodeURIComponent(sessionId)}/blobs/${encodeURIComponent(blobId)}`;
    return this.#fetch(path, { headers: this.#headers() });
  }

  artifact(artifactId) {
    return `${this.base}/v1/artifacts/${encodeURIComponent(artifactId)}/content`;
  }

  stream(sessionId, startIndex, signal) {
    const path = `/v1/session/${encodeURIComponent(sessionId)}/stream?startIndex=${startIndex}`;
    return this.#fetch(path, { headers: this.#headers({ accept: "application/x-ndjson" }), signal });
  }
}

/** What this tab remembers, apart for each agent of the host. */
export class Storage {
  #memory = new Map(); // used when the browser refuses sessionStorage

  constructor(base) {
    this.prefix = `threadline:${base}:`;
  }

  read(key) {
    try {
      return JSON.parse(sessionStorage.getItem(this.prefix + key));
    } catch {
      return this.#memory.get(key) ?? null;
    }
  }

  write(key, value) {
    try {
      if (value === null) sessionStorage.removeItem(this.prefix + key);
      else sessionStorage.setItem(this.prefix + key, JSON.stringify(value));
    } catch {
      this.#memory.set(key, value);
    }
  }

  get bearer() {
    return this.read("bearer") || "";
  }

  set bearer(value) {
    this.write("bearer", value || null);
  }

  token(sessionId) {
    return this.read(`token:${sessionId}`);
  }

  keepToken(sessionId, token) {
    this.write(`token:${sessionId}`, token);
  }

  title(sessionId) {
    return this.read(`title:${sessionId}`);
  }

  keepTitle(sessionId, title) {
    this.write(`title:${sessionId}`, title);
  }
}
