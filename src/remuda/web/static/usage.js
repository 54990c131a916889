// What accounts used: a chart for each service and measure, and how much of the quotas is left.

import { ask } from "/static/live.js";
import { html, useEffect, useState } from "/static/page.js";
import { amount, duration } from "/static/words.js";

const LOOK_EVERY_MS = 15_000;
const RANGES = [
  ["6h", "6 hours", "slot"],
  ["24h", "24 hours", "hour"],
  ["7d", "7 days", "hour"],
  ["30d", "30 days", "day"],
  ["365d", "a year", "day"],
];
const ALL = "";

export function Usage({ me }) {
  const isOperator = me.scopes.includes("admin");
  const [account, setAccount] = useState(isOperator ? ALL : me.account);
  const [since, setSince] = useState("24h");
  const [, rangeWords, step] = RANGES.find(([each]) => each === since);
  // Of all accounts together is what the services themselves were used for.
  const whose = account === ALL ? "level=service" : `level=accounts&resource=${encodeURIComponent(account)}`;
  const query = `/api/usage?${whose}&since=${since}&step=${step}`;
  const [{ report, quotas, problem }] = useReport(query);
  const accounts = useAccounts(isOperator);
  const own = quotas.filter((each) => account === ALL || each.account === account);
  return html`
    <section class="card" id="usage">
      <div class="line">
        <h2>Usage</h2>
        <form class="asked">
          ${isOperator &&
          html`<${Choice} name="account" label="Account" value=${account} set=${setAccount}
            options=${[[ALL, "all accounts"], ...accounts.map((each) => [each, each])]} />`}
          <${Choice} name="since" label="Time" value=${since} set=${setSince}
            options=${RANGES.map(([each, words]) => [each, words])} />
        </form>
      </div>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${report && report.usage.length === 0 && html`<p class="quiet">Nothing was used in this time.</p>`}
      ${report?.usage.map((each) => html`<${Service} key=${each.service} usage=${each} report=${report} />`)}
      ${report &&
      html`
        <p class="quiet">
          The last ${rangeWords}, by ${stepWords(step)}, in your time.${" "}
          <a href=${`${query}&format=csv`} download="usage.csv">Download as CSV</a>
        </p>
      `}
    </section>
    ${own.length > 0 && html`<${Quotas} quotas=${own} />`}
  `;
}

/** The usage and the quotas, read again now and then, and at once when something else is asked for. */
function useReport(query) {
  const [state, setState] = useState({ report: null, quotas: [], problem: "" });
  useEffect(() => {
    let isWanted = true;
    const look = async () => {
      try {
        const [report, { quotas }] = await Promise.all([ask(query), ask("/api/quotas")]);
        if (isWanted) setState({ report, quotas, problem: "" });
      } catch (error) {
        if (isWanted) setState((old) => ({ ...old, problem: error.message }));
      }
    };
    look();
    const timer = setInterval(() => document.hidden || look(), LOOK_EVERY_MS);
    return () => {
      isWanted = false;
      clearInterval(timer);
    };
  }, [query]);
  return [state];
}

/** Every account that has used anything. */
function useAccounts(isOperator) {
  const [accounts, setAccounts] = useState([]);
  useEffect(() => {
    const look = async () => {
      const { services } = await ask("/api/usage/services");
      const pages = await Promise.all(
        services.map(({ name }) => ask(`/api/usage/resources?service=${name}&limit=1000`)),
      );
      const names = pages.flatMap(({ resources }) => resources.map((each) => each.resource));
      setAccounts([...new Set(names)].sort());
    };
    if (isOperator) look().catch(() => null); // The same failure is shown by the report.
  }, [isOperator]);
  return accounts;
}

function Choice({ name, label, value, set, options }) {
  return html`
    <label>
      ${label}
      <select name=${name} value=${value} onChange=${(event) => set(event.target.value)}>
        ${options.map(([each, words]) => html`<option value=${each} selected=${each === value}>${words}</option>`)}
      </select>
    </label>
  `;
}

function Service({ usage, report }) {
  const hours = usage.gigabyteHours;
  return html`
    <div class="entry service">
      <h3>${usage.service}</h3>
      ${hours !== null && html`<span class="quiet">${hours.toLocaleString()} GB-hours stored</span>`}
      <div class="charts">
        ${Object.entries(usage.series).map(
          ([measure, numbers]) => html`
            <${Chart} key=${measure} measure=${measure} numbers=${numbers} times=${report.times}
              total=${usage.totals[measure]} />
          `,
        )}
      </div>
    </div>
  `;
}

/** Bars, one for each step. For those who do not see them, its words say the total and the peak. */
function Chart({ measure, numbers, times, total }) {
  const peak = Math.max(...numbers);
  const at = numbers.indexOf(peak);
  const words = `${measure}: ${inUnits(measure, total)}, at most ${inUnits(measure, peak)} at ${localTime(times[at])}`;
  return html`
    <figure class="chart">
      <figcaption><b>${inUnits(measure, total)}</b> ${measure}</figcaption>
      <svg role="img" aria-label=${words} viewBox="0 0 ${numbers.length} 100" preserveAspectRatio="none">
        ${numbers.map((number, index) => {
          const height = peak ? (100 * number) / peak : 0;
          return html`
            <rect x=${index + 0.1} width="0.8" y=${100 - height} height=${height} key=${index}>
              <title>${localTime(times[index])}: ${inUnits(measure, number)}</title>
            </rect>
          `;
        })}
      </svg>
      <div class="axis quiet"><span>${localTime(times[0])}</span><span>${localTime(times.at(-1))}</span></div>
    </figure>
  `;
}

function Quotas({ quotas }) {
  return html`
    <section class="card" id="quotas">
      <h2>Quotas</h2>
      <table class="compact">
        <thead>
          <tr>
            <th>Account</th>
            <th>Quota</th>
            <th class="number">Used</th>
            <th class="number">Soft limit</th>
            <th class="number">Hard limit</th>
            <th>Frees</th>
          </tr>
        </thead>
        <tbody>
          ${quotas.map((each) => {
            const measure = each.quota.split(".")[1];
            const limit = (value) => (value === null ? "none" : inUnits(measure, value));
            const isSpent = each.hard !== null && each.used >= each.hard;
            return html`
              <tr key=${`${each.account}/${each.quota}`}>
                <td data-label="Account">${each.account}</td>
                <td data-label="Quota">${each.quota}${each.period === "now" ? "" : ` a ${each.period}`}</td>
                <td data-label="Used" class="number">
                  ${isSpent && html`<span class="state terminated">used up</span> `}${inUnits(measure, each.used)}
                </td>
                <td data-label="Soft limit" class="number">${limit(each.soft)}</td>
                <td data-label="Hard limit" class="number">${limit(each.hard)}</td>
                <td data-label="Frees">${each.freesAt ? localTime(each.freesAt) : "when something is deleted"}</td>
              </tr>
            `;
          })}
        </tbody>
      </table>
    </section>
  `;
}

function stepWords(step) {
  return step === "slot" ? "time slot" : step;
}

/** Bytes in kB, MB and so on, seconds in hours and minutes. */
function inUnits(measure, value) {
  if (/Bytes$|^storageUtilized$/.test(measure)) return amount(value);
  return /Seconds$/.test(measure) ? duration(value) : value.toLocaleString();
}

// Made once: a chart formats a time for each of its bars, and to make a format takes far longer than to use it.
const localFormat = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

function localTime(stamp) {
  const time = new Date(stamp ?? "");
  return Number.isNaN(time.getTime()) ? "–" : localFormat.format(time);
}
