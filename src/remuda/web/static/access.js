// Who may use the herd, for operators: accounts with their limits and tokens, and what was changed.

import { Audit } from "/static/audit.js";
import { Copyable } from "/static/copy.js";
import { Dialog, Question } from "/static/dialog.js";
import { ask, send } from "/static/live.js";
import { html, useEffect, useState } from "/static/page.js";
import { ago, clockTime, count, usage } from "/static/words.js";

const LOOK_EVERY_MS = 5_000;
const SCOPES = [
  ["use", "sessions and connections"],
  ["archive", "archives of sites"],
  ["usage", "what the account has used"],
  ["admin", "everything, of all accounts"],
];
const LIFETIMES = [
  ["30d", "in 30 days"],
  ["90d", "in 90 days"],
  ["365d", "in a year"],
  ["", "never"],
];

export function Access({ me, now }) {
  const [{ accounts, tokens, problem }, look] = useAccounts();
  const [question, setQuestion] = useState(null);
  const close = () => setQuestion(null);
  const done = () => {
    close();
    look();
  };
  const Asked = question?.kind;
  return html`
    <section class="card" id="accounts">
      <div class="line">
        <h2>Accounts</h2>
        <button class="main" onClick=${() => setQuestion({ kind: NewToken, account: "" })}>New token</button>
      </div>
      ${!me.auth &&
      html`<p class="quiet">This herd asks for no token: every client that reaches it may do everything.</p>`}
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${accounts?.length === 0 && html`<p class="quiet">There are none. The first token of an account makes it.</p>`}
      ${accounts?.map(
        (each) => html`
          <${Account}
            key=${each.name}
            account=${each}
            tokens=${tokens.filter((token) => token.account === each.name)}
            ...${{ me, now, look, ask: setQuestion }}
          />
        `,
      )}
    </section>
    <${Audit} accounts=${accounts} />
    ${question && html`<${Asked} ...${question} accounts=${accounts ?? []} ...${{ me, close, done, look }} />`}
  `;
}

