// Opens a page in a browser of the herd and prints its title: node title.mjs BROWSER WS_URL.
import * as playwright from "playwright-core";

const [browserName, url] = process.argv.slice(2);
const browser = await playwright[browserName].connect(url);
const page = await browser.newPage();
await page.goto("data:text/html,<title>Hello from Node</title>");
console.log(await page.title());
await browser.close();
