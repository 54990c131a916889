// Sharing an artifact: a URL under which anybody can read it for a while, without a token.

import { Copyable } from "/static/copy.js";
import { send } from "/static/live.js";
import { html, useState } from "/static/page.js";
import { clockTime } from "/static/words.js";

export function Shareable({ session, file }) {
  const [share, setShare] = useState(null);
  const [problem, setProblem] = useState("");
  const name = file.split("/").pop();
  const make = async () => {
    try {
      setShare(await send("POST", `/api/sessions/${session}/artifacts/${name}/share`, {}));
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  if (!share) {
    return html`
      <button class="share" onClick=${make}>Share the video</button>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    `;
  }
  return html`
    <div class="share" role="status">
      <${Copyable} text=${share.url} />
      <p class="quiet">Whoever has this URL can see the video until ${clockTime(share.expiresAt)}.</p>
    </div>
  `;
}
