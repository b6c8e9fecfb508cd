// The page is filled from a stream of events; icicle.js draws what is stored.
import { startIcicle } from "./icicle.js";

const state = document.getElementById("state");
let icicle = false;

function show(view) {
  for (const at of document.querySelectorAll("[data-text]")) {
    at.textContent = view.text[at.dataset.text] ?? "";
  }
  showTiers(view.tiers);
  for (const at of document.querySelectorAll("[data-chart]")) {
    const chart = view.charts[at.dataset.chart];
    at.parentElement.hidden = !chart;
    if (chart) {
      at.innerHTML = chart.svg; // of the daemon, which escapes its texts
      showLegend(at.parentElement.querySelector(".legend"), chart.legend);
    }
  }
  for (const at of document.querySelectorAll("[data-table]")) {
    const table = view.tables[at.dataset.table];
    at.parentElement.hidden = !table;
    if (table) at.replaceChildren(...tableOf(table));
  }
  document.getElementById("prefixes").hidden = !view.names;
  if (view.names && !icicle) {
    icicle = true;
    startIcicle();
  }
}

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function showLegend(list, legend) {
  list.replaceChildren(...legend.map((of) => {
    const item = element("li");
    item.append(element("i", "", of.class), of.name);
    return item;
  }));
}

function showTiers(tiers) {
  document.getElementById("tiers").replaceChildren(...(tiers ?? []).map((of) => {
    const tier = element("div", undefined, of.off ? "tier off" : "tier");
    const meter = element("div", undefined, "meter");
    const full = element("div");
    full.style.width = `${100 * of.share}%`;
    meter.append(full);
    tier.append(element("span", of.text), element("b", of.name), meter);
    return tier;
  }));
}

function tableOf({ head, rows, note }) {
  const out = [];
  if (rows?.length) {
    const table = element("table", undefined, head.length > 4 ? "many" : "");
    const line = (cells, kind) => {
      const row = element("tr");
      row.append(...cells.map((text, i) => {
        const cell = element(kind, text);
        if (kind === "td") cell.dataset.head = head[i]; // for narrow screens, where there is no head
        return cell;
      }));
      return row;
    };
    const top = element("thead");
    top.append(line(head, "th"));
    const body = element("tbody");
    body.append(...rows.map((row) => line(row, "td")));
    table.append(top, body);
    out.push(table);
  }
  if (note && (!rows?.length || note.startsWith("and "))) out.push(element("p", note, "note"));
  return out;
}

const events = new EventSource("events");
events.onmessage = (event) => {
  show(JSON.parse(event.data));
  state.className = "";
  state.textContent = `as of ${new Date().toLocaleTimeString()}`;
};
events.onerror = () => {
  state.className = "lost";
  state.textContent = "the daemon does not answer; trying again";
};
