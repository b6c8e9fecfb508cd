// Numbers as people read them.

export const count = (n) => Math.round(n).toLocaleString("en");

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
export const short = (n) => compact.format(n);

export const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "-");

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${n < 10 && at ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function took(seconds) {
  if (seconds < 0.01) return `${count(1e6 * seconds)} us`;
  return seconds < 10 ? `${count(1e3 * seconds)} ms` : span(seconds);
}

export function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}
