// Looks at the dashboard of a running daemon as people do: in light and dark, on a wide
// and on a narrow screen, with the keyboard alone. It prints what is wrong, and ends with
// status 1 then. npm exec has put playwright-core beside the first folder of PATH.
import { createRequire } from "node:module";
import path from "node:path";

const bin = process.env.PATH.split(path.delimiter).find((dir) => dir.includes("_npx"));
const { chromium } = createRequire(path.join(bin, "..", "playwright-core", "package.json"))("playwright-core");
const [url, out] = process.argv.slice(2);
const problems = [];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 390]) await look(colorScheme, width);
}
await browser.close();
if (problems.length) {
  console.log(problems.join("\n"));
  process.exit(1);
}

async function look(colorScheme, width) {
  const where = `${colorScheme}, ${width} px`;
  const wrong = (text) => problems.push(`${where}: ${text}`);
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 } });
  const page = await context.newPage();
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && wrong(`console: ${m.text()}`));
  page.on("pageerror", (e) => wrong(`script: ${e}`));
  page.on("request", (r) => !r.url().startsWith(url) && !r.url().startsWith("data:") && wrong(`it asks for ${r.url()}`));
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("state").textContent.startsWith("as of"), null, { timeout: 10000 });
  await page.waitForSelector("#icicle button", { timeout: 10000 });
  const before = await page.textContent("[data-text=asked]");
  await page.waitForFunction((was) => document.querySelector("[data-text=asked]").textContent !== was, before, { timeout: 10000 })
    .catch(() => wrong(`it still says that ${before} tokens were asked for`));
  await page.waitForFunction(() => document.querySelectorAll("svg.chart .line").length >= 4, null, { timeout: 10000 })
    .catch(() => wrong("there are no lines in the charts"));
  for (const id of ["tiers", "missed", "clients", "held"]) {
    if (!(await page.locator(`[data-table=${id}] td`).count())) wrong(`table ${id} is empty`);
  }
  const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
  if (wide > width) wrong(`the page is ${wide} px wide`);
  for (const text of await page.evaluate(faint)) wrong(text);
  if (width > 1000) await keyboard(page, wrong);
  await page.screenshot({ path: path.join(out, `${colorScheme}-${width}.png`), fullPage: true });
  await context.close();
}

// Tab reaches a prefix, Enter looks into it, and back by the way above it.
async function keyboard(page, wrong) {
  const at = () => page.evaluate(() => document.activeElement.parentElement?.id);
  for (let i = 0; i < 20 && (await at()) !== "icicle"; i++) await page.keyboard.press("Tab");
  if ((await at()) !== "icicle") return wrong("Tab does not reach the prefixes");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  if (outline === "none") wrong("one does not see which prefix has the focus");
  if (!(await page.textContent("#prefix")).includes("tokens long")) wrong("it does not say what has the focus");
  await page.keyboard.press("Enter");
  if (!(await page.isVisible("#way"))) return wrong("Enter does not look into a prefix");
  if ((await at()) !== "icicle") wrong("the focus is lost when a prefix is looked into");
  await page.focus("#way button");
  await page.keyboard.press("Enter");
  if (await page.isVisible("#way")) wrong("one does not come back to all prefixes");
}

// faint, in the page, lists texts whose contrast to what is behind them is less than 4.5
// (WCAG 2.2, 1.4.3).
function faint() {
  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const out = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.matches("title, script")) continue;
    const svg = e instanceof SVGElement;
    const [a, b] = [light(rgb(getComputedStyle(e)[svg ? "fill" : "color"])), light(behind(svg ? e.closest("div") : e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.add(`contrast ${ratio.toFixed(1)} of "${e.textContent.trim().slice(0, 40)}"`);
  }
  return [...out];
}
