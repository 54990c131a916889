// The calls of chrome-remote-interface with nothing but host and port: node remote_interface.mjs HOST PORT.
import CDP from "chrome-remote-interface";

const [host, port] = process.argv.slice(2);
const at = { host, port: Number(port) };
const seen = {};

// The client itself gives up on a request after 10 s, in which a busy machine may not start a browser.
async function retry(call, left = 5) {
  try {
    return await call();
  } catch (error) {
    if (!left || error.code !== "ECONNRESET") throw error;
    return retry(call, left - 1);
  }
}

const client = await retry(() => CDP(at));
await client.Page.enable();
// Asked for before: the event may come along with the answer.
const loaded = client.Page.loadEventFired();
await client.Page.navigate({ url: "data:text/html,<title>Hello over CDP</title>" });
await loaded;
seen.title = (await client.Runtime.evaluate({ expression: "document.title" })).result.value;
await client.close();

seen.domains = (await CDP.Protocol(at)).domains.length > 10;
seen.version = (await CDP.Version(at))["Protocol-Version"];
seen.listed = (await CDP.List(at)).map((each) => each.type);

const target = await retry(() => CDP.New({ ...at, url: "data:text/plain,new" }));
await CDP.Activate({ ...at, id: target.id });
const page = await CDP({ ...at, target });
seen.opened = (await page.Target.getTargetInfo()).targetInfo.url;
// The same browser by its name: every path of Chromium's is below it.
const browser = new URL(target.webSocketDebuggerUrl).pathname.replace(/\/devtools.*/, "");
const named = { ...at, alterPath: (path) => (path.startsWith("/json") ? browser + path : path) };
const pages = async () => (await CDP.List(named)).filter((each) => each.type === "page").length;
seen.pages = await pages();
const another = await CDP.New(named);
seen.more = await pages();
await CDP.Close({ ...named, id: another.id });
while ((await pages()) > seen.pages);
// Its only WebSocket ends with its page, and with that the browser.
await CDP.Close({ ...at, id: target.id });
console.log(JSON.stringify(seen));
process.exit(0);