/** The accounts and tokens, read every few seconds: nothing tells of their changes. */
function useAccounts() {
  const [state, setState] = useState({ accounts: null, tokens: [], problem: "" });
  const look = async () => {
    try {
      const [{ accounts }, { tokens }] = await Promise.all([ask("/api/accounts"), ask("/api/tokens")]);
      setState({ accounts, tokens, problem: "" });
    } catch (error) {
      setState((old) => ({ ...old, problem: error.message }));
    }
  };
  useEffect(() => {
    look();
    const timer = setInterval(() => document.hidden || look(), LOOK_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return [state, look];
}

function Account({ account, tokens, me, now, look, ask: put }) {
  const isOwn = me.auth && me.account === account.name;
  return html`
    <details class="entry account" id="account-${account.name}">
      <summary>
        <h3>${account.name}</h3>
        ${isOwn && html`<span class="chip">yours</span>`}
        <span class="quiet">${usage(account)}; ${count(account.tokens, "token")}</span>
      </summary>
      <${Limits} account=${account} look=${look} />
      ${tokens.length > 0 && html`<${Tokens} tokens=${tokens} ...${{ me, now, put }} />`}
      <div class="actions">
        <button onClick=${() => put({ kind: NewToken, account: account.name })}>New token of ${account.name}</button>
        <button class="danger" onClick=${() => put({ kind: DeleteAccount, account })}>Delete ${account.name}</button>
      </div>
    </details>
  `;
}

function Limits({ account, look }) {
  const [words, setWords] = useState("");
  const [problem, setProblem] = useState("");
  const save = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const limit = (name) => (given.get(name) === "" ? null : Number(given.get(name)));
    try {
      await send("PATCH", `/api/accounts/${account.name}`, { sessions: limit("sessions"), rate: limit("rate") });
      setWords("Saved");
      setProblem("");
      look();
    } catch (error) {
      setProblem(error.message);
    }
  };
  const changed = () => setWords("");
  return html`
    <form class="limits" onSubmit=${save} onInput=${changed}>
      <${LimitField} name="sessions" label="Sessions at a time" value=${account.limits.sessions} />
      <${LimitField} name="rate" label="Starts a minute" value=${account.limits.rate} />
      <button>Save</button>
      <span class="quiet" role="status">${words}</span>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </form>
  `;
}

function LimitField({ name, label, value }) {
  // What is being typed must stay, so this is the value at first only.
  return html`
    <label>
      ${label}
      <input name=${name} type="number" min="0" max="1000000" step="1" placeholder="any" defaultValue=${value ?? ""} />
    </label>
  `;
}

function Tokens({ tokens, me, now, put }) {
  return html`
    <table class="compact">
      <thead>
        <tr>
          <th>Token</th>
          <th>Scopes</th>
          <th>Created</th>
          <th>Expires</th>
          <th>Last used</th>
          <th><span class="hidden">Revoke</span></th>
        </tr>
      </thead>
      <tbody>
        ${tokens.map(
          (token) => html`
            <tr key=${token.name}>
              <td data-label="Token">
                ${token.name}${me.auth && me.account === token.account && me.token === token.name
                  ? html` <span class="chip">yours</span>`
                  : ""}
              </td>
              <td data-label="Scopes">${token.scopes.join(", ")}</td>
              <td data-label="Created" title=${token.createdAt}>${day(token.createdAt)}</td>
              <td data-label="Expires" title=${token.expiresAt}>
                ${token.expired ? html`<span class="state silent">expired</span>` : token.expiresAt ? day(token.expiresAt) : "never"}
              </td>
              <td data-label="Last used" title=${token.usedAt}>${token.usedAt ? ago(token.usedAt, now) : "never"}</td>
              <td class="action">
                <button aria-label="Revoke ${token.name}" onClick=${() => put({ kind: RevokeToken, token })}>Revoke</button>
              </td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

const day = (stamp) => new Date(stamp).toLocaleDateString();

// Questions

function RevokeToken({ token, me, close, done }) {
  const act = async (given) => {
    const end = given.get("end") ? "?end_sessions=true" : "";
    await ask(`/api/tokens/${token.account}/${token.name}${end}`, { method: "DELETE" });
    done();
  };
  const isOwn = me.auth && me.account === token.account && me.token === token.name;
  return html`
    <${Question} title="Revoke ${token.name} of ${token.account}?" yes="Revoke" isDanger ...${{ act, close }}>
      <p>Whoever uses this token is refused from now on. It cannot be brought back.</p>
      ${isOwn && html`<p><b>You are logged in with it, and will be logged out.</b></p>`}
      <label class="check"><input type="checkbox" name="end" /> End its sessions and connections, too</label>
    <//>
  `;
}

function DeleteAccount({ account, close, done }) {
  const act = async (given) => {
    const end = given.get("end") ? "?end_sessions=true" : "";
    await ask(`/api/accounts/${account.name}${end}`, { method: "DELETE" });
    done();
  };
  return html`
    <${Question} title="Delete the account ${account.name}?" yes="Delete" isDanger ...${{ act, close }}>
      <p>Its limits are forgotten and ${account.tokens === 1 ? "its token is" : `its ${account.tokens} tokens are`} revoked.</p>
      ${account.inUse > 0 &&
      html`
        <label class="check">
          <input type="checkbox" name="end" /> End its ${count(account.inUse, "session")}, too
        </label>
      `}
    <//>
  `;
}

function NewToken({ account, accounts, close, look }) {
  const [made, setMade] = useState(null);
  const act = async (given) => {
    const body = {
      name: given.get("name").trim(),
      account: given.get("account").trim(),
      scopes: given.getAll("scopes"),
      expires: given.get("expires") || null,
    };
    setMade(await send("POST", "/api/tokens", body));
    look();
  };
  if (made) return html`<${MadeToken} made=${made} close=${close} />`;
  return html`
    <${Question} title="New token" yes="Create" ...${{ act, close }}>
      <label>Name <input name="name" required autocomplete="off" placeholder="ci" /></label>
      <label>
        Account
        <input name="account" required autocomplete="off" list="account-names" defaultValue=${account} placeholder="web-team" />
      </label>
      <datalist id="account-names">${accounts.map((each) => html`<option value=${each.name} />`)}</datalist>
      <fieldset>
        <legend>Good for</legend>
        ${SCOPES.map(
          ([scope, meaning]) => html`
            <label class="check">
              <input type="checkbox" name="scopes" value=${scope} defaultChecked=${scope === "use"} />
              ${scope} <span class="quiet">${meaning}</span>
            </label>
          `,
        )}
      </fieldset>
      <label>
        Expires
        <select name="expires">
          ${LIFETIMES.map(([value, words]) => html`<option value=${value} selected=${value === "90d"}>${words}</option>`)}
        </select>
      </label>
    <//>
  `;
}

function MadeToken({ made, close }) {
  return html`
    <${Dialog} title="The token ${made.name} of ${made.account}" close=${close} stays>
      <p>Copy it now: it is shown only this once.</p>
      <${Copyable} text=${made.token} />
      <p class="quiet">${made.expiresAt ? `It expires ${clockTime(made.expiresAt)}.` : "It does not expire."}</p>
      <div class="answers"><button class="main" onClick=${close}>Done</button></div>
    <//>
  `;
}
