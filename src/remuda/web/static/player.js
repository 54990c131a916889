// Plays a recording while it is being made and afterwards. Chromium and Firefox play no HLS by themselves, but
// they play its segments, so all this has to do is to fetch them in turn.

const LOOK_EVERY = 2000;
/** Seconds that are kept behind what is shown, once the browser has no room for more. */
const KEEP = 30;

/** Fills a <video> until the recording is over and complete; throws when it cannot be played. */
export async function follow(element, url, { signal, onState }) {
  const main = new URL(url, location.href);
  const about = await fetchText(main, signal);
  const type = `video/mp4; codecs="${/CODECS="([^"]+)"/.exec(about)?.[1]}"`;
  if (!window.MediaSource?.isTypeSupported(type)) throw new Error("This browser cannot play H.264; download the video instead.");
  const stream = new URL(about.trim().split("\n").pop(), main);
  const source = new MediaSource();
  element.src = URL.createObjectURL(source);
  await happens(source, "sourceopen");
  URL.revokeObjectURL(element.src);
  const messages = followMessages(element, new URL("messages.vtt", main), signal);
  const buffer = source.addSourceBuffer(type);
  let done = 0;
  while (!signal.aborted) {
    const { head, segments, isOver } = parsePlaylist(await fetchText(stream, signal), stream);
    if (segments.length > 0 && done === 0) await append(element, buffer, head, signal);
    const isFirst = done === 0 && segments.length > 0;
    for (; done < segments.length; done += 1) await append(element, buffer, segments[done], signal);
    if (isFirst && !isOver) element.currentTime = Math.max(0, buffer.buffered.end(0) - 2);
    await messages();
    if (isOver) break;
    if (done > 0) onState("live");
    await pause(LOOK_EVERY, signal);
  }
  if (source.readyState === "open") source.endOfStream();
  onState("over");
}

/** The parts of one file that a playlist names, in order; the head comes before all of them. */
export function parsePlaylist(text, base) {
  const found = { head: null, segments: [], isOver: text.includes("#EXT-X-ENDLIST") };
  let range = null;
  for (const line of text.split("\n")) {
    const map = /^#EXT-X-MAP:URI="([^"]+)",BYTERANGE="(\d+)@(\d+)"/.exec(line);
    const bytes = /^#EXT-X-BYTERANGE:(\d+)@(\d+)/.exec(line);
    if (map) found.head = part(new URL(map[1], base), map[2], map[3]);
    else if (bytes) range = bytes;
    else if (line && !line.startsWith("#") && range) found.segments.push(part(new URL(line, base), range[1], range[2]));
  }
  return found;
}

const part = (url, size, start) => ({ url, start: Number(start), end: Number(start) + Number(size) - 1 });

async function append(element, buffer, { url, start, end }, signal) {
  const answer = await fetch(url, { signal, headers: { Range: `bytes=${start}-${end}` } });
  if (answer.status !== 206) throw new Error(`The video cannot be read: ${answer.status}.`);
  const bytes = await answer.arrayBuffer();
  for (;;) {
    try {
      buffer.appendBuffer(bytes);
      await happens(buffer, "updateend");
      return;
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
      await makeRoom(element, buffer, signal);
    }
  }
}

/** Waits until what was shown long ago can be forgotten, and forgets it. */
async function makeRoom(element, buffer, signal) {
  while (element.currentTime - KEEP <= buffer.buffered.start(0)) await pause(LOOK_EVERY, signal);
  buffer.remove(0, element.currentTime - KEEP);
  await happens(buffer, "updateend");
}

/** A function that shows the messages that have come since its last call. */
function followMessages(element, url, signal) {
  const track = element.addTextTrack("subtitles", "Messages");
  track.mode = "showing";
  let done = 0;
  return async () => {
    const cues = parseMessages(await fetchText(url, signal));
    for (; done < cues.length; done += 1) track.addCue(new VTTCue(...cues[done]));
  };
}

/** Begin, end and text of each cue of a WebVTT file. */
export function parseMessages(text) {
  return [...text.matchAll(/^([\d:.]+) --> ([\d:.]+)\n([^]*?)(?:\n\n|\n?$(?![^]))/gm)].map(([, begin, end, words]) => [
    seconds(begin),
    seconds(end),
    words,
  ]);
}

const seconds = (time) => time.split(":").reduce((sum, each) => sum * 60 + Number(each), 0);

async function fetchText(url, signal) {
  const answer = await fetch(url, { signal, cache: "no-cache" });
  if (!answer.ok) throw new Error(`The video cannot be read: ${answer.status}.`);
  return answer.text();
}

const happens = (target, event) => new Promise((resolve) => target.addEventListener(event, resolve, { once: true }));

function pause(time, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
