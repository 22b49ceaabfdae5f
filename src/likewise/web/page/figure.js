// A figure has a caption and tools: every picture can be saved as SVG or PNG, every table as CSV.
import { h, s } from "/dom.js";
import { token } from "/color.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-linejoin", "paint-order", "opacity", "font-family", "font-size", "text-anchor"];

export function figure(title, picture, { note = null, name = title, toSvg = null, holder = picture } = {}) {
  const save = kind => h("button", { class: "quiet", type: "button", "aria-label": `Save “${title}” as ${kind.toUpperCase()}`, "data-export": kind,
    onclick: () => exportPicture(picture, name, kind, toSvg) }, kind.toUpperCase());
  return h("figure", { "aria-label": title }, h("figcaption", {}, h("h3", {}, title), note && h("small", {}, note), h("span", { class: "tools" }, save("svg"), save("png"))), holder);
}

export function table(title, columns, rows, { note = null, open = null } = {}) {
  // columns: [heading, function of a row, whether it is a number]
  const cell = ([, value, numeric], row) => h("td", { class: numeric ? "num" : null }, value(row));
  const body = rows.map(row => h("tr", {}, columns.map(column => cell(column, row)), open && h("td", {}, open(row))));
  return h("figure", { "aria-label": title },
    h("figcaption", {}, h("h3", {}, title), note && h("small", {}, note),
      h("span", { class: "tools" }, csvButton(title, columns, rows))),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h("table", {}, h("thead", {}, h("tr", {}, columns.map(([heading, , numeric]) => h("th", { class: numeric ? "num" : null, scope: "col" }, heading)), open && h("th", {}, ""))), h("tbody", {}, body))));
}

// Saves rows as CSV; columns as in a table.
export function csvButton(title, columns, rows) {
  const csv = () => [columns.map(([heading]) => heading), ...rows.map(row => columns.map(([, value]) => value(row)))]
    .map(line => line.map(quoted).join(",")).join("\n") + "\n";
  return h("button", { class: "quiet", type: "button", "data-export": "csv", "aria-label": `Save “${title}” as CSV`,
    onclick: () => save(new Blob([csv()], { type: "text/csv" }), title, "csv") }, "CSV");
}

const quoted = value => {
  let text = String(value?.textContent ?? value ?? "");
  if (/^[=+@\t]/.test(text)) text = `'${text}`; // a spreadsheet must not take a name for a formula
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

async function exportPicture(picture, name, kind, toSvg) {
  if (picture instanceof HTMLImageElement) picture = copied(picture);
  if (picture instanceof HTMLCanvasElement && kind === "png") {
    return save(await new Promise(done => picture.toBlob(done)), name, "png");
  }
  const svg = toSvg ? toSvg() : picture instanceof HTMLCanvasElement ? wrapped(picture) : standalone(picture);
  const text = new XMLSerializer().serializeToString(svg);
  const blob = new Blob([text], { type: "image/svg+xml" });
  save(kind === "svg" ? blob : await rasterized(blob, svg), name, kind);
}

function copied(image) {
  const canvas = h("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas;
}

function standalone(picture) {
  // Styles come from the page's sheet, which a file does not have: they are written into the copy.
  const source = picture instanceof SVGElement ? picture : picture.querySelector("svg");
  const copy = source.cloneNode(true);
  const box = source.getBoundingClientRect();
  const old = [source, ...source.querySelectorAll("*")], fresh = [copy, ...copy.querySelectorAll("*")];
  old.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) fresh[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", Math.round(box.width));
  copy.setAttribute("height", Math.round(box.height));
  return copy;
}

function wrapped(canvas) {
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width: canvas.width, height: canvas.height, viewBox: `0 0 ${canvas.width} ${canvas.height}` },
    s("image", { href: canvas.toDataURL(), width: canvas.width, height: canvas.height }));
}

async function rasterized(blob, svg) {
  const image = new Image(), address = URL.createObjectURL(blob);
  image.src = address;
  await image.decode();
  URL.revokeObjectURL(address);
  const canvas = h("canvas", { width: 2 * svg.getAttribute("width"), height: 2 * svg.getAttribute("height") });
  const pen = canvas.getContext("2d");
  pen.fillStyle = token("card");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done));
}

function save(blob, name, kind) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: `${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
