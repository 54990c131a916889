// Loaded into Playwright's driver before its own program: answers messages that would harm others with an error.
//
// The driver takes its clients for programs of its own user: any of them may have it listen on a further port, on all
// addresses and for everyone, and name files to read and write. No client needs that over a WebSocket: stock clients
// send and fetch the contents of files. The driver itself refuses only some of such messages. And it ends, with the
// browser of all clients, when it fails to read one, such as null, or fails later at what one had it do.
//
// It keeps its path to itself, and stays on loopback.
//
// And it keeps extensions from starting programs: over DevTools a client can load any, and save any file in the profile.
// So could a policy, which whoever has the browser sets on a page of Chromium's own.
"use strict";

const { promises } = require("node:fs");
const path = require("node:path");

const library = path.join(path.dirname(process.argv[1]), "lib");

const leadsOut = ({ name }) => typeof name === "string" && name.split(/[\\/]/).includes("..");
const REFUSED = {
  createTempFiles: ({ rootDirName }) => leadsOut({ name: rootDirName }),
  drop: ({ localPaths }) => localPaths,
  newContextForReuse: ({ recordVideo }) => recordVideo?.dir,
  saveAs: () => true,
  setInputFiles: ({ localPaths, localDirectory }) => localPaths || localDirectory,
  // The window in which a person records a test, with files for its result.
  showRecorder: () => true,
  startServer: () => true,
  tracingStart: leadsOut,
  tracingStartChunk: leadsOut,
};

function check({ method, params }) {
  if (Object.hasOwn(REFUSED, method) && REFUSED[method](params ?? {}))
    throw new Error(`${method} is refused: it concerns the machine of the browser, not that of its client`);
}

// A client can cause as many as it likes.
const MOST_TOLD = 100;
let failures;

// From the first message on: a browser that does not start has to end the driver. The worker checks whether it still serves.
function outliveFailures() {
  if (failures !== undefined) return;
  failures = 0;
  process.on("uncaughtException", (error) => {
    failures += 1;
    if (failures <= MOST_TOLD) console.error(error);
  });
}

function refuse({ DispatcherConnection }) {
  const { dispatch } = DispatcherConnection.prototype;
  DispatcherConnection.prototype.dispatch = async function (message) {
    outliveFailures();
    try {
      check(message);
      await dispatch.call(this, message);
    } catch ({ name, message: reason }) {
      this.onmessage({ id: message?.id, error: { error: { name, message: reason, stack: "" } } });
    }
  };
}

// Where a Chromium looks in its profile for the programs that extensions may start, and for libraries of components.
// DevTools cannot save a file in a directory that the browser has no right to write to. `driver.py` knows which they are.
const CLOSED = process.env.CLOSED_DIRECTORIES;

// The same as `own_options` of the family of WebDriver's Chromium.
const PREFERENCES = { policy_test_page_enabled: false };
const LOCAL_STATE = { profile: { add_person_enabled: false, browser_guest_enabled: false } };

async function closeProfile(directory) {
  for (const name of CLOSED.split(" ")) await promises.mkdir(path.join(directory, name), { mode: 0o500 });
  await promises.mkdir(path.join(directory, "Default"));
  await promises.writeFile(path.join(directory, "Default", "Preferences"), JSON.stringify(PREFERENCES));
  await promises.writeFile(path.join(directory, "Local State"), JSON.stringify(LOCAL_STATE));
}

function closeProfiles() {
  const { mkdtemp } = promises;
  promises.mkdtemp = async function (prefix, ...options) {
    const directory = await mkdtemp.call(this, prefix, ...options);
    if (path.basename(prefix).includes("profile")) await closeProfile(directory);
    return directory;
  };
}

// The path opens the browser, and at /json the server would tell it to everything on this machine.
function hidePath({ WSServer }) {
  WSServer.prototype._onRequest = (_, response) => response.writeHead(404).end();
}

// What exposes a client's network would listen on all addresses of this machine.
function stayOnLoopback({ SocksProxy }) {
  const { listen } = SocksProxy.prototype;
  SocksProxy.prototype.listen = function (port, host = "127.0.0.1") {
    return listen.call(this, port, host);
  };
}

try {
  if (!CLOSED) throw new Error("nothing says which directories of a profile are closed");
  closeProfiles();
  require(path.join(library, "bootstrap"));
  const { server, utils } = require(path.join(library, "coreBundle"));
  refuse(server);
  hidePath(utils);
  stayOnLoopback(utils);
} catch (error) {
  console.error(`Error: this Playwright cannot be served safely: ${error.message.split("\n")[0]}`);
  process.exit(1);
}
