// One job in full: how far it is, its settings, its ignore patterns, its files and its log, all live.

import { codes, hasEnded, runtime, stateOf } from "/static/jobs.js";
import { ask, send } from "/static/live.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "/static/page.js";
import { clockTime, count, size } from "/static/words.js";

const LINES = 200;

export function JobDetails({ ident, job, now, choose }) {
  const [detail, problem, readAgain] = useDetail(ident, job);
  const panel = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    panel.current.focus();
    const onKey = (event) => event.key === "Escape" && choose(null);
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("keydown", onKey);
      before?.focus();
    };
  }, []);
  return html`
    <aside ref=${panel} tabindex="-1" aria-label="Job" class="job">
      <div class="line">
        <h2 title=${detail?.url}>${detail?.url ?? "Job"}</h2>
        <button class="close" aria-label="Close" onClick=${() => choose(null)}>✕</button>
      </div>
      <code class="id">${ident}</code>
      ${problem && html`<p class="notice">${problem}</p>`}
      ${detail && html`<${Body} job=${detail} now=${now} readAgain=${readAgain} />`}
    </aside>
  `;
}

/** The job's details, read again whenever something about it has changed. */
function useDetail(ident, job) {
  const [[detail, problem], set] = useState([null, ""]);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    ask(`/api/archive/jobs/${ident}`, { signal: abort.signal })
      .then((found) => set([found, ""]))
      .catch((error) => abort.signal.aborted || set(([old]) => [old, error.message]));
    return () => abort.abort();
  }, [ident, job, turn]);
  return [detail, problem, () => setTurn((old) => old + 1)];
}

function Body({ job, now, readAgain }) {
  const { counts } = job;
  const state = stateOf(job);
  return html`
    <dl>
      <dt>State</dt>
      <dd><span class="state ${state}">${state}</span> ${job.reason}</dd>
      <dt>Asked for</dt>
      <dd>${clockTime(job.queuedAt)} by ${job.startedBy}${job.note && `: ${job.note}`}</dd>
      ${job.startedAt && html`<dt>Runs</dt><dd>${runtime(job, now)}${job.deaths ? `, ${count(job.deaths, "death")} of its pipeline` : ""}</dd>`}
      <dt>URLs</dt>
      <dd>${counts.finished} of ${counts.queued} done${codes(counts) && ` (${codes(counts)})`}</dd>
      <dt>Size</dt>
      <dd>${size(counts.bytes)} received, ${size(counts.warcBytes)} of WARC</dd>
      <dt>Depth</dt>
      <dd>${job.depth}, scope ${job.options.scope ?? "original"}</dd>
      ${job.credentialsFor.length > 0 && html`<dt>Password for</dt><dd>${job.credentialsFor.join(", ")}</dd>`}
      ${job.droppedIgnores.length > 0 &&
      html`
        <dt>Too slow</dt>
        <dd>${count(job.droppedIgnores.length, "ignore pattern")} not used any more: ${job.droppedIgnores.map((each) => html`<code key=${each}>${each}</code> `)}</dd>
      `}
    </dl>
    ${!hasEnded(job) && html`<${Controls} job=${job} readAgain=${readAgain} />`}
    ${job.files.length > 0 && html`<${Files} files=${job.files} />`}
    ${!hasEnded(job) && job.settings && html`<${Settings} job=${job} readAgain=${readAgain} />`}
    ${job.settings && html`<${Ignores} job=${job} readAgain=${readAgain} />`}
    ${job.current.length > 0 &&
    html`
      <h3>Fetching</h3>
      <ul class="urls">
        ${job.current.map((url) => html`<li key=${url}>${url}</li>`)}
      </ul>
    `}
    ${job.settings && html`<${Log} key=${job.run} ident=${job.ident} />`}
  `;
}

/** Does what a button or a form is for, and says why it could not be done. */
function useDeed(readAgain) {
  const [problem, setProblem] = useState("");
  const deed = async (act) => {
    try {
      await act();
      setProblem("");
      readAgain();
      return true;
    } catch (error) {
      setProblem(error.message);
      return false;
    }
  };
  return [problem && html`<p class="problem" role="alert">${problem}</p>`, deed];
}

function Controls({ job, readAgain }) {
  const [problem, deed] = useDeed(readAgain);
  const [isSure, setSure] = useState(false);
  const tell = (verb) => deed(() => ask(`/api/archive/jobs/${job.ident}/${verb}`, { method: "POST" }));
  const paused = job.settings?.paused;
  const abort = () => (isSure ? tell("abort").then(() => setSure(false)) : setSure(true));
  return html`
    <div class="line">
      <button onClick=${() => tell(paused ? "resume" : "pause")}>${paused ? "Resume" : "Pause"}</button>
      <button class="danger end ${isSure ? "sure" : ""}" onClick=${abort} onBlur=${() => setSure(false)}>
        ${isSure ? "Really abort?" : "Abort"}
      </button>
    </div>
    ${problem}
  `;
}

function Files({ files }) {
  return html`
    <h3>Files</h3>
    <ul class="files">
      ${files.map(
        (each) => html`
          <li key=${each.name}>
            <a href=${each.path} download=${each.name} title=${`SHA-256 ${each.sha256}`}>${each.name}</a>
            <span class="quiet"> ${size(each.size)}</span>
          </li>
        `,
      )}
    </ul>
  `;
}

