// The quieter parts of the page: who serves.

import { html } from "/static/page.js";
import { clockTime, count, duration, secondsSince, shortId } from "/static/words.js";

export function Orchestrators({ orchestrators }) {
  return html`
    <section class="card">
      <h2>Orchestrators</h2>
      ${orchestrators.length === 0 && html`<p class="quiet">None is registered.</p>`}
      ${orchestrators.map(
        (each) => html`
          <div class="entry" key=${each.id}>
            <div class="line">
              <span class="dot ${each.alive ? "good" : "bad"}" title=${each.alive ? "alive" : "dead"}></span>
              <code title=${each.id}>${shortId(each.id)}</code>
              <span>${each.type}</span>
              <span class="quiet">${each.platform}</span>
              ${!each.alive && html`<span class="state terminated">no heartbeat</span>`}
              ${each.alive && each.draining && html`<span class="state draining">draining</span>`}
              ${each.alive && each.obstacle && html`<span class="state draining">${each.obstacle}</span>`}
            </div>
            <div class="chips">
              ${each.browsers.map((browser) => html`<span class="chip">${browser.name} ${browser.version}</span>`)}
            </div>
            <div class="quiet">
              ${count(each.slots.length, "slot")}: ${each.available} free, ${each.held} held,
              ${" "}${each.reclaimed} coming back${each.backlog + each.pending
                ? `; ${each.backlog} in its backlog, ${each.pending} being scheduled`
                : ""}
            </div>
          </div>
        `,
      )}
    </section>
  `;
}

export function Roles({ roles, now }) {
  return html`
    <section class="card" id="roles">
      <h2>Roles</h2>
      ${roles.length === 0 && html`<p class="quiet">None has announced itself yet.</p>`}
      ${roles.length > 0 &&
      html`
        <table class="compact">
          <thead>
            <tr>
              <th>Role</th>
              <th>Host</th>
              <th class="number">Process</th>
              <th>Version</th>
              <th class="number">Up</th>
            </tr>
          </thead>
          <tbody>
            ${roles.map(
              (role) => html`
                <tr key=${role.id}>
                  <td data-label="Role" title=${role.address}>${role.name}</td>
                  <td data-label="Host">${role.host}</td>
                  <td data-label="Process" class="number">${role.pid}</td>
                  <td data-label="Version">${role.version}</td>
                  <td data-label="Up" class="number" title="since ${clockTime(role.startedAt)}">
                    ${duration(secondsSince(role.startedAt, now) ?? 0)}
                  </td>
                </tr>
              `,
            )}
          </tbody>
        </table>
      `}
      ${roles
        .filter((role) => role.warning)
        .map((role) => html`<p key=${role.id} class="problem">${role.name} on ${role.host}: ${role.warning}</p>`)}
    </section>
  `;
}
