// How times, browsers and clients are put into words. Pure.

const STEPS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** A duration in its two largest units: 75 is "1 min 15 s". */
export function duration(seconds) {
  let rest = Math.max(0, Math.floor(seconds));
  const first = STEPS.findIndex(([, size]) => rest >= size);
  if (first < 0) return "0 s";
  return STEPS.slice(first, first + 2)
    .map(([unit, size]) => {
      const count = Math.floor(rest / size);
      rest %= size;
      return count ? `${count} ${unit}` : "";
    })
    .filter(Boolean)
    .join(" ");
}

/** The seconds between a time stamp and now (in milliseconds); null when there is no stamp. */
export function secondsSince(stamp, now) {
  const then = Date.parse(stamp ?? "");
  return Number.isNaN(then) ? null : (now - then) / 1000;
}

/** How long ago a time stamp was. */
export function ago(stamp, now) {
  const seconds = secondsSince(stamp, now);
  if (seconds === null) return "–";
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}

/** A time of day; with the date when it is not today. */
export function clockTime(stamp) {
  const time = new Date(stamp);
  if (Number.isNaN(time.getTime())) return "–";
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? time.toLocaleTimeString() : time.toLocaleString();
}

/** The browser of a session: the one it got, else the one it asked for. */
export function browserOf(session) {
  const { name, version } = session.actual ?? session.requested?.[0] ?? { name: "", version: "" };
  const major = version.split(".")[0];
  return [name || "any browser", major].filter(Boolean).join(" ");
}

/** A User-Agent, less its details: "selenium/4.27.0 (python linux)" is "selenium 4.27.0 python". */
export function agent(userAgent) {
  const match = /^([\w.-]+)\/([\w.-]+)(?: \((\w+))?/.exec(userAgent);
  return match ? match.slice(1).filter(Boolean).join(" ") : userAgent.slice(0, 40);
}

/** What an account uses of what it may: "3 of 10 sessions in use, 1 of them waits; 60 starts a minute". */
export function usage({ inUse, held, limits }) {
  const used = limits.sessions === null ? `${count(inUse, "session")} in use` : `${inUse} of ${limits.sessions} sessions in use`;
  const waiting = inUse - held;
  const parts = [waiting > 0 ? `${used}, ${waiting} of them ${waiting === 1 ? "waits" : "wait"}` : used];
  if (limits.rate !== null) parts.push(`${count(limits.rate, "start")} a minute`);
  return parts.join("; ");
}

/** The beginning of an id: enough to tell it from the others on the page. */
export function shortId(id) {
  return id.length > 12 ? id.slice(0, 8) : id;
}

/** A number of bytes as people say it: 1500 is "1.5 kB". */
export function size(bytes) {
  const [unit, length] = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]].find(([, each]) => bytes >= each) ?? ["B", 1];
  return `${length === 1 ? bytes : (bytes / length).toFixed(1)} ${unit}`;
}

/** "1 slot", "2 slots". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** A number of bytes: 1500 is "1.5 kB". */
export function amount(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}
