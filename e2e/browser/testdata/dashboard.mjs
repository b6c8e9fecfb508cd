// Looks at the dashboard of a running daemon as people do: in light and dark, on a wide
// and on a narrow screen, with the keyboard alone.
import path from "node:path";
import { everywhere, polling } from "./browser.mjs";

const [url, out] = process.argv.slice(2);

await everywhere(url, path.join(out, "dashboard"), async (page, width, wrong) => {
  await page.waitForFunction(() => document.getElementById("state").textContent.startsWith("as of"), undefined, { polling });
  await page.waitForSelector("#icicle button");
  const health = await page.textContent("#health");
  if (!/^(ready|not ready: |degraded: )/.test(health)) wrong(`its health is "${health}"`);
  const before = await page.textContent("[data-text=hour_asked]");
  await page.waitForFunction((was) => document.querySelector("[data-text=hour_asked]").textContent !== was, before, { polling })
    .catch(() => wrong(`took too long: it still says that ${before} tokens were asked for`));
  for (const [chart, least] of [["hits", 3], ["flow", 2]]) {
    await page.waitForFunction(([name, n]) => document.querySelectorAll(`[data-chart=${name}] .line`).length >= n, [chart, least], { polling })
      .catch(() => wrong(`took too long: the chart ${chart} has less than ${least} lines`));
  }
  for (const id of ["models", "missed", "misses", "clients", "held"]) {
    await page.waitForSelector(`[data-table=${id}] td`, { state: "attached" }).catch(() => wrong(`took too long: table ${id} is empty`));
  }
  for (const text of await page.locator("td, b, .tier span, svg text").allTextContents()) {
    if (/NaN|undefined|null|Infinity/.test(text)) wrong(`it says "${text}"`);
  }
  if (await page.locator("b[onclick]").count()) wrong("the name of a client is taken for a part of the page");
  if (width > 1000) await keyboard(page, wrong);
  const high = await page.evaluate(() => document.scrollingElement.scrollHeight);
  if (width < 1000 && high > 3 * 900) wrong(`the page is ${high} px high, more than three screens`);
  await page.evaluate(() => document.activeElement.blur());
});

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
