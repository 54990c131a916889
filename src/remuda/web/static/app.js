// The dashboard: one page over the live overview.

import { Details } from "/static/details.js";
import { Ended } from "/static/ended.js";
import { useLive, useNow } from "/static/live.js";
import { html, render, useEffect, useState } from "/static/page.js";
import { Orchestrators, Roles } from "/static/parts.js";
import { Playwright } from "/static/playwright.js";
import { Sessions } from "/static/sessions.js";
import { Slots } from "/static/slots.js";
import { count, duration, secondsSince } from "/static/words.js";

function App() {
  const { connected, overview, problem, skew } = useLive();
  const now = useNow(skew);
  const [chosen, choose] = useChosen();
  return html`
    <${Header} connected=${connected} problem=${problem} version=${overview?.version} />
    <${Notice} connected=${connected} problem=${problem} hasOverview=${Boolean(overview)} />
    ${overview &&
    html`
      <main class=${connected === false || problem ? "stale" : ""}>
        <${Figures} overview=${overview} now=${now} />
        <${Slots} overview=${overview} chosen=${chosen} choose=${choose} />
        <${Sessions} overview=${overview} now=${now} chosen=${chosen} choose=${choose} />
        <${Playwright} playwright=${overview.playwright} now=${now} />
        <${Ended} overview=${overview} chosen=${chosen} choose=${choose} />
        <div class="pair">
          <${Orchestrators} orchestrators=${overview.orchestrators} />
          <${Roles} roles=${overview.roles} now=${now} />
        </div>
      </main>
    `}
    ${chosen && html`<${Details} key=${chosen} id=${chosen} overview=${overview} now=${now} choose=${choose} />`}
  `;
}

/** The session whose details are open; it stands in the address, so that it can be linked to. */
function useChosen() {
  const read = () => /^#session\/([0-9a-f-]{36})$/.exec(location.hash)?.[1] ?? null;
  const [chosen, setChosen] = useState(read());
  useEffect(() => {
    const follow = () => setChosen(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const choose = (id) => {
    history.replaceState(null, "", id ? `#session/${id}` : location.pathname);
    setChosen(id);
  };
  return [chosen, choose];
}

function Header({ connected, problem, version }) {
  const [kind, words] = connectionState(connected, problem);
  return html`
    <header>
      <h1><a class="brand" href="/"><img src="/static/icon.svg" alt="" width="28" height="28" />Remuda</a></h1>
      ${version && html`<span class="quiet">${version}</span>`}
      <nav><a href="/api/docs">API</a></nav>
      <span class="connection ${kind}" role="status"><i></i>${words}</span>
    </header>
  `;
}

function connectionState(connected, problem) {
  if (connected === null) return ["waiting", "connecting"];
  if (!connected) return ["bad", "disconnected"];
  return problem ? ["bad", "in trouble"] : ["good", "live"];
}

function Notice({ connected, problem, hasOverview }) {
  if (connected === false) {
    const rest = hasOverview ? "What you see is how it was; trying again." : "Trying again.";
    return html`<p class="notice" role="alert">The herd cannot be reached. ${rest}</p>`;
  }
  return problem && html`<p class="notice" role="alert">${problem.message} Trying again.</p>`;
}

function Figures({ overview, now }) {
  const { slots, counts, queue } = overview;
  const starting = counts.pending;
  const longest = Math.max(0, ...queue.map((each) => secondsSince(each.queuedAt, now) ?? 0));
  return html`
    <section class="figures" aria-label="At a glance">
      <${Figure} value=${`${slots.used}/${slots.total}`} name="slots in use">
        <${Gauge} value=${slots.used} max=${slots.total} name="slots in use" />
      <//>
      <${Figure} value=${counts.alive} name=${counts.alive === 1 ? "session" : "sessions"}>
        ${starting ? `${starting} starting` : "none starting"}
      <//>
      <${Figure} value=${counts.queued} name="in the queue">
        ${counts.queued ? `longest wait ${duration(longest)}` : "nobody waits"}
      <//>
      <${Figure} value=${overview.roles.length} name=${overview.roles.length === 1 ? "role" : "roles"}>
        ${count(overview.orchestrators.filter((each) => each.alive).length, "orchestrator")}
      <//>
    </section>
  `;
}

/** A bar. Not the element `meter`, which every browser draws in its own way. */
function Gauge({ value, max, name }) {
  return html`
    <div class="gauge" role="meter" aria-label=${name} aria-valuenow=${value} aria-valuemin="0" aria-valuemax=${max}>
      <i style=${{ width: `${max ? (100 * value) / max : 0}%` }}></i>
    </div>
  `;
}

function Figure({ value, name, children }) {
  return html`
    <div class="card figure">
      <strong>${value}</strong><span>${name}</span>
      <small>${children}</small>
    </div>
  `;
}

render(html`<${App} />`, document.getElementById("page"));
