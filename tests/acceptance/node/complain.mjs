// Connects to WS_URL, then prints an error of its own page for every line it reads: node complain.mjs WS_URL.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const browser = await chromium.connect(process.argv[2]);
const page = await browser.newPage();
console.log("ready");
for await (const _ of createInterface({ input: process.stdin })) {
  const error = await page.getByRole("button").click({ timeout: 1 }).catch((error) => error);
  console.log(JSON.stringify(error.message));
}
await browser.close();
