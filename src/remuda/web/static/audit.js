// The audit log: the newest entries, new ones as they come, and older ones on request.

import { ask } from "/static/live.js";
import { html, useEffect, useState } from "/static/page.js";
import { clockTime } from "/static/words.js";

const PAGE = 25;

/** `accounts` is read again whenever something may have changed; so is this. */
export function Audit({ accounts }) {
  const [{ entries, cursor, problem }, set] = useState({ entries: [], cursor: null, problem: "" });
  const read = async (query, merge) => {
    try {
      const page = await ask(`/api/audit?limit=${PAGE}${query}`);
      set((old) => ({ ...merge(old, page), problem: "" }));
    } catch (error) {
      set((old) => ({ ...old, problem: error.message }));
    }
  };
  const readNewer = () => {
    if (!entries.length) return read("", (_, page) => page);
    return read(`&after=${entries[0].id}`, (old, page) => ({ ...old, entries: join(page.entries, old.entries) }));
  };
  const readOlder = () =>
    read(`&before=${cursor}`, (old, page) => ({ ...page, entries: join(old.entries, page.entries) }));
  useEffect(() => {
    readNewer();
  }, [accounts]);
  return html`
    <section class="card" id="audit">
      <h2>Audit</h2>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${entries.length ? html`<${Entries} entries=${entries} />` : html`<p class="quiet">Nothing was changed yet.</p>`}
      ${cursor && html`<button onClick=${readOlder}>Older</button>`}
    </section>
  `;
}

/** Both, each entry once: two answers that were under way at the same time may have the same. */
function join(newer, older) {
  return [...new Map([...newer, ...older].map((each) => [each.id, each])).values()];
}

function Entries({ entries }) {
  return html`
    <table class="compact">
      <thead>
        <tr>
          <th>Time</th>
          <th>Who</th>
          <th>From</th>
          <th>Action</th>
          <th>Of what</th>
        </tr>
      </thead>
      <tbody>
        ${entries.map(
          (each) => html`
            <tr key=${each.id}>
              <td data-label="Time" title=${each.at}>${clockTime(each.at)}</td>
              <td data-label="Who">${each.account}${each.token && ` / ${each.token}`}</td>
              <td data-label="From">${each.address}</td>
              <td data-label="Action">${each.action}</td>
              <td data-label="Of what">${each.subject} <span class="quiet">${inWords(each.details)}</span></td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

/** What else is known of it: "sessions 10 · rate none". */
function inWords(details) {
  return Object.entries(details)
    .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(", ") : (value ?? "none")}`)
    .join(" · ");
}
