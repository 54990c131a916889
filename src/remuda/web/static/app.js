// The dashboard: a page over the live overview, one over the jobs of the archive, one over what was used, and for
// operators one over who may use the herd.

import { Access } from "/static/access.js";
import { Details } from "/static/details.js";
import { Ended } from "/static/ended.js";
import { Jobs } from "/static/jobs.js";
import { send, useLive, useMe, useNow } from "/static/live.js";
import { html, render, useEffect, useState } from "/static/page.js";
import { Orchestrators, Roles } from "/static/parts.js";
import { Playwright } from "/static/playwright.js";
import { Sessions } from "/static/sessions.js";
import { Slots } from "/static/slots.js";
import { Usage } from "/static/usage.js";
import { count, duration, secondsSince } from "/static/words.js";

function App() {
  const { connected, refusal, overview, problem, skew } = useLive();
  const me = useMe(connected);
  const now = useNow(skew);
  const [{ view: wanted, chosen, job }, choose, chooseJob] = useAddress();
  const isOperator = Boolean(me?.scopes.includes("admin"));
  const canArchive = isOperator || Boolean(me?.scopes.includes("archive"));
  const seesUsage = isOperator || Boolean(me?.scopes.includes("usage"));
  // A token that is good for jobs or for usage only is not shown the herd.
  const isHerdHidden = refusal === "scope" && (canArchive || seesUsage);
  const pages = { overview: !isHerdHidden, jobs: canArchive, usage: seesUsage, access: isOperator };
  const view = pages[wanted] ? wanted : Object.keys(pages).find((page) => pages[page]);
  const shown = { overview, me, now, chosen, choose };
  return html`
    <${Header}
      ...${{ connected, refusal, problem, me, isOperator, canArchive, seesUsage, isHerdHidden, view }}
      version=${overview?.version}
    />
    ${!isHerdHidden && html`<${Notice} ...${{ connected, refusal, problem, me }} hasOverview=${Boolean(overview)} />`}
    <main class=${connected === false || problem ? "stale" : ""}>
      ${view === "jobs" && html`<${Jobs} me=${me} now=${now} chosen=${job} choose=${chooseJob} />`}
      ${view === "usage" && html`<${Usage} me=${me} />`}
      ${view === "access" && overview && html`<${Access} me=${me} now=${now} />`}
      ${view === "overview" && overview && html`<${Overview} ...${shown} />`}
    </main>
    ${overview && chosen && html`<${Details} key=${chosen} id=${chosen} ...${shown} />`}
  `;
}

/** What runs. What an account is not shown comes empty, and has no place on its page. */
function Overview({ overview, me, now, chosen, choose }) {
  const isLimited = overview.account !== null;
  const shown = { overview, me, now, chosen, choose };
  return html`
    <${Figures} overview=${overview} now=${now} />
    ${!isLimited && html`<${Slots} overview=${overview} chosen=${chosen} choose=${choose} />`}
    <${Sessions} ...${shown} />
    <${Playwright} playwright=${overview.playwright} now=${now} />
    <${Ended} ...${shown} />
    ${!isLimited &&
    html`
      <div class="pair">
        <${Orchestrators} orchestrators=${overview.orchestrators} />
        <${Roles} roles=${overview.roles} now=${now} />
      </div>
    `}
  `;
}

/** The view, and the session or job whose details are open; they stand in the address, so that they can be linked
 * to. */
function useAddress() {
  const read = () => {
    const job = /^#job\/([0-9a-z]{1,64})$/.exec(location.hash)?.[1] ?? null;
    return {
      view: job ? "jobs" : (/^#(jobs|usage|access)$/.exec(location.hash)?.[1] ?? "overview"),
      chosen: /^#session\/([0-9a-f-]{36})$/.exec(location.hash)?.[1] ?? null,
      job,
    };
  };
  const [address, setAddress] = useState(read());
  useEffect(() => {
    const follow = () => setAddress(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const goTo = (hash) => {
    history.replaceState(null, "", hash);
    setAddress(read());
  };
  const choose = (id) => goTo(id ? `#session/${id}` : location.pathname);
  const chooseJob = (ident) => goTo(ident ? `#job/${ident}` : "#jobs");
  return [address, choose, chooseJob];
}

function Header({ connected, refusal, problem, me, isOperator, canArchive, seesUsage, isHerdHidden, view, version }) {
  const [kind, words] = isHerdHidden ? ["good", "live"] : connectionState(connected, refusal, problem);
  const link = (page, title) => html`
    <a href=${page === "overview" ? "#" : `#${page}`} aria-current=${view === page ? "page" : null}>${title}</a>
  `;
  return html`
    <header>
      <h1><a class="brand" href="/"><img src="/static/icon.svg" alt="" width="28" height="28" />Remuda</a></h1>
      ${version && html`<span class="quiet">${version}</span>`}
      <nav aria-label="Pages">
        ${(canArchive || seesUsage) && !isHerdHidden && link("overview", "Overview")}
        ${canArchive && link("jobs", "Jobs")} ${seesUsage && link("usage", "Usage")}
        ${isOperator && link("access", "Access")}
        <a href="/api/docs">API</a>
      </nav>
      ${me?.auth && refusal !== "login" && html`<${Person} me=${me} />`}
      <span class="connection ${kind}" role="status"><i></i>${words}</span>
    </header>
  `;
}

/** Who is logged in, and the way out. */
function Person({ me }) {
  const logOut = async () => {
    // Whatever the answer is, the page that is loaded then shows whether there is a login.
    await send("POST", "/api/logout", {}).catch(() => null);
    location.replace("/");
  };
  return html`
    <span class="person">
      <span title="The account and the name of the token"><b>${me.account}</b> / ${me.token}</span>
      <button onClick=${logOut}>Log out</button>
    </span>
  `;
}

function connectionState(connected, refusal, problem) {
  if (refusal) return ["bad", refusal === "login" ? "logged out" : "not allowed"];
  if (connected === null) return ["waiting", "connecting"];
  if (!connected) return ["bad", "disconnected"];
  return problem ? ["bad", "problem"] : ["good", "live"];
}

function Notice({ connected, refusal, problem, me, hasOverview }) {
  if (refusal === "login") {
    return html`
      <p class="notice" role="alert">
        Your login has ended. <button onClick=${() => location.reload()}>Log in</button>
      </p>
    `;
  }
  if (refusal) {
    const scopes = me?.scopes.join(", ");
    return html`<p class="notice" role="alert">Your token is good for ${scopes}. This page needs the scope use.</p>`;
  }
  if (connected === false) {
    const rest = hasOverview ? "The last known state is shown; trying again." : "Trying again.";
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
        ${counts.queued ? `longest wait ${duration(longest)}` : "none waiting"}
      <//>
      ${overview.account
        ? html`<${Allowance} account=${overview.account} />`
        : html`
            <${Figure} value=${overview.roles.length} name=${overview.roles.length === 1 ? "role" : "roles"}>
              ${count(overview.orchestrators.filter((each) => each.alive).length, "orchestrator")}
            <//>
          `}
    </section>
  `;
}

/** What an account may use. Of its limit it has used up what waits, too. */
function Allowance({ account }) {
  const { sessions, rate } = account.limits;
  return html`
    <${Figure}
      value=${sessions === null ? account.inUse : `${account.inUse}/${sessions}`}
      name=${sessions === null ? "in use" : "of your limit"}
    >
      ${rate === null ? "any number a minute" : `at most ${count(rate, "start")} a minute`}
    <//>
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
