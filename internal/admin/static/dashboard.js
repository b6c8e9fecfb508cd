// The page asks the daemon for its numbers every two seconds, and draws its cards of them.
// Where names may be seen it asks for those of clients too; icicle.js draws what is stored.
import { draw } from "./chart.js";
import { startIcicle } from "./icicle.js";
import { bytes, count, element, percent, short, span, took } from "./text.js";

const askEvery = 2000; // milliseconds
const patience = 10000; // for an answer
const tiers = [["cpu", "DRAM"], ["disk", "disk"], ["remote", "bucket"]];
const titles = Object.fromEntries(tiers);
const mostRows = 50;
const fewMisses = 5;
const mostRivals = 5;

async function ask(path, question) {
  const sent = question && { method: "POST", body: JSON.stringify(question) };
  const reply = await fetch(path, { signal: AbortSignal.timeout(patience), ...sent });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

// Cards of numbers.

function showNumbers({ version, uptime_seconds, health, bottleneck, restart, recent, advice, server }, samples) {
  const hit = Object.values(server.hit_tokens).reduce((sum, n) => sum + n, 0);
  const asked = server.asked_tokens;
  const gpu = (server.models ?? []).reduce((sum, m) => sum + m.saved_seconds, 0);
  const [first, last] = [samples[0], samples[samples.length - 1]];
  const grown = (of) => (last ? Math.max(0, of(last) - of(first)) : 0);
  const hour = { asked: grown((s) => s.asked_tokens), hit: grown((s) => s.hit_tokens.reduce((sum, n) => sum + n, 0)) };
  const lately = last ? `in ${span(first.age_seconds)}` : "";
  const texts = {
    version, advice: advice || "No client has asked for a prompt yet.", uptime: span(uptime_seconds), health, bottleneck, restart: restart.sentence,
    saved: short(hit), hour_saved: `${count(hour.hit)} ${lately}`, hit: percent(hit, asked), hour_hit: `${percent(hour.hit, hour.asked)} ${lately}`,
    asked: short(asked), hour_asked: `${count(hour.asked)} ${lately}`, gpu: span(gpu), recent_gpu: `${span(recent.saved_seconds)} in the last ${span(recent.seconds)}`,
  };
  document.getElementById("health").classList.toggle("bad", health !== "ready");
  document.getElementById("bottleneck").hidden = !bottleneck;
  document.getElementById("gpu").hidden = !gpu;
  for (const at of document.querySelectorAll("[data-text]")) at.textContent = texts[at.dataset.text];
}

function showTiers({ recent, server, store }) {
  const here = tiers.filter(([key]) => store.tiers[key]).map(([key, name]) => ({ name, hits: server.hit_tokens[key] ?? 0, key, ...store.tiers[key] }));
  document.getElementById("tiers").replaceChildren(...here.map((t) => {
    const tier = element("div", undefined, t.off ? "tier off" : "tier");
    const meter = element("div", undefined, "meter");
    const full = element("div");
    full.style.width = t.capacity_bytes ? percent(Math.min(t.used_bytes, t.capacity_bytes), t.capacity_bytes).replace(" ", "") : "0";
    meter.append(full);
    const of = t.capacity_bytes ? ` of ${bytes(t.capacity_bytes)}, ${percent(t.used_bytes, t.capacity_bytes)}` : "";
    tier.append(element("span", bytes(t.used_bytes) + of + (t.off ? ", switched off" : "")), element("b", t.name), meter);
    const moved = t.key === "cpu" ? "" : `; ${bytes(t.get_bytes)} read, ${bytes(t.put_bytes)} written`;
    const share = server.asked_tokens ? `${percent(t.hits, server.asked_tokens)} of what was asked for; ` : "";
    tier.append(element("p", `${share}${count(t.entries)} chunks, ${count(t.evictions)} evicted${moved}`, "note"));
    const times = [["reads", recent.disk_reads], ["writes", recent.disk_writes]].filter(([, at]) => t.key === "disk" && at.count);
    if (times.length) {
      tier.append(element("p", `in the last ${span(recent.seconds)}: ${times.map(([what, at]) => `${what} took ${took(at.p50)} (p99 ${took(at.p99)})`).join(", ")}${recent.disk_device ? `; ${recent.disk_device}` : ""}`, "note"));
    }
    return tier;
  }));
}

// Who evicts whom: a row for each whose chunks went, a column for each that came.

function showRivals({ evicted_by: pairs }) {
  const list = pairs ?? [];
  const names = (side) => [...new Set(list.map((e) => e[side]))].slice(0, mostRivals);
  const [by, of] = [names("by"), names("of")];
  const cell = (o, b) => count(list.find((e) => e.of === o && e.by === b)?.chunks ?? 0);
  showTable("rivals", ["of", ...by.map((b) => `by ${b}`)], by.length + of.length > 2 ? of.map((o) => [o, ...by.map((b) => cell(o, b))]) : [], null);
}

function showMissed({ server }) {
  const fresh = (m) => m.reason === "never_stored"; // cannot be hit: it comes last
  const missed = server.missed.missed.filter((m) => m.tokens).sort((a, b) => fresh(a) - fresh(b) || b.tokens - a.tokens);
  showTable("missed", ["reason", "in", "tokens", "of asked"], missed.map((m) => [
    fresh(m) ? "new text" : m.reason.replaceAll("_", " "), titles[m.tier] ?? "-", count(m.tokens), percent(m.tokens, server.asked_tokens),
  ]), server.asked_tokens ? "Nothing was missed." : "");
}

function showModels({ server }) {
  const models = (server.models ?? []).sort((a, b) => b.asked_tokens - a.asked_tokens);
  const hit = (m) => m.hit_tokens.reduce((sum, n) => sum + n, 0);
  showTable("models", ["model", "asked", "not computed", "hit", "GPU time", "hit in DRAM", "hit on disk", "stored ever"], models.map((m) => [
    m.model || "-", count(m.asked_tokens), count(hit(m)), percent(hit(m), m.asked_tokens), m.saved_seconds ? span(m.saved_seconds) : "-",
    percent(m.hit_tokens[0], m.asked_tokens), percent(m.hit_tokens[1], m.asked_tokens), bytes(m.stored_bytes),
  ]), models.length ? "" : null);
}

// Charts of the last hour: a step is the time between two samples.

function showCharts(samples, { store }) {
  const ages = samples.slice(1).map((s) => s.age_seconds);
  const usual = Math.min(...samples.slice(1).map((s, i) => samples[i].age_seconds - s.age_seconds));
  const each = (value) => samples.slice(1).map((b, i) => {
    const seconds = samples[i].age_seconds - b.age_seconds;
    return seconds > 0 && seconds < 3 * usual ? value(samples[i], b, seconds) : null; // nobody has looked
  });
  const share = (...places) => each((a, b) => {
    const asked = b.asked_tokens - a.asked_tokens;
    const hit = places.reduce((sum, p) => sum + b.hit_tokens[p] - a.hit_tokens[p], 0);
    return asked > 0 ? Math.min(100, (100 * hit) / asked) : null;
  });
  draw(document.querySelector("[data-chart=hits]"), "Hit ratio over time", ages, [
    { name: "all tiers", color: "green", values: share(0, 1, 2) },
    { name: "DRAM", color: "blue", values: share(0) },
    { name: "disk", color: "orange", values: share(1) },
  ], { high: 100, text: (v) => `${v} %` });
  const rate = (of) => each((a, b, seconds) => Math.max(0, of(b) - of(a)) / seconds);
  const lines = [{ name: "stored by clients", color: "blue", values: rate((s) => s.stored_bytes) }];
  for (const [p, from, to] of [[1, "orange", "brown"], [2, "violet", "pink"]]) {
    const [key, name] = tiers[p];
    if (!store.tiers[key]) continue;
    lines.push({ name: `read from ${name}`, color: from, values: rate((s) => s.read_bytes[p]) });
    lines.push({ name: `written to ${name}`, color: to, values: rate((s) => s.written_bytes[p]) });
  }
  draw(document.querySelector("[data-chart=flow]"), "Bytes moved over time", ages, lines, { binary: true, text: (v) => `${bytes(v)}/s` });
}

// Tables. One whose note is null and that has no rows is not shown, with its card.

function showTable(name, head, rows, note = "", leftOut = 0) {
  const at = document.querySelector(`[data-table=${name}]`);
  at.parentElement.hidden = !rows.length && note === null;
  const more = leftOut + Math.max(0, rows.length - mostRows);
  const line = (cells, kind) => {
    const row = element("tr");
    row.append(...cells.map((text, i) => {
      const cell = element(kind, text);
      if (kind === "td") cell.dataset.head = head[i]; // for narrow screens, where there is no head
      return cell;
    }));
    return row;
  };
  const out = [];
  if (rows.length) {
    const table = element("table", undefined, head.length > 4 ? "many" : "");
    const [top, body] = [element("thead"), element("tbody")];
    top.append(line(head, "th"));
    body.append(...rows.slice(0, mostRows).map((row) => line(row, "td")));
    table.append(top, body);
    out.push(table);
  }
  if (more || (!rows.length && note)) out.push(element("p", more ? `and ${count(more)} more` : note, "note"));
  at.replaceChildren(...out);
}

// Cards with names.

async function showHolders() {
  const [clients, loading, claims, misses] = await Promise.all([ask("v1/clients"), ask("v1/leases?loading=true"), ask("v1/claims"), ask("v1/why", { recent: true })]);
  showTable("clients", ["client", "user", "connections", "leased", "pinned", "memory"], clients.clients.map((c) => [
    c.name || "-", c.uid, count(c.connections), bytes(c.lease_bytes), bytes(c.pin_bytes), bytes(c.memory_bytes),
  ]), null, clients.left_out);
  showTable("jobs", ["client", "prompt", "ready", "of tokens", "", "since"], loading.leases.map((j) => [
    j.name || "-", j.lookup_id || j.model || j.space.slice(0, 8), count(j.ready_tokens), count(j.found_tokens), percent(j.ready_tokens, j.found_tokens), span(j.age_seconds),
  ]), null, loading.left_out);
  const amount = (n, unit) => (unit === "bytes" ? bytes(n) : `${count(n)} ${unit}`);
  showTable("work", ["the daemon's own work", "in", "done", "of"], loading.work.map((w) => [w.what, w.tier, amount(w.done, w.unit), w.of ? amount(w.of, w.unit) : "-"]), null);
  showTable("misses", ["prompt", "model", "tokens", "had", "", "why the rest was missed"], misses.prompts.slice(0, fewMisses).map((m) => [
    m.lookup_id, m.model || m.space.slice(0, 8), count(m.tokens), count(m.got_tokens), percent(m.got_tokens, m.tokens), m.sentence,
  ]), null);
  showTable("held", ["name", "kind", "who", "chunks", "bytes", "ends in"], [
    ...claims.pins.map((p) => [p.name || "-", "pin", `connection ${p.connection}`, count(p.chunks), bytes(p.bytes), span(p.expires_seconds)]),
    ...claims.retained.map((r) => [r.name || "-", "retain", `user ${r.uid}`, count(r.chunks), bytes(r.bytes), span(r.expires_seconds)]),
  ], null, claims.left_out);
}

const state = document.getElementById("state");
let icicle = false;

async function show() {
  try {
    const [stats, past] = await Promise.all([ask("stats"), ask("past")]);
    showNumbers(stats, past.samples);
    showTiers(stats);
    showModels(stats);
    showRivals(stats);
    showMissed(stats);
    showCharts(past.samples, stats);
    document.getElementById("prefixes").hidden = !past.names || !stats.store.chunks;
    if (past.names) await showHolders();
    if (past.names && !icicle) {
      icicle = true;
      startIcicle(ask);
    }
    state.className = "";
    state.textContent = `as of ${new Date().toLocaleTimeString("en", { hourCycle: "h23" })}`;
  } catch (error) {
    state.className = "lost";
    state.textContent = "the daemon does not answer; trying again";
    console.debug(error);
  }
}

for (;;) {
  if (!document.hidden) await show();
  await new Promise((resolve) => setTimeout(resolve, askEvery));
}
