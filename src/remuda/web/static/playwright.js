// Playwright's workers, what they serve, and who waits for them. Not there as long as there is neither.

import { html } from "/static/page.js";
import { count, duration, secondsSince, shortId } from "/static/words.js";

export function Playwright({ playwright, now }) {
  const { connections, workers, queue } = playwright;
  if (!connections && !workers.length && !queue.length) return null;
  // Whom the workers are not shown has at least its own connections.
  const place = workers.length ? ` at ${count(workers.length, "worker")}` : "";
  return html`
    <section class="card" id="playwright">
      <h2>Playwright</h2>
      <p class="quiet">
        ${count(connections, "connection")}${place}; ${waiting(queue, now)}
      </p>
      ${workers.length > 0 && html`<${Workers} workers=${workers} now=${now} />`}
      ${queue.length > 0 && html`<${Queue} queue=${queue} now=${now} />`}
    </section>
  `;
}

function waiting(queue, now) {
  if (!queue.length) return "none waiting";
  const longest = Math.max(...queue.map((each) => secondsSince(each.since, now) ?? 0));
  return `${count(queue.length, "client")} ${queue.length === 1 ? "waits" : "wait"}, the first for ${duration(longest)}`;
}

function Workers({ workers, now }) {
  return html`
    <table class="compact">
      <thead>
        <tr>
          <th>Status</th>
          <th>Worker</th>
          <th>Browser</th>
          <th>Playwright</th>
          <th class="number">Connections</th>
          <th class="number">Served</th>
          <th class="number">Up</th>
        </tr>
      </thead>
      <tbody>
        ${workers.map(
          (each) => html`
            <tr key=${`${each.browser}:${each.id}`}>
              <td data-label="Status"><span class="state ${each.status}">${each.status}</span></td>
              <td data-label="Worker"><code title=${each.id}>${shortId(each.id)}</code></td>
              <td data-label="Browser">${each.browser}</td>
              <td data-label="Playwright">${each.version || "any"}</td>
              <td data-label="Connections" class="number">${each.active}</td>
              <td data-label="Served" class="number">${each.lifetime}</td>
              <td data-label="Up" class="number">${age(each.startedAt, now)}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

// Of a worker of another make it is not known.
function age(startedAt, now) {
  return startedAt ? duration(secondsSince(startedAt, now) ?? 0) : "";
}

function Queue({ queue, now }) {
  return html`
    <h3>Waiting</h3>
    <table class="compact">
      <thead>
        <tr>
          <th>Position</th>
          <th>Browser</th>
          <th>Playwright</th>
          <th class="number">Waits for</th>
        </tr>
      </thead>
      <tbody>
        ${queue.map(
          (each) => html`
            <tr key=${`${each.browser}:${each.version}:${each.position}`}>
              <td data-label="Position">#${each.position}</td>
              <td data-label="Browser">${each.browser}</td>
              <td data-label="Playwright">${each.version || "any"}</td>
              <td data-label="Waits for" class="number">${duration(secondsSince(each.since, now) ?? 0)}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}
