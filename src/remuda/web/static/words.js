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

/** The beginning of an id: enough to tell it from the others on the page. */
export function shortId(id) {
  return id.length > 12 ? id.slice(0, 8) : id;
}

/** "1 slot", "2 slots". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
