// Logs in with a token: the answer sets a cookie, and the page that was asked for is loaded again.

const form = document.getElementById("login");
const field = document.getElementById("token");
const button = form.querySelector("button");
const problem = document.getElementById("problem");

async function logIn(token) {
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) return;
  const told = await answer.json().catch(() => null);
  throw new Error(told?.error?.message ?? `The herd answered with status ${answer.status}.`);
}

function tell(message) {
  problem.textContent = message;
  field.setAttribute("aria-invalid", String(Boolean(message)));
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  tell("");
  try {
    await logIn(field.value.trim());
    location.reload();
  } catch (error) {
    tell(error instanceof TypeError ? "The herd does not answer." : error.message);
    button.disabled = false;
    field.focus();
    field.select();
  }
});
