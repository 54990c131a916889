// A project of @playwright/test with videos, whose browser is the herd's: PW_TEST_CONNECT_WS_ENDPOINT names it.
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: ".",
  outputDir: process.env.OUTPUT,
  workers: 2,
  fullyParallel: true,
  reporter: "line",
  use: { video: "on" },
});
