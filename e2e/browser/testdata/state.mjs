// Looks at the page of a daemon that is in a state of which the health line tells.
import { everywhere, polling } from "./browser.mjs";

const [url, name, health, out] = process.argv.slice(2);

await everywhere(url, `${out}/${name}`, async (page, width, wrong) => {
  await page.waitForFunction((text) => document.getElementById("health").textContent.trim().startsWith(text), health, { polling });
  for (const text of await page.locator("td, b, p, .tier span, svg text").allTextContents()) {
    if (/NaN|undefined|null|Infinity/.test(text)) wrong(`it says "${text}"`);
  }
  const high = await page.evaluate(() => document.scrollingElement.scrollHeight);
  if (width > 1000 && high > 900) wrong(`with nothing to tell the page is ${high} px high, more than a screen`);
});
