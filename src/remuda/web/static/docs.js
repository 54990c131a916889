// The OpenAPI document for people. It resolves references as deep as a reader would want to.

import { ask } from "/static/live.js";
import { html, render } from "/static/page.js";

const DEEPEST = 4;

function Docs({ api }) {
  const routes = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const ofTag = (name) => routes.filter(({ operation }) => operation.tags.includes(name));
  return html`
    <header>
      <h1><a class="brand" href="/"><img src="/static/icon.svg" alt="" width="28" height="28" />Remuda</a></h1>
      <span class="quiet">API ${api.info.version}</span>
      <nav><a href="/api/openapi.json">openapi.json</a></nav>
    </header>
    <main>
      <p class="intro">${api.info.description}</p>
      <nav class="groups" aria-label="Groups">
        ${api.tags.map(({ name }) => html`<a href=${`#${name}`}>${name}</a> `)}
      </nav>
      ${api.tags.map(
        ({ name, description }) => html`
          <section id=${name}>
            <h2>${name}</h2>
            <p class="intro quiet">${description}</p>
            <div class="group">${ofTag(name).map((each) => html`<${Route} api=${api} ...${each} />`)}</div>
          </section>
        `,
      )}
    </main>
  `;
}

function Route({ api, path, method, operation }) {
  const { default: _, ...answers } = operation.responses;
  const socket = "101" in answers;
  // In an object numbers are in order, so what is not refused comes first.
  const [[status, answer], ...refusals] = Object.entries(answers);
  return html`
    <details class="card route">
      <summary>
        <span class="method ${method}">${socket ? "WEBSOCKET" : method.toUpperCase()}</span>
        <code>${path}</code>
        <span class="quiet">${operation.summary}</span>
      </summary>
      ${operation.parameters.length > 0 &&
      html`
        <h3>Parameters</h3>
        <ul class="fields">
          ${operation.parameters.map(
            ({ name, schema, in: place }) =>
              html`<li><code>${name}</code> <span class="kind">${place}, ${kindOf(schema)}</span></li>`,
          )}
        </ul>
      `}
      ${operation.requestBody &&
      html`
        <h3>Body</h3>
        ${Object.values(operation.requestBody.content).map(
          ({ schema, example }) => html`
            <${Fields} api=${api} schema=${schema} depth=${0} />
            ${example && html`<pre tabindex="0">${JSON.stringify(example, null, 2)}</pre>`}
          `,
        )}
      `}
      <h3>${socket ? "Messages" : `Answer (${status})`}</h3>
      ${Object.entries(answer.content).map(([type, { schema }]) =>
        schema
          ? html`
              <p class="intro quiet">${answer.description}</p>
              <${Fields} api=${api} schema=${schema} depth=${0} />
            `
          : html`<code>${type}</code>`,
      )}
      ${refusals.length > 0 &&
      html`
        <h3>Refusals</h3>
        <ul class="fields">
          ${refusals.map(([code, { description }]) => html`<li><code>${code}</code> ${description}</li>`)}
        </ul>
      `}
    </details>
  `;
}

function Fields({ api, schema: given, depth }) {
  const schema = given.items ?? notNull(given);
  const { properties } = resolve(api, schema);
  if (!properties || depth > DEEPEST) return null;
  return html`
    <ul class="fields">
      ${Object.entries(properties).map(
        ([name, field]) => html`
          <li>
            <code>${name}</code> <span class="kind">${kindOf(field)}</span>
            <${Fields} api=${api} schema=${field} depth=${depth + 1} />
          </li>
        `,
      )}
    </ul>
  `;
}

function resolve(api, schema) {
  const name = schema.$ref?.split("/").pop();
  return name ? api.components.schemas[name] : schema;
}

function notNull(schema) {
  return schema.anyOf?.find((each) => each.type !== "null") ?? schema;
}

function kindOf(schema) {
  const limits = [
    schema.enum && schema.enum.map((each) => JSON.stringify(each)).join(" | "),
    schema.default !== undefined && schema.default !== "" && `default ${JSON.stringify(schema.default)}`,
    schema.minimum !== undefined && `from ${schema.minimum}`,
    schema.maximum !== undefined && `to ${schema.maximum}`,
  ].filter(Boolean);
  return [bareKind(schema), ...limits].filter(Boolean).join(", ");
}

function bareKind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(bareKind).join(" or ");
  if (schema.type === "array") return `list of ${bareKind(schema.items)}`;
  return schema.enum ? "" : (schema.type ?? "any");
}

ask("/api/openapi.json").then((api) => {
  render(html`<${Docs} api=${api} />`, document.getElementById("page"));
  // The browser has looked for it before it was there.
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
});
