// What the scripts that look at pages have in common. npm exec has put playwright-core beside
// the first folder of PATH.
import { createRequire } from "node:module";
import path from "node:path";

const bin = process.env.PATH.split(path.delimiter).find((dir) => dir.includes("_npx"));
const { chromium, errors } = createRequire(path.join(bin, "..", "playwright-core", "package.json"))("playwright-core");

// polling is every how many milliseconds the page is asked; by frames, which is what is done
// else, a browser that draws nothing on a busy machine is never asked again.
export const polling = 200;

// patience is for how many milliseconds a page is waited for: a busy machine is no fault.
const patience = 120_000;

// everywhere opens a page of its own for each of light and dark, wide and narrow, calls look
// with it, and takes a picture. It prints what was wrong, and ends with status 1 then. A page
// must load from its own address only, say nothing to the console, be as wide as the screen,
// hide nothing at its side, and have no faint text. A page that takes too long ends all;
// what it shows then is told.
export async function everywhere(url, pictures, look) {
  const problems = [];
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], timeout: patience });
  all: for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const wrong = (text) => problems.push(`${url}, ${colorScheme}, ${width} px: ${text}`);
      let page;
      const view = async () => {
        const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 } });
        context.setDefaultTimeout(patience);
        page = await context.newPage();
        page.on("console", (m) => ["error", "warning"].includes(m.type()) && wrong(`console: ${m.text()}`));
        page.on("pageerror", (e) => wrong(`script: ${e}`));
        page.on("request", (r) => !r.url().startsWith(url) && !r.url().startsWith("data:") && wrong(`it asks for ${r.url()}`));
        await page.goto(url);
        await look(page, width, wrong);
        const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
        if (wide > width) wrong(`the page is ${wide} px wide`);
        for (const text of await page.evaluate(hidden)) wrong(text);
        for (const text of await page.evaluate(faint)) wrong(text);
        await page.screenshot({ path: `${pictures}-${colorScheme}-${width}.png`, fullPage: true });
        await context.close();
      };
      try {
        await within(2 * patience, view());
      } catch (error) {
        if (!(error instanceof errors.TimeoutError)) throw error;
        wrong(`took too long: ${oneLine(error.message)}; it shows: ${oneLine(await shown(page))}`);
        break all; // a browser that has begun to draw nothing draws no other page either
      }
    }
  }
  await within(10_000, browser.close()).catch(() => {}); // its end is no part of the page
  if (problems.length) console.log(problems.map((text) => `problem: ${text}`).join("\n"));
  process.exit(problems.length ? 1 : 0);
}

// within is what a promise gives, if it does in so many milliseconds: a new page, and a
// question to one, have no end of their own in a browser that draws nothing.
const within = (ms, promise) => Promise.race([
  promise,
  new Promise((_, reject) => setTimeout(() => reject(new errors.TimeoutError(`no answer after ${ms} ms`)), ms).unref()),
]);

const oneLine = (text) => text.replace(/\s+/g, " ").slice(0, 2000);

// shown is the text of a page, where it still answers.
const shown = (page) => (page ? within(5000, page.evaluate(() => document.body.innerText)).catch(String) : "nothing: there is no page");

// hidden, in the page, lists parts that are seen only after scrolling to the side, but tables
// whose columns are as many as the policies.
function hidden() {
  const out = [];
  for (const e of document.querySelectorAll("figure, [data-table], .scroll")) {
    if (e.querySelectorAll("thead th").length > 8 || e.scrollWidth <= e.clientWidth) continue;
    out.push(`"${e.textContent.trim().slice(0, 30)}" is ${e.scrollWidth} px wide, and ${e.clientWidth} of it are seen`);
  }
  return out;
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
    const [a, b] = [light(rgb(getComputedStyle(e)[svg ? "fill" : "color"])), light(behind(svg ? e.closest("svg").parentElement : e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.add(`contrast ${ratio.toFixed(1)} of "${e.textContent.trim().slice(0, 40)}"`);
  }
  return [...out];
}
