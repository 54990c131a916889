// A question that has to be answered before anything else: the browser keeps the keyboard in it.

import { html, useLayoutEffect, useRef, useState } from "/static/page.js";

/** `act` does what is asked; the dialog closes when it has succeeded, and else says why it has not. */
export function Question({ title, yes, act, close, isDanger, children }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await act(new FormData(event.target));
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  return html`
    <${Dialog} title=${title} close=${close}>
      <form onSubmit=${submit}>
        ${children}
        ${problem && html`<p class="problem" role="alert">${problem}</p>`}
        <div class="answers">
          <button type="button" onClick=${close}>Cancel</button>
          <button class=${isDanger ? "danger" : "main"} disabled=${isBusy}>${isBusy ? "One moment…" : yes}</button>
        </div>
      </form>
    <//>
  `;
}

/** One that `stays` is not closed by Escape. */
export function Dialog({ title, close, stays, children }) {
  const element = useRef(null);
  // Before it is drawn: a key that is pressed then is for the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus();
  }, []);
  return html`
    <dialog
      ref=${element}
      aria-labelledby="dialog-title"
      onCancel=${(event) => stays && event.preventDefault()}
      onClose=${close}
    >
      <h2 id="dialog-title">${title}</h2>
      ${children}
    </dialog>
  `;
}
