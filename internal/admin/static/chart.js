// Lines over time as SVG. A step without a value is a gap: no line goes over it.
import { element } from "./text.js";

const [width, height] = [380, 200]; // about the pixels of a narrow window
const [left, right, top, bottom] = [58, 10, 8, 34];

function svg(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// ceiling is the end of an axis that holds most, and how far apart its ticks are: three to
// six of them, at 1, 2 or 5 times a power of ten, or of two for bytes.
function ceiling(most, binary) {
  const unit = binary ? 1024 ** Math.floor(Math.log(most) / Math.log(1024)) : 1;
  const share = most / unit / 5;
  const power = 10 ** Math.floor(Math.log10(share));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= share) * unit;
  return [Math.ceil(most / step) * step || step, step];
}

// path is the command of a line through points, and the points that stand alone.
function path(points) {
  let d = "";
  const alone = [];
  points.forEach((p, i) => {
    if (!p) return;
    const [before, after] = [points[i - 1], points[i + 1]];
    if (!before && !after) alone.push(p);
    d += `${before ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`;
  });
  return [d, alone];
}

// draw fills box with lines, each { name, color, values }, a value for each of the ages in
// seconds, or null. y is { high, binary, text }: a fixed end of the axis, and how its ticks
// are written. Lines without a value are left out, and with nothing to draw the card is.
export function draw(box, title, ages, lines, y) {
  const shown = lines.filter((line) => line.values.some((v) => v !== null));
  box.parentElement.hidden = !shown.some((line) => y.high || line.values.some((v) => v > 0));
  const [high, step] = y.high ? [y.high, y.high / 4] : ceiling(Math.max(y.binary ? 1024 : 1, ...shown.flatMap((line) => line.values)), y.binary);
  const long = Math.max(60, ...ages);
  const x = (age) => width - right - ((width - left - right) * age) / long;
  const at = (value) => height - bottom - ((height - top - bottom) * value) / high;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (let tick = 0; tick <= high * 1.001; tick += step) {
    chart.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: at(tick), y2: at(tick) }));
    chart.append(svg("text", { x: left - 6, y: at(tick) + 4, "text-anchor": "end" }, y.text(tick)));
  }
  const minutes = [1, 2, 5, 10, 20].find((m) => long / 60 / m <= 6) ?? 30;
  for (let m = 0; m * 60 <= long; m += minutes) {
    chart.append(svg("text", { x: x(m * 60), y: height - bottom + 14, "text-anchor": m ? "middle" : "end" }, m ? m : "now"));
  }
  chart.append(svg("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, "minutes ago"));
  for (const line of shown) {
    const [d, alone] = path(line.values.map((v, i) => (v === null ? null : [x(ages[i]), at(v)])));
    chart.append(svg("path", { class: `line ${line.color}`, d }));
    for (const [cx, cy] of alone) chart.append(svg("circle", { class: line.color, cx, cy, r: 2.5 }));
  }
  box.replaceChildren(chart);
  box.parentElement.querySelector(".legend").replaceChildren(...shown.map((line) => {
    const item = element("li");
    item.append(element("i", "", line.color), line.name);
    return item;
  }));
}
