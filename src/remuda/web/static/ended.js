// Sessions that have ended, for those who open the drawer: read page by page, and never live.

import { ask } from "/static/live.js";
import { html, useEffect, useState } from "/static/page.js";
import { Name, seesAccounts } from "/static/sessions.js";
import { browserOf, clockTime, duration } from "/static/words.js";

const PAGE = "/api/sessions?state=terminated&limit=50";

export function Ended({ overview, me, chosen, choose }) {
  const [isOpen, setOpen] = useState(false);
  const [page, setPage] = useState({ sessions: [], cursor: null, problem: "" });
  const read = async (cursor) => {
    try {
      const next = await ask(cursor ? `${PAGE}&cursor=${cursor}` : PAGE);
      setPage((old) => ({ ...next, sessions: cursor ? [...old.sessions, ...next.sessions] : next.sessions }));
    } catch (error) {
      setPage((old) => ({ ...old, problem: error.message }));
    }
  };
  const running = overview.sessions.map((each) => each.id).join();
  useEffect(() => {
    if (isOpen) read(null);
  }, [isOpen, running]);
  return html`
    <details class="card" onToggle=${(event) => setOpen(event.target.open)}>
      <summary><h2>Ended sessions</h2></summary>
      ${page.problem && html`<p class="quiet">${page.problem}</p>`}
      ${page.sessions.length
        ? html`<${Table}
            sessions=${page.sessions}
            isShared=${seesAccounts(overview, me)}
            chosen=${chosen}
            choose=${choose}
          />`
        : html`<p class="quiet">None is remembered.</p>`}
      ${page.cursor && html`<button onClick=${() => read(page.cursor)}>Show more</button>`}
    </details>
  `;
}

function Table({ sessions, isShared, chosen, choose }) {
  return html`
    <table>
      <thead>
        <tr>
          <th>Session</th>
          <th>Browser</th>
          <th>Client</th>
          ${isShared && html`<th>Account</th>`}
          <th class="number">Lasted</th>
          <th class="number">Ended</th>
        </tr>
      </thead>
      <tbody>
        ${sessions.map(
          (each) => html`
            <tr key=${each.id} class=${each.id === chosen ? "chosen" : ""} onClick=${() => choose(each.id)}>
              <td data-label="Session"><${Name} session=${each} choose=${choose} /></td>
              <td data-label="Browser">${browserOf(each)}</td>
              <td data-label="Client">${each.client.host || "–"}</td>
              ${isShared && html`<td data-label="Account">${each.account || "–"}</td>`}
              <td data-label="Lasted" class="number">${duration(each.age)}</td>
              <td data-label="Ended" class="number">${clockTime(each.terminatedAt)}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}
