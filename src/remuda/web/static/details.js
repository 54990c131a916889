// One session in full: what it is, what it asked for and got, and what happened to it.

import { ask } from "/static/live.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "/static/page.js";
import { EndButton, seesAccounts, State } from "/static/sessions.js";
import { Shareable } from "/static/share.js";
import { Video } from "/static/video.js";
import { browserOf, clockTime, duration, secondsSince } from "/static/words.js";

export function Details({ id, overview, me, now, choose }) {
  const [session, problem] = useSession(id, overview);
  const panel = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = panel.current;
    element.focus();
    // On the document: the keyboard may be anywhere by then.
    const onKey = (event) => event.key === "Escape" && choose(null);
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("keydown", onKey);
      // Back to where the keyboard was, unless it has gone elsewhere meanwhile.
      const focused = document.activeElement;
      if (focused === document.body || element.contains(focused)) before?.focus();
    };
  }, []);
  return html`
    <aside ref=${panel} tabindex="-1" aria-label="Session">
      <div class="line">
        <h2>${session?.name || "Session"}</h2>
        <button class="close" aria-label="Close" onClick=${() => choose(null)}>✕</button>
      </div>
      <code class="id">${id}</code>
      ${problem && html`<p class="notice">${problem}</p>`}
      ${session && html`<${Body} session=${session} isShared=${seesAccounts(overview, me)} now=${now} />`}
    </aside>
  `;
}

/** The session's details, read again whenever something in the herd has changed. */
function useSession(id, overview) {
  const [[session, problem], set] = useState([null, ""]);
  useEffect(() => {
    const abort = new AbortController();
    ask(`/api/sessions/${id}`, { signal: abort.signal })
      .then((found) => set([found, ""]))
      .catch((error) => abort.signal.aborted || set(([old]) => [old, error.message]));
    return () => abort.abort();
  }, [id, overview]);
  return [session, problem];
}

function Body({ session, isShared, now }) {
  const video = session.actualCapabilities?.["remuda:video"];
  const age = session.terminatedAt ? session.age : (secondsSince(session.queuedAt, now) ?? 0);
  return html`
    <dl>
      <dt>State</dt>
      <dd><${State} state=${session.state} /> ${session.terminatedAt ? "after" : "for"} ${duration(age)}</dd>
      <dt>Browser</dt>
      <dd>${browserOf(session)}</dd>
      <dt>Client</dt>
      <dd>${session.client.host || "–"} <span class="quiet">${session.client.userAgent}</span></dd>
      ${isShared && html`<dt>Account</dt><dd>${session.account || "–"}</dd>`}
      ${session.build && html`<dt>Build</dt><dd>${session.build}</dd>`}
      ${labelsOf(session).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
      ${session.slot && html`<dt>Slot</dt><dd><code>${session.slot}</code></dd>`}
    </dl>
    ${!session.terminatedAt && html`<${EndButton} id=${session.id} />`}
    <${Video} url=${session.videoUrl} given=${video} />
    ${session.videoUrl && video?.file && html`<${Shareable} session=${session.id} file=${video.file} />`}
    <h3>Log</h3>
    <ol class="log">
      ${session.log.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} first=${session.log[0]} />`)}
    </ol>
    <${Json} name="Capabilities asked for" value=${session.requestedCapabilities} />
    <${Json} name="Capabilities given" value=${session.actualCapabilities} />
  `;
}

/** What the client calls the session beside its name and build, which have places of their own. */
function labelsOf(session) {
  return Object.entries(session.labels).filter(([name]) => name !== "name" && name !== "build");
}

function Entry({ entry, first }) {
  const after = (Date.parse(entry.time) - Date.parse(first.time)) / 1000;
  const { message, ...rest } = typeof entry.meta === "object" ? (entry.meta ?? {}) : { message: entry.meta };
  const more = Object.entries(rest).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  return html`
    <li class=${entry.level}>
      <time title=${entry.time}>${entry === first ? clockTime(entry.time) : `+ ${after.toFixed(2)} s`}</time>
      <b title=${`${entry.component}, ${entry.level}`}>${entry.code}</b>
      <span class="quiet">${entry.meaning}</span>
      ${(message || more.length > 0) && html`<p>${[message, ...more].filter(Boolean).join(" · ")}</p>`}
    </li>
  `;
}

function Json({ name, value }) {
  if (value === null) return null;
  return html`
    <details>
      <summary>${name}</summary>
      <pre tabindex="0" aria-label=${name}>${JSON.stringify(value, null, 2)}</pre>
    </details>
  `;
}
