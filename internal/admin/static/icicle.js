// The tree of prefixes that are stored: from their beginning downwards, as wide as their
// bytes, as warm as they are used. A prefix is a button: Tab goes through those that
// are large enough to see, Enter looks into one.
import { bytes, span } from "./text.js";

const box = document.getElementById("icicle");
const way = document.getElementById("way");
const said = document.getElementById("prefix");
const refreshEvery = 10000; // milliseconds
const leastWidth = 4; // pixels of a prefix that is drawn
const rows = 6;
const most = 300; // prefixes drawn at a time

// Colors of heat, with those of the text on them: a contrast of 4.5 at least in each pair.
const warmth = [
  ["#e2e8f0", "#0f172a"], ["#bfdbfe", "#0f172a"], ["#93c5fd", "#0f172a"], ["#60a5fa", "#0f172a"], ["#1d4ed8", "#ffffff"], ["#1e3a8a", "#ffffff"],
];

let tree = { prefixes: [] };
let shown = null; // key of the prefix looked into; null: all

const keyOf = (p) => `${p.space}/${p.hash}`;

export function startIcicle(ask) {
  const again = () => document.hidden || refresh(ask);
  again();
  setInterval(again, refreshEvery);
  new ResizeObserver(draw).observe(box);
}

async function refresh(ask) {
  try {
    tree = await ask("v1/prefixes?by=tree&limit=1500");
    index();
    draw();
  } catch (error) {
    said.textContent = `What is stored cannot be told: ${error.message}`;
  }
}

let byKey = new Map();
let below = new Map();

function index() {
  byKey = new Map(tree.prefixes.map((p) => [keyOf(p), p]));
  below = new Map();
  for (const p of tree.prefixes) {
    const above = p.above ? `${p.space}/${p.above}` : null;
    const at = above && byKey.has(above) ? above : null;
    if (!below.has(at)) below.set(at, []);
    below.get(at).push(p);
  }
  for (const list of below.values()) list.sort((a, b) => weight(b) - weight(a));
  if (shown && !byKey.has(shown)) shown = null;
}

const weight = (p) => p.bytes || p.chunks;

function draw() {
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const top = shown ? [byKey.get(shown)] : below.get(null) ?? [];
  const hottest = Math.max(1, ...tree.prefixes.map((p) => p.heat));
  const width = box.clientWidth;
  const height = box.clientHeight / rows;
  const out = [];
  const place = (list, row, from, room, whole) => {
    let at = from;
    for (const p of list) {
      const w = (room * weight(p)) / whole;
      if (w < leastWidth || out.length >= most) break;
      out.push(cell(p, at, row * height, w, height, hottest));
      if (row + 1 < rows) place(below.get(keyOf(p)) ?? [], row + 1, at, w, weight(p));
      at += w;
    }
  };
  place(top, 0, 0, width, top.reduce((sum, p) => sum + weight(p), 0) || 1);
  box.replaceChildren(...out);
  if (!out.length) box.textContent = "Nothing is stored yet.";
  drawWay();
  if (focused) [...out].find((b) => b.dataset.key === focused)?.focus();
}

function cell(p, x, y, w, h, hottest) {
  const b = document.createElement("button");
  const level = p.heat <= 0 ? 0 : Math.min(warmth.length - 1, 1 + Math.floor((warmth.length - 1) * Math.log1p(p.heat) / Math.log1p(hottest) * 0.999));
  Object.assign(b.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px`, background: warmth[level][0], color: warmth[level][1] });
  b.dataset.key = keyOf(p);
  b.setAttribute("aria-label", sentence(p));
  b.title = sentence(p);
  if (w >= 40) b.textContent = `${nameOf(p)} ${bytes(p.bytes)}`;
  b.onclick = () => look(shown === keyOf(p) ? (p.above ? `${p.space}/${p.above}` : null) : keyOf(p));
  b.onfocus = b.onmouseenter = () => { said.textContent = sentence(p); };
  return b;
}

function look(key) {
  shown = key && byKey.has(key) ? key : null;
  draw();
  (box.querySelector("button") ?? box).focus();
}

function drawWay() {
  const steps = [];
  for (let p = shown && byKey.get(shown); p; p = p.above && byKey.get(`${p.space}/${p.above}`)) steps.unshift(p);
  way.replaceChildren(...[null, ...steps].map((p) => {
    const b = document.createElement("button");
    b.textContent = p ? nameOf(p) : "all";
    b.onclick = () => look(p && keyOf(p));
    return b;
  }));
  way.hidden = !steps.length;
}

const nameOf = (p) => (p.depth_chunks === 0 && p.model ? `${p.model} ` : "") + p.hash.slice(0, 8);

function sentence(p) {
  const tokens = (chunks) => (p.chunk_tokens ? `${(chunks * p.chunk_tokens).toLocaleString("en")} tokens` : `${chunks.toLocaleString("en")} chunks`);
  const idle = p.idle_seconds === null ? "not used lately" : `used ${span(p.idle_seconds)} ago`;
  return `${p.model || p.space.slice(0, 8)}, prefix ${p.hash.slice(0, 12)}: from ${tokens(p.depth_chunks)} on, ${tokens(p.own_chunks)} long; with all behind it ${bytes(p.bytes)} in ${p.chunks.toLocaleString("en")} chunks (${bytes(p.dram_bytes)} in DRAM, ${bytes(p.disk_bytes)} on disk); heat ${p.heat.toFixed(1)}, ${idle}; ${p.branches} go on behind it`;
}
