// Looks at a page that replay or demo has written.
import path from "node:path";
import { everywhere } from "./browser.mjs";

const [url, out] = process.argv.slice(2);

await everywhere(url, path.join(out, path.basename(url, ".html")), async (page, width, wrong) => {
  if (!(await page.locator("svg.chart .line, svg.chart rect").count())) wrong("there is no chart, or nothing in it");
});