function Settings({ job, readAgain }) {
  const { settings } = job;
  const [problem, deed] = useDeed(readAgain);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const change = {
      delayMin: Number(given.get("delayMin")),
      delayMax: Number(given.get("delayMax")),
      concurrency: Number(given.get("concurrency")),
      userAgent: given.get("userAgent"),
      noOffsiteLinks: !given.get("offsite"),
      suppressIgnoreReports: !given.get("reports"),
    };
    const form = event.target;
    if (await deed(() => send("PATCH", `/api/archive/jobs/${job.ident}`, change))) accept(form, given);
  };
  // Only defaults are given, so what another has changed shows, but not in place of what is being typed.
  return html`
    <h3>Settings</h3>
    <form class="settings" onSubmit=${submit}>
      <label>
        Delay in ms
        <span>
          <input name="delayMin" type="number" min="0" max="9999999" defaultValue=${settings.delayMin} aria-label="at least" />
          ${" to "}
          <input name="delayMax" type="number" min="0" max="9999999" defaultValue=${settings.delayMax} aria-label="at most" />
        </span>
      </label>
      <label>Downloads at a time <input name="concurrency" type="number" min="1" max="99" defaultValue=${settings.concurrency} /></label>
      <label>User-Agent <input name="userAgent" defaultValue=${settings.userAgent} placeholder="default" /></label>
      <label class="tick"><input name="offsite" type="checkbox" defaultChecked=${!settings.noOffsiteLinks} /> follow links to other sites</label>
      <label class="tick"><input name="reports" type="checkbox" defaultChecked=${!settings.suppressIgnoreReports} /> log ignored URLs</label>
      <button>Apply</button>
    </form>
    ${problem}
  `;
}

/** Has what a form has sent count as not typed any more. What was typed since then stays. */
function accept(form, sent) {
  const fields = [...form.querySelectorAll("input")];
  const shown = fields.map(({ value, checked }) => ({ value, checked }));
  for (const each of fields) {
    if (each.type === "checkbox") each.defaultChecked = sent.has(each.name);
    else each.defaultValue = sent.get(each.name);
  }
  form.reset();
  fields.forEach((each, index) => {
    const { value, checked } = shown[index];
    if (each.value !== value) each.value = value;
    if (each.checked !== checked) each.checked = checked;
  });
}

function Ignores({ job, readAgain }) {
  const [patterns, setPatterns] = useState(null);
  const [problem, deed] = useDeed(readAgain);
  const path = `/api/archive/jobs/${job.ident}/ignores`;
  const read = () => ask(path).then(({ ignores }) => setPatterns(ignores), () => null);
  const change = (body) => deed(() => send("PATCH", path, body)).then((isDone) => isDone && read());
  const add = async (event) => {
    event.preventDefault();
    const form = event.target;
    if (await change({ add: [new FormData(form).get("pattern")] })) form.reset();
  };
  useEffect(() => {
    if (patterns) read();
  }, [job.settings.age]);
  return html`
    <details onToggle=${(event) => event.target.open && !patterns && read()}>
      <summary>${count(job.settings.ignores, "ignore pattern")}</summary>
      ${!hasEnded(job) &&
      html`
        <form class="line" onSubmit=${add}>
          <input name="pattern" required placeholder="regular expression of URLs to leave out" aria-label="Pattern" />
          <button>Add</button>
        </form>
      `}
      ${problem}
      <ul class="patterns">
        ${(patterns ?? []).map(
          (each) => html`
            <li key=${each}>
              <code>${each}</code>
              ${!hasEnded(job) && html`<button aria-label=${`Remove ${each}`} onClick=${() => change({ remove: [each] })}>✕</button>`}
            </li>
          `,
        )}
      </ul>
    </details>
  `;
}

function Log({ ident }) {
  const [lines, setLines] = useState([]);
  useEffect(() => {
    let source;
    let isOver = false;
    ask(`/api/archive/jobs/${ident}/log?limit=${LINES}`).then(({ entries }) => {
      if (isOver) return;
      setLines(entries);
      source = new EventSource(`/api/archive/jobs/${ident}/log/live?after=${entries.at(-1)?.seq ?? 0}`);
      source.addEventListener("entries", (event) =>
        setLines((old) => {
          const last = old.at(-1)?.seq ?? 0;
          const fresh = JSON.parse(event.data).filter((each) => each.seq > last);
          return [...old, ...fresh].slice(-LINES);
        }),
      );
      source.addEventListener("end", () => source.close());
    }, () => null);
    return () => {
      isOver = true;
      source?.close();
    };
  }, [ident]);
  return html`
    <h3>Log</h3>
    <ol class="lines" reversed>
      ${lines.toReversed().map((each) => html`<li key=${each.seq} class=${lineKind(each)}>${lineText(each)}</li>`)}
    </ol>
  `;
}

function lineKind(entry) {
  if (entry.type !== "download") return entry.type;
  if (entry.is_error) return "error";
  return entry.is_warning ? "warning" : "download";
}

function lineText(entry) {
  if (entry.type === "download") return `${entry.response_code || entry.wget_code} ${entry.url}`;
  if (entry.type === "ignore") return `ignored ${entry.url} (${entry.pattern})`;
  return entry.message ?? "";
}
