// Drives a browser of the herd with Puppeteer and prints what it sees: node puppeteer.mjs WHAT URL.
import puppeteer from "puppeteer-core";

const [what, url] = process.argv.slice(2);

async function visit(browser, title) {
  const page = await browser.newPage();
  await page.goto(`data:text/html,<title>${title}</title>`);
}

async function titles(browser) {
  const found = await Promise.all((await browser.pages()).map((page) => page.title()));
  return found.filter(Boolean).join();
}

if (what === "endpoint" || what === "url") {
  const browser = await puppeteer.connect(what === "url" ? { browserURL: url } : { browserWSEndpoint: url });
  await visit(browser, "Hello from Puppeteer");
  console.log(await titles(browser));
  await browser.close();
} else if (what === "return") {
  const told = await (await fetch(`${url}/json/version?keep=60s`)).json();
  const first = await puppeteer.connect({ browserWSEndpoint: told.webSocketDebuggerUrl });
  await visit(first, "still here");
  const endpoint = first.wsEndpoint();
  await first.disconnect();
  const second = await puppeteer.connect({ browserWSEndpoint: endpoint });
  console.log(await titles(second));
  await second.close();
}
