// The jobs of the archive: what waits, runs and has ended, and a form to ask for another one.

import { JobDetails } from "/static/job.js";
import { listen, send } from "/static/live.js";
import { html, useEffect, useRef, useState } from "/static/page.js";
import { ago, count, duration, secondsSince, shortId, size } from "/static/words.js";

const ENDED = ["completed", "aborted", "failed"];

export function Jobs({ me, now, chosen, choose }) {
  const { jobs, pipelines, problem } = useJobs();
  if (!jobs) return html`<p class="quiet">${problem || "Loading jobs…"}</p>`;
  const [open, ended] = [false, true].map((isEnded) => jobs.filter((each) => hasEnded(each) === isEnded));
  const shown = { now, chosen, choose, isShared: Boolean(me?.auth && me.scopes.includes("admin")) };
  const job = jobs.find((each) => each.ident === chosen);
  return html`
    ${problem && html`<p class="notice" role="alert">${problem} Trying again.</p>`}
    <${NewJob} choose=${choose} />
    <section class="card" id="jobs">
      <h2>Jobs</h2>
      ${open.length
        ? html`<${Table} jobs=${open} ...${shown} />`
        : html`<p class="quiet">None waits or runs.</p>`}
    </section>
    ${ended.length > 0 &&
    html`
      <section class="card" id="ended-jobs">
        <h2>Ended</h2>
        <${Table} jobs=${ended} ...${shown} />
      </section>
    `}
    ${pipelines.length > 0 && html`<${Pipelines} pipelines=${pipelines} />`}
    ${chosen && html`<${JobDetails} key=${chosen} ident=${chosen} job=${job} now=${now} choose=${choose} />`}
  `;
}

/** Jobs and pipelines as the server tells them whenever something has changed. */
function useJobs() {
  const [state, set] = useState({ jobs: null, pipelines: [], problem: "" });
  useEffect(() => {
    const tellProblem = (problem) => set((old) => ({ ...old, problem }));
    const hear = (kind, value) => {
      if (kind === "jobs") set({ ...value, problem: "" });
      if (kind === "problem") tellProblem(value.message);
    };
    return listen("/api/archive/live", "jobs", hear, () => tellProblem("The herd cannot be reached."));
  }, []);
  return state;
}

export const hasEnded = (job) => ENDED.includes(job.state);

/** The state of a job in one word for people. */
export function stateOf(job) {
  if (hasEnded(job)) return job.state;
  if (job.aborting) return "aborting";
  return job.settings?.paused ? "paused" : job.state;
}

function NewJob({ choose }) {
  const [problem, setProblem] = useState("");
  const form = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const request = {
      url: given.get("url"),
      depth: given.get("shallow") ? "shallow" : "inf",
      note: given.get("note"),
      settings: { noOffsiteLinks: Boolean(given.get("onsite")) },
    };
    try {
      const job = await send("POST", "/api/archive/jobs", request);
      form.current.reset();
      setProblem("");
      choose(job.ident);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`
    <section class="card" id="new-job">
      <h2>Archive a site</h2>
      <form class="new-job" ref=${form} onSubmit=${submit}>
        <input name="url" type="url" required placeholder="https://www.example.org/" aria-label="URL" />
        <input name="note" placeholder="why (optional)" aria-label="Note" maxlength="1000" />
        <label><input name="shallow" type="checkbox" /> only this page</label>
        <label><input name="onsite" type="checkbox" /> no links to other sites</label>
        <button class="main">Archive</button>
      </form>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </section>
  `;
}

function Table({ jobs, ...shown }) {
  return html`
    <table class="jobs">
      <thead>
        <tr>
          <th>State</th>
          <th>Site</th>
          ${shown.isShared && html`<th class="account">Account</th>`}
          <th class="number">URLs</th>
          <th class="number">Waiting</th>
          <th class="number">Errors</th>
          <th class="number">Size</th>
          <th class="number">Asked for</th>
        </tr>
      </thead>
      <tbody>
        ${jobs.map((each) => html`<${Row} key=${`${each.ident}-${each.run}`} job=${each} ...${shown} />`)}
      </tbody>
    </table>
  `;
}

function Row({ job, now, chosen, choose, isShared }) {
  const { counts } = job;
  const state = stateOf(job);
  return html`
    <tr class=${job.ident === chosen ? "chosen" : ""} onClick=${() => choose(job.ident)}>
      <td data-label="State"><span class="state ${state}" title=${job.reason}>${state}</span></td>
      <td data-label="Site" title=${job.url}>
        <a href=${`#job/${job.ident}`}>${job.url}</a>
        ${job.depth !== "inf" && html` <span class="chip">${job.depth}</span>`}
        ${job.run > 1 && html` <span class="quiet">run ${job.run}</span>`}
        ${job.note && html` <span class="quiet">${job.note}</span>`}
      </td>
      ${isShared && html`<td data-label="Account">${job.account}</td>`}
      <td data-label="URLs" class="number" title=${codes(counts)}>${counts.finished}</td>
      <td data-label="Waiting" class="number">${hasEnded(job) ? "" : counts.waiting}</td>
      <td data-label="Errors" class="number">${counts.errors}</td>
      <td data-label="Size" class="number">${size(counts.bytes)}</td>
      <td data-label="Asked for" class="number" title=${job.queuedAt}>${ago(job.queuedAt, now)}</td>
    </tr>
  `;
}

/** The responses by the class of their status: "2xx 45, 4xx 2". */
export function codes(counts) {
  return ["1xx", "2xx", "3xx", "4xx", "5xx"]
    .filter((name) => counts[`r${name}`])
    .map((name) => `${name} ${counts[`r${name}`]}`)
    .concat(counts.runk ? [`without a response ${counts.runk}`] : [])
    .join(", ");
}

/** How long a job runs, or ran. */
export function runtime(job, now) {
  if (!job.startedAt) return "";
  return duration(job.finishedAt ? job.seconds : (secondsSince(job.startedAt, now) ?? 0));
}

function Pipelines({ pipelines }) {
  return html`
    <section class="card" id="pipelines">
      <h2>Pipelines</h2>
      ${pipelines.map(
        (each) => html`
          <div class="line" key=${each.id}>
            <span class="dot ${each.obstacle ? "bad" : "good"}"></span>
            <code title=${each.id}>${shortId(each.id.split(":")[1])}</code>
            <span>${each.nickname}</span>
            <span class="quiet">
              ${count(each.jobs, "job")} of ${each.concurrent}, ${size(each.diskAvailable)} free
            </span>
            ${each.status !== "Running" && html`<span class="state draining">draining</span>`}
            ${each.obstacle && html`<span class="state failed">${each.obstacle}</span>`}
          </div>
        `,
      )}
    </section>
  `;
}
