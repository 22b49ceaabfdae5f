// Small helpers to build elements, and the words and numbers that every panel writes.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) node.style.setProperty(key, part);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = id => document.getElementById(id);

export function say(text) {
  byId("live").textContent = text;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : Number(value.toPrecision(digits)).toString();
}

export const count = value => value.toLocaleString("en");
export const percent = value => (100 * value).toFixed(1) + " %";
export const duration = seconds => seconds < 1 ? (1000 * seconds).toPrecision(3) + " ms" : seconds.toPrecision(3) + " s";

export const busy = text => h("p", { class: "busy" }, text);
export const problem = error => h("p", { class: "problem", role: "alert" }, error.message ?? String(error));
export const empty = text => h("p", { class: "empty" }, text);

// Matrices come as bytes: 0 is the lowest value, 255 the highest.
export function bytes(grid) {
  return Uint8Array.from(atob(grid.bytes), letter => letter.charCodeAt(0));
}
