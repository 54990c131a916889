// The herd as the server tells it, event by event. EventSource reconnects by itself after a broken
// connection, but neither after an HTTP error nor out of a silence; those are dealt with here. Nor does it say
// which HTTP error it was: whether the login has ended has to be asked.

import { useEffect, useState } from "/static/page.js";

const SILENCE_MS = 15_000; // The server beats every 5 s.
const RETRY_MS = 2_000;
const UNAUTHORIZED = 401;

/** Calls `hear` with the kind and the value of each event of a stream, and `lose` when its connection breaks, until
 * the returned function is called. `kind` is that of the stream's own events; each also has problems and beats. */
export function listen(path, kind, hear, lose) {
  let source;
  let timer;

  const retryIn = (delay) => {
    clearTimeout(timer);
    timer = setTimeout(connect, delay);
  };

  function connect() {
    source?.close();
    source = new EventSource(path);
    for (const each of [kind, "problem", "beat"]) {
      source.addEventListener(each, (event) => {
        retryIn(SILENCE_MS);
        hear(each, JSON.parse(event.data));
      });
    }
    source.onerror = () => {
      retryIn(source.readyState === EventSource.CLOSED ? RETRY_MS : SILENCE_MS);
      lose();
    };
    retryIn(SILENCE_MS);
  }

  // A browser keeps a page that was left, to come back to it, and the page's stream stays open. It opens six
  // connections to a host at most: after six visits nothing would be answered any more.
  function rest() {
    clearTimeout(timer);
    source.close();
  }

  function comeBack(event) {
    if (event.persisted) connect();
  }

  addEventListener("pagehide", rest);
  addEventListener("pageshow", comeBack);
  connect();
  return () => {
    rest();
    removeEventListener("pagehide", rest);
    removeEventListener("pageshow", comeBack);
  };
}

/** Calls `tell` with changes to the state of the page, until the returned function is called. */
function follow(tell) {
  let isOver = false;

  const hear = (kind, value) => {
    if (kind === "beat") tell({ connected: true });
    if (kind === "problem") tell({ connected: true, problem: value });
    // Ages are counted by the server's clock: this machine's may be wrong.
    const skew = Date.parse(value.at) - Date.now();
    if (kind === "overview") tell({ connected: true, overview: value, problem: null, skew });
  };
  const lose = async () => {
    const refusal = await findRefusal();
    if (isOver) return;
    if (refusal) stop();
    // Who may not see the herd any more keeps nothing of it.
    tell(refusal ? { refusal, overview: null, problem: null } : { connected: false });
  };

  const stopListening = listen("/api/live", "overview", hear, lose);
  function stop() {
    isOver = true;
    stopListening();
  }
  return stop;
}

/** Why the server does not show the herd to this person: "login", "scope", or null if it would. */
async function findRefusal() {
  try {
    return canSeeHerd(await ask("/api/whoami")) ? null : "scope";
  } catch (error) {
    return error.status === UNAUTHORIZED ? "login" : null;
  }
}

const canSeeHerd = ({ scopes }) => scopes.includes("use") || scopes.includes("admin");

/** The state of the page: connected, refusal, overview, problem, skew. */
export function useLive() {
  const [state, setState] = useState({ connected: null, refusal: null, overview: null, problem: null, skew: 0 });
  useEffect(() => follow((change) => setState((old) => ({ ...old, ...change }))), []);
  return state;
}

/** Whose page this is: account, token, scopes, and whether a login is needed at all; null until it is known. */
export function useMe(connected) {
  const [me, setMe] = useState(null);
  useEffect(() => {
    if (me || connected === false) return;
    let timer;
    let isOver = false;
    const read = () => ask("/api/whoami").then(setMe, retry);
    const retry = ({ status }) => {
      if (!isOver && status !== UNAUTHORIZED) timer = setTimeout(read, RETRY_MS);
    };
    read();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [connected, me]);
  return me;
}

/** The server's time in milliseconds, once a second. */
export function useNow(skew) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return Date.now() + skew;
}

/** What the API answers; throws its own words when it refuses. */
export async function ask(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response.json();
  const body = await response.json().catch(() => null);
  const error = new Error(body?.error?.message ?? `The server answered ${response.status}.`);
  throw Object.assign(error, { status: response.status });
}

/** The same with a body. JSON, since that is what no form of another site's page can send. */
export function send(method, path, body) {
  return ask(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
