// Loaded into Playwright's driver before its own program: errors speak the language of the client that they are for.
//
// The driver writes the language of the client that came last, be it only a check-up, on the browser that all of
// them share: a Python client then reads getByRole() for get_by_role(). Here every message is handled in
// the language of its own connection. Should a later driver be built otherwise, it stays as it is.
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const path = require("node:path");

const library = path.join(path.dirname(process.argv[1]), "lib");

function speakEachLanguage({ Browser, DispatcherConnection }) {
  const languages = new WeakMap();
  const current = new AsyncLocalStorage();

  const { dispatch } = DispatcherConnection.prototype;
  DispatcherConnection.prototype.dispatch = function (message) {
    if (message?.method === "initialize") languages.set(this, message.params?.sdkLanguage);
    return current.run(languages.get(this), () => dispatch.call(this, message));
  };

  const { sdkLanguage } = Browser.prototype;
  Browser.prototype.sdkLanguage = function () {
    return current.getStore() ?? sdkLanguage.call(this);
  };
}

try {
  require(path.join(library, "bootstrap"));
  speakEachLanguage(require(path.join(library, "coreBundle")).server);
} catch (error) {
  console.error(`Clients of different languages share one: ${error.message.split("\n")[0]}`);
}
