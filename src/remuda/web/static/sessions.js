// The sessions that run, and what to do when there are none yet.

import { CopyButton } from "/static/copy.js";
import { ask } from "/static/live.js";
import { html, useEffect, useState } from "/static/page.js";
import { agent, ago, browserOf, duration, secondsSince, shortId } from "/static/words.js";

export function Sessions({ overview, me, now, chosen, choose }) {
  const shown = { now, chosen, choose, isShared: seesAccounts(overview, me) };
  const total = Object.values(overview.counts).reduce((sum, each) => sum + each, 0);
  const hidden = total - overview.sessions.length;
  const [waiting, running] = [true, false].map((isWaiting) =>
    overview.sessions.filter((each) => (each.state === "queued") === isWaiting),
  );
  return html`
    <section class="card" id="sessions">
      <h2>Sessions</h2>
      ${running.length > 0 && html`<${Table} sessions=${running} ...${shown} />`}
      ${!running.length &&
      (waiting.length ? html`<p class="quiet">None runs yet.</p>` : html`<${Welcome} me=${me} />`)}
      ${hidden > 0 && html`<p class="quiet">and ${hidden} more; the API lists them all</p>`}
    </section>
    ${waiting.length > 0 &&
    html`
      <section class="card" id="queue">
        <h2>Queue</h2>
        <${Table} sessions=${waiting} ...${shown} />
      </section>
    `}
  `;
}

/** Whether sessions of several accounts may be on the page. */
export function seesAccounts(overview, me) {
  return overview.account === null && Boolean(me?.auth);
}

function Table({ sessions, ...shown }) {
  return html`
    <table class="sessions">
      <thead>
        <tr>
          <th>State</th>
          <th>Session</th>
          <th>Browser</th>
          <th>Client</th>
          ${shown.isShared && html`<th class="account">Account</th>`}
          <th class="number">Age</th>
          <th class="number">Last seen</th>
          <th><span class="hidden">End</span></th>
        </tr>
      </thead>
      <tbody>
        ${sessions.map((each) => html`<${Row} key=${each.id} session=${each} ...${shown} />`)}
      </tbody>
    </table>
  `;
}

function Row({ session, now, chosen, choose, isShared }) {
  const { client } = session;
  return html`
    <tr class=${session.id === chosen ? "chosen" : ""} onClick=${() => choose(session.id)}>
      <td data-label="State"><${State} state=${session.state} position=${session.position} /></td>
      <td data-label="Session"><${Name} session=${session} choose=${choose} /></td>
      <td data-label="Browser">${browserOf(session)}</td>
      <td data-label="Client" title=${client.userAgent}>
        ${client.host || "–"} <span class="quiet">${agent(client.userAgent)}</span>
      </td>
      ${isShared && html`<td data-label="Account">${session.account || "–"}</td>`}
      <td data-label="Age" class="number">${duration(secondsSince(session.queuedAt, now) ?? 0)}</td>
      <td data-label="Last seen" class="number">${ago(client.lastSeen, now)}</td>
      <td class="action"><${EndButton} id=${session.id} /></td>
    </tr>
  `;
}

/** A session's state; of one that waits also its position among those that the same slots can serve. */
export function State({ state, position }) {
  return html`<span class="state ${state}">${state}${position ? ` #${position}` : ""}</span>`;
}

export function Name({ session, choose }) {
  const open = (event) => {
    event.preventDefault();
    event.stopPropagation();
    choose(session.id);
  };
  return html`
    <a href="#session/${session.id}" onClick=${open} title=${session.id}>
      ${session.name || html`<code>${shortId(session.id)}</code>`}
    </a>
  `;
}

/** Asks once more before it ends a session: somebody may be in the middle of a test. */
export function EndButton({ id }) {
  const [step, setStep] = useState("idle");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (step !== "sure") return undefined;
    const timer = setTimeout(() => setStep("idle"), 4000);
    return () => clearTimeout(timer);
  }, [step]);
  const press = async (event) => {
    event.stopPropagation();
    if (step === "idle") return setStep("sure");
    setStep("ending");
    try {
      await ask(`/api/sessions/${id}`, { method: "DELETE" });
      setProblem("");
    } catch (error) {
      setProblem(error.message);
      setStep("idle");
    }
  };
  const words = { idle: "End", sure: "Really end?", ending: "Ending…" }[step];
  return html`
    <button class="end ${step}" disabled=${step === "ending"} title=${problem} onClick=${press}>
      ${problem ? "Failed, again?" : words}
    </button>
  `;
}

function Welcome({ me }) {
  // A token goes where every client can put it. Only its place is shown: the page does not know the token.
  const user = me?.auth ? `${encodeURIComponent(me.token)}:TOKEN@` : "";
  const address = `${location.protocol}//${user}${location.host}`;
  const snippet = `from selenium import webdriver

options = webdriver.ChromeOptions()
options.set_capability("se:name", "my first session")
with webdriver.Remote("${address}", options=options) as driver:
    driver.get("https://example.com")
    print(driver.title)`;
  return html`
    <div class="welcome">
      <div>
        <h3>The herd is rested.</h3>
        <p>No session runs. Point any Selenium client at <code>${location.origin}</code> and watch it appear here:</p>
      </div>
      <div class="snippet">
        <pre tabindex="0" aria-label="Example in Python"><code>${snippet}</code></pre>
        <${CopyButton} text=${snippet} />
      </div>
    </div>
  `;
}
