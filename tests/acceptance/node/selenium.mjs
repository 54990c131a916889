// Opens a page in a browser of the herd with Selenium and prints its title: node selenium.mjs BROWSER URL.
import { Builder } from "selenium-webdriver";

const [browserName, url] = process.argv.slice(2);
const driver = await new Builder().usingServer(url).forBrowser(browserName).build();
await driver.get("data:text/html,<title>Hello from Node</title>");
console.log(await driver.getTitle());
await driver.quit();
