// A session's recording in its details: the picture, live or not, and where to download it.

import { html, useEffect, useRef, useState } from "/static/page.js";
import { follow } from "/static/player.js";

export function Video({ url, given }) {
  if (!url) return given?.problem ? html`<p class="quiet">Not recorded: ${given.problem}</p>` : null;
  return html`<${Player} key=${url} url=${url} file=${given?.file} />`;
}

function Player({ url, file }) {
  const element = useRef(null);
  const [state, setState] = useState("loading");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    follow(element.current, url, { signal: abort.signal, onState: setState }).catch(
      (error) => abort.signal.aborted || setProblem(error.message),
    );
    return () => abort.abort();
  }, [url]);
  return html`
    <h3>Video</h3>
    <video ref=${element} controls muted autoplay playsinline></video>
    <p class="quiet">
      ${problem || { loading: "Waiting for the first picture", live: "Live", over: "" }[state]}
      ${" "}${file && html`<a href=${file} download>Download</a>`}
    </p>
  `;
}
