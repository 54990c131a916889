import { expect, test } from "@playwright/test";

for (const name of ["one", "two", "three"]) {
  test(name, async ({ page }) => {
    await page.goto(`data:text/html,<title>${name}</title>`);
    await expect(page).toHaveTitle(name);
  });
}
