// A text to take along, and the button that copies it.

import { html, useEffect, useState } from "/static/page.js";

/** Copies a text; where the clipboard is missing, marks the `code` beside it. */
export function CopyButton({ text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async (event) => {
    // The clipboard is only there on localhost and over TLS; elsewhere the text is at least marked.
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } else {
      getSelection().selectAllChildren(event.target.parentElement.querySelector("code"));
    }
  };
  useEffect(() => {
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  return html`<button type="button" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button>`;
}

/** A text with its button. */
export function Copyable({ text }) {
  return html`
    <div class="copyable">
      <code>${text}</code>
      <${CopyButton} text=${text} />
    </div>
  `;
}
