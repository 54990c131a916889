// The herd as the server tells it, event by event. EventSource reconnects by itself after a broken
// connection, but neither after an HTTP error nor out of a silence; those are dealt with here.

import { useEffect, useState } from "/static/page.js";

const SILENCE_MS = 15_000; // The server beats every 5 s.
const RETRY_MS = 2_000;

/** Calls `tell` with changes to the state of the page, until the returned function is called. */
export function follow(tell) {
  let source;
  let timer;
  let isOver = false;

  const retryIn = (delay) => {
    clearTimeout(timer);
    timer = setTimeout(connect, delay);
  };
  const heard = (change) => {
    retryIn(SILENCE_MS);
    tell({ connected: true, ...change });
  };

  function connect() {
    if (isOver) return;
    source?.close();
    source = new EventSource("/api/live");
    source.addEventListener("overview", (event) => {
      const overview = JSON.parse(event.data);
      // Ages are counted by the server's clock: this machine's may be wrong.
      heard({ overview, problem: null, skew: Date.parse(overview.at) - Date.now() });
    });
    source.addEventListener("problem", (event) => heard({ problem: JSON.parse(event.data) }));
    source.addEventListener("beat", () => heard({}));
    source.onerror = () => {
      tell({ connected: false });
      retryIn(source.readyState === EventSource.CLOSED ? RETRY_MS : SILENCE_MS);
    };
    retryIn(SILENCE_MS);
  }

  connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source.close();
  };
}

/** The state of the page: connected, overview, problem, skew. */
export function useLive() {
  const [state, setState] = useState({ connected: null, overview: null, problem: null, skew: 0 });
  useEffect(() => follow((change) => setState((old) => ({ ...old, ...change }))), []);
  return state;
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
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(body?.error?.message ?? `The server answered ${response.status}.`);
  return body;
}
