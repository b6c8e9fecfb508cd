// Looks at a page that replay or demo has written.
import path from "node:path";
import { everywhere } from "./browser.mjs";

const [url, out] = process.argv.slice(2);

// Every time in a table is made as wide as one can be.
const widest = () => document.querySelectorAll("td").forEach((td) => {
  if (/^[\d.,]+ (µs|ms|s)$/.test(td.textContent)) td.textContent = "9,999 ms";
});

await everywhere(url, path.join(out, path.basename(url, ".html")), async (page, width, wrong) => {
  if (!(await page.locator("svg.chart .line, svg.chart rect").count())) wrong("there is no chart, or nothing in it");
  await page.evaluate(widest);
});
