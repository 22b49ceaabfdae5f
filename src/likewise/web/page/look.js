// Look: all items on a map, coloured by what is known of them.
import { get, latest, cancelled } from "/api.js";
import { classColor, ramp } from "/color.js";
import { h, busy, count, number, percent, problem, say } from "/dom.js";
import { csvButton, figure } from "/figure.js";
import { PointMap } from "/map.js";
import { thumbnails } from "/series.js";
import { state, change, listen, labelOf } from "/state.js";
import { open } from "/main.js";

const SHOWN = 48;
const COLUMNS = [["item", row => row.item], ["id", row => row.id], ["label", row => row.label]];

export function look() {
  const map = new PointMap({ onselect: picked, onhover: hover, onopen: i => ask(found.items[i]), label: "Map of the items. Arrow keys walk from point to point." });
  const note = h("small", {}), status = h("div", {}), legend = h("div", {}), chosen = h("div", { class: "stack" });
  const labelled = state.about.classes.length > 0;
  const colors = h("select", { id: "colors", onchange: paint }, [["label", "label", labelled], ["prediction", "prediction", labelled], ["error", "error", labelled], ["length", "length", state.about.kind === "sequences"]]
    .filter(([, , there]) => there).map(([value, text]) => h("option", { value }, text)));
  const method = h("select", { onchange: load }, [["", "PCA or MDS"], ...(state.about.umap ? [["umap", "UMAP"]] : [])].map(([value, text]) => h("option", { value }, text)));
  const signal = latest();
  let found = null, off = new Set();

  const frame = figure("Map", map.canvas, { name: "map", toSvg: () => map.toSvg(), holder: map.node });
  frame.querySelector("h3").after(note);
  const node = h("div", { class: "split" },
    h("div", { class: "card stack" }, h("div", { class: "bar" }, colors.options.length ? h("label", {}, "Colour by", colors) : null, state.about.umap ? h("label", {}, "Method", method) : null, status), frame,
      h("p", { id: "map-help", class: "soft" }, h("small", {}, "Drag to select, click to pick one, wheel to zoom, double-click to see all. Keys: arrows walk, space selects, Enter asks, Escape clears, + and − zoom."))),
    h("div", { class: "stack" }, h("div", { class: "card stack" }, h("h2", {}, "Legend"), legend), h("div", { class: "card stack" }, h("h2", {}, "Selection"), chosen)));
  listen("metric", () => node.isConnected && load());

  async function load() {
    delete node.dataset.ready;
    status.replaceChildren(busy("Placing the items …"));
    try {
      found = await get("map", { metric: state.metric, method: method.value || null }, signal());
    } catch (error) {
      if (!cancelled(error)) status.replaceChildren(problem(error));
      return;
    }
    status.replaceChildren();
    const part = found.items.length < found.total ? `${count(found.items.length)} of ${count(found.total)} items, a sample; searches see all` : `${count(found.total)} items`;
    note.textContent = `${found.method} under ${found.metric}: ${part}${found.share === null ? "" : `; ${percent(found.share)} of the variance`}`;
    map.setPoints(found.x, found.y);
    await paint();
    picked([]);
    node.dataset.ready = "true";
    say(`Map of ${part}`);
  }

  async function paint() {
    const by = colors.value;
    if (!found) return;
    if (by === "prediction" || by === "error") {
      status.replaceChildren(busy("Judging the items …"));
      try {
        await verdict(state.metric);
      } catch (error) {
        status.replaceChildren(problem(error));
        return;
      }
      status.replaceChildren();
    }
    const classes = state.about.classes.length;
    if (by === "length") {
      const low = Math.min(...found.lengths), high = Math.max(...found.lengths);
      map.setColors(found.lengths.map(value => ramp(high > low ? (value - low) / (high - low) : 0.5)));
      legend.replaceChildren(h("canvas", { class: "ramp", width: 128, height: 1 }), h("div", { class: "bar" }, h("small", {}, `${low} steps`), h("small", { class: "end" }, `${high} steps`)));
      const pen = legend.firstChild.getContext("2d");
      for (let i = 0; i < 128; i++) { pen.fillStyle = ramp(i / 127); pen.fillRect(i, 0, 1, 1); }
      return;
    }
    if (by === "error") {
      const judged = byItem();
      const kinds = found.items.map((item, i) => judged.has(item) ? Number(judged.get(item) === found.codes[i]) : 2);
      entries([["wrong", "#d1495b"], ["right", "#3f8f6b"], ["not judged", "#b9c0c5"]], kinds);
    } else if (by === "prediction") {
      const judged = byItem();
      entries([...state.about.classes.map((name, i) => [name, classColor(i, classes)]), ["not judged", "#b9c0c5"]], found.items.map(item => judged.get(item) ?? classes));
    } else if (found.codes) {
      entries(state.about.classes.map((name, i) => [name, classColor(i, classes)]), found.codes);
    } else {
      map.setColors(found.items.map(() => classColor(0, 1)));
      legend.replaceChildren(h("small", {}, "These items have no labels."));
    }
  }

  function byItem() {
    const { items, predicted } = state.verdicts.get(state.metric).queries;
    return new Map(items.map((item, i) => [item, predicted[i]]));
  }

  // A legend whose entries hide and show their points.
  function entries(kinds, kind) {
    const totals = kinds.map(() => 0);
    for (const value of kind) totals[value]++;
    off = new Set();
    const show = () => map.setColors(kind.map(value => kinds[value][1]), kind.map(value => off.has(value)));
    legend.replaceChildren(h("ul", { class: "legend" }, kinds.map(([name, color], i) => totals[i] ? h("li", {}, h("button", { type: "button", "aria-pressed": "true", onclick: event => {
      off.has(i) ? off.delete(i) : off.add(i);
      event.currentTarget.setAttribute("aria-pressed", String(!off.has(i)));
      show();
    } }, h("span", { class: "dot", style: { background: color } }), name, h("small", {}, count(totals[i])))) : null)));
    show();
  }

  async function hover(i, at, aloud) {
    const item = found.items[i], label = found.codes ? labelOf(found.codes[i]) : null, name = found.ids?.[i] ?? String(item);
    const text = [h("b", {}, short(name)), label ? ` ${label}` : "", state.about.kind === "sequences" ? h("small", {}, ` ${found.lengths[i]} steps`) : ""];
    map.showTip(at, ...text);
    if (aloud) say(`Item ${name}${label ? `, ${label}` : ""}`);
    hover.current = i;
    const [picture] = await thumbnails([item]);
    if (hover.current === i && !map.tip.hidden) map.showTip(at, picture, h("div", {}, ...text));
  }

  async function picked(indices) {
    const items = indices.map(i => found.items[i]);
    change({ selected: items });
    if (!items.length) {
      chosen.replaceChildren(h("p", { class: "soft" }, "Nothing is selected. Drag over the map, or walk it with the arrow keys and press space."));
      return;
    }
    say(`${items.length} selected`);
    const few = items.slice(0, SHOWN), pictures = await thumbnails(few);
    const names = few.map((item, i) => ({ item, code: found.codes?.[indices[i]], id: found.ids?.[indices[i]] ?? String(item) }));
    chosen.replaceChildren(
      h("div", { class: "bar" }, h("small", {}, `${count(items.length)} item${items.length === 1 ? "" : "s"}${items.length > SHOWN ? `, the first ${SHOWN}` : ""}`),
        h("span", { class: "end" }, csvButton("Selection", COLUMNS, indices.map(i => ({ item: found.items[i], id: found.ids?.[i] ?? found.items[i], label: found.codes ? labelOf(found.codes[i]) : "" })))),
        items.length === 2 ? h("button", { type: "button", onclick: () => { change({ pair: [{ item: items[0] }, { item: items[1] }] }); open("understand"); } }, "Understand these two") : null),
      tally(indices),
      h("ul", { class: "grid" }, names.map(({ item, code, id }, i) => h("li", {}, h("button", { type: "button", "aria-label": `Item ${id}${code === undefined || code === null ? "" : `, label ${labelOf(code)}`}: ask for its neighbours`, title: `Ask for the neighbours of ${id}`, onclick: () => ask(item) },
        pictures[i], h("span", { class: "name" }, code === undefined || code === null ? null : h("span", { class: "dot", style: { background: classColor(code, state.about.classes.length) } }), ...(code === undefined || code === null ? [h("span", {}, short(id))] : [h("span", {}, labelOf(code)), h("small", {}, short(id))])))))));
  }

  function tally(indices) {
    if (!found.codes || indices.length < 3) return null;
    const totals = new Map();
    for (const i of indices) totals.set(found.codes[i], (totals.get(found.codes[i]) ?? 0) + 1);
    const most = [...totals].sort((a, b) => b[1] - a[1]).slice(0, 5);
    return h("small", {}, most.map(([code, total]) => `${labelOf(code)}: ${number(100 * total / indices.length, 3)} %`).join(", "));
  }

  function ask(item) {
    change({ query: { item } });
    open("ask");
  }

  load();
  return node;
}

export const short = name => { const last = String(name).split("/").pop(); return last.length > 18 ? `${last.slice(0, 16)}…` : last; };

// The verdict on a metric, asked for once.
export async function verdict(metric) {
  if (!state.verdicts.has(metric)) state.verdicts.set(metric, await get("judge", { metric }));
  return state.verdicts.get(metric);
}
