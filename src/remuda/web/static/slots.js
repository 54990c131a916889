// The slots as a strip of tiles, one strip an orchestrator.

import { html } from "/static/page.js";
import { browserOf, count, shortId } from "/static/words.js";

const MEANING = {
  free: "free",
  starting: "its browser is starting",
  busy: "in use",
  ending: "being returned",
};

export function Slots({ overview, chosen, choose }) {
  const sessions = new Map(overview.sessions.map((session) => [session.id, session]));
  const alive = overview.orchestrators.filter((each) => each.alive);
  return html`
    <section class="card">
      <h2>Slots</h2>
      ${alive.length
        ? alive.map(
            (each) => html`
              ${alive.length > 1 && html`<h3 class="quiet" title=${each.id}>${shortId(each.id)}</h3>`}
              <${Strip} key=${each.id} ...${{ orchestrator: each, sessions, chosen, choose }} />
            `,
          )
        : html`<p class="quiet">
            No orchestrator runs, so no browser can be started. <code>remuda up</code> starts one.
          </p>`}
    </section>
  `;
}

function Strip({ orchestrator, sessions, chosen, choose }) {
  return html`
    <div class="strip">
      ${orchestrator.slots.map((slot) => {
        const session = sessions.get(slot.session);
        const kind = kindOf(slot, session);
        const number = slot.id.split("/").pop();
        const title = `slot ${number} of ${shortId(orchestrator.id)}: ${MEANING[kind]}`;
        return html`
          <button
            key=${slot.id}
            class="tile ${kind} ${slot.session && slot.session === chosen ? "chosen" : ""}"
            title=${title}
            disabled=${!slot.session}
            onClick=${() => choose(slot.session)}
          >
            <b><span class="hidden">slot </span>${number}</b>
            <span>${session ? session.name || browserOf(session) : MEANING[kind]}</span>
          </button>
        `;
      })}
      ${orchestrator.slots.length === 0 && html`<p class="quiet">${count(0, "slot")}</p>`}
    </div>
  `;
}

function kindOf(slot, session) {
  if (slot.state === "available") return "free";
  if (slot.state === "reclaimed") return "ending";
  if (!slot.session || !session) return "ending";
  return session.state === "alive" ? "busy" : "starting";
}
