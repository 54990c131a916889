// Drives a browser of the herd with Puppeteer over WebDriver BiDi alone: node bidi.mjs BROWSER WS_URL.
import puppeteer from "puppeteer-core";

const [browserName, url] = process.argv.slice(2);
const browser = await puppeteer.connect({
  browserWSEndpoint: `${url}/session`,
  protocol: "webDriverBiDi",
  capabilities: { alwaysMatch: { browserName } },
});
const page = await browser.newPage();
await page.goto("data:text/html,<title>Hello over BiDi</title>");
console.log(await page.title());
await browser.close();
