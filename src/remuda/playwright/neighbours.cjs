// Loaded into Playwright's driver before its own program: what a client of a shared browser has is its own.
//
// Contexts are apart, but the driver keeps some things once for all clients of a browser:
// - the language of the client that came last, be it only a check-up: a Python client then reads getByRole() in errors;
// - the directory of traces, in which clients name the files: @playwright/test names them alike in every run;
// - the context that is reused between two tests (`reuseContext`): the next client would take over that of another;
// - Chromium's own trace (`start_tracing()`): whoever asks first gets it, and after a client that left none can be made.
// Here each is one of the connection, or of the context. Should a later driver be built otherwise, it stays as it is.
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const { randomUUID } = require("node:crypto");
const path = require("node:path");

const library = path.join(path.dirname(process.argv[1]), "lib");

const LEFT = "Its client has left";

const current = new AsyncLocalStorage();
const languages = new WeakMap();
const gone = new WeakSet();
const reused = new WeakMap();
const tracers = new WeakMap();

// Every message is handled as that of its own connection.
function knowConnections({ Browser, DispatcherConnection }) {
  const { dispatch } = DispatcherConnection.prototype;
  DispatcherConnection.prototype.dispatch = function (message) {
    if (message?.method === "initialize") languages.set(this, message.params?.sdkLanguage);
    return current.run(this, () => dispatch.call(this, message));
  };

  const { sdkLanguage } = Browser.prototype;
  Browser.prototype.sdkLanguage = function () {
    return languages.get(current.getStore()) ?? sdkLanguage.call(this);
  };
}

// The driver closes the contexts of a client that leaves, but not those that it is still opening.
function closeLateContexts({ Browser, PlaywrightDispatcher, nullProgress }) {
  const { newContext } = Browser.prototype;
  Browser.prototype.newContext = function (...args) {
    const { doCreateNewContext } = Object.getPrototypeOf(this);
    this.doCreateNewContext = async function (...options) {
      const context = await doCreateNewContext.apply(this, options);
      if (gone.has(current.getStore())) await context.close(nullProgress, { reason: LEFT });
      return context;
    };
    return newContext.apply(this, args);
  };
  atEnd(PlaywrightDispatcher, (connection) => gone.add(connection));
}

function keepTracesApart({ BrowserContext }) {
  const theirs = Symbol("tracing");
  Object.defineProperty(BrowserContext.prototype, "tracing", {
    get() {
      return this[theirs];
    },
    set(tracing) {
      if (tracing._precreatedTracesDir)
        tracing._precreatedTracesDir = path.join(tracing._precreatedTracesDir, randomUUID());
      this[theirs] = tracing;
    },
  });
}

function keepReusedContextsApart({ Browser, PlaywrightDispatcher, nullProgress }) {
  Object.defineProperty(Browser.prototype, "_contextForReuse", {
    get() {
      return reused.get(current.getStore());
    },
    set(value) {
      reused.set(current.getStore(), value);
    },
  });
  atEnd(PlaywrightDispatcher, (connection) =>
    reused.get(connection)?.context.close(nullProgress, { reason: LEFT }),
  );
}

function keepChromiumsTracesApart({ Browser, PlaywrightDispatcher, nullProgress }) {
  Object.defineProperty(Browser.prototype, "_tracingClient", {
    get() {
      const tracer = tracers.get(this);
      return tracer?.connection === current.getStore() ? tracer.client : undefined;
    },
    set(client) {
      tracers.set(this, { connection: current.getStore(), client });
    },
  });
  atEnd(PlaywrightDispatcher, async (connection, browser) => {
    if (!browser?._tracingRecording || tracers.get(browser)?.connection !== connection) return;
    try {
      const trace = await current.run(connection, () => browser.stopTracing());
      await trace.delete(nullProgress);
    } finally {
      // A trace of a page that was closed cannot be stopped any more.
      browser._tracingRecording = false;
    }
  });
}

function atEnd(PlaywrightDispatcher, clear) {
  const { cleanup } = PlaywrightDispatcher.prototype;
  PlaywrightDispatcher.prototype.cleanup = async function () {
    const ends = [cleanup.call(this), clear(this.connection, this._browserDispatcher?._object)];
    await Promise.allSettled(ends);
  };
}

try {
  require(path.join(library, "bootstrap"));
  const { server } = require(path.join(library, "coreBundle"));
  knowConnections(server);
  closeLateContexts(server);
  keepTracesApart(server);
  keepReusedContextsApart(server);
  keepChromiumsTracesApart(server);
} catch (error) {
  console.error(`Clients that share a browser share more than it: ${error.message.split("\n")[0]}`);
}
