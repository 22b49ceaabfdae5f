// Ask: a query, picked, uploaded or drawn, and its neighbours under several metrics side by side.
import { get, post, latest, cancelled, upload } from "/api.js";
import { classColor, token } from "/color.js";
import { h, busy, count, duration, empty, number, problem, say } from "/dom.js";
import { figure, table } from "/figure.js";
import { drawn, small, thumbnails } from "/series.js";
import { state, change, colorCode } from "/state.js";
import { short } from "/look.js";
import { open } from "/main.js";

export function ask() {
  const { about } = state;
  const signal = latest();
  const shown = h("div", { class: "query" }), results = h("div", { class: "stack" }), source = h("div", { class: "stack" });
  const start = h("input", { type: "number", min: 0, id: "start", onchange: typed }), end = h("input", { type: "number", min: 1, id: "end", onchange: typed });
  const stretch = h("div", { class: "bar" }, h("label", {}, "Stretch from step", start), h("label", {}, "to", end), h("button", { type: "button", class: "quiet", onclick: () => mark(null, null) }, "Whole item"),
    h("small", {}, "or drag over the series: its stretches are found in all others"));
  const metrics = h("fieldset", {}, h("legend", {}, "Metrics"), about.metrics.map(({ name }, i) => h("label", {}, h("input", { type: "checkbox", value: name, checked: name === state.metric || i < 2 }), ` ${name}`)));
  const k = h("input", { type: "number", min: 1, max: 200, value: 10, id: "k" });
  const go = h("button", { class: "main", type: "button", id: "search", onclick: search }, "Search");
  const ways = [["item", "Pick"], ["upload", "Upload"], ...(about.channels === 1 ? [["draw", "Draw"]] : [])];
  const way = h("fieldset", {}, h("legend", {}, "Query"), ways.map(([value, text], i) => h("label", {}, h("input", { type: "radio", name: "way", value, checked: i === 0, onchange: () => choose(value) }), ` ${text}`)));
  let item = null;

  const node = h("div", { class: "stack" },
    h("section", { class: "card stack", "aria-label": "Query" }, way, source, shown, about.kind === "sequences" ? stretch : null, h("div", { class: "bar" }, metrics, h("label", {}, "Neighbours", k), go)),
    results);

  function choose(value) {
    if (value === "item") {
      const place = h("input", { type: "number", min: 0, max: about.items - 1, value: state.query?.item ?? 0, id: "item" });
      const pick = () => { change({ query: { item: Number(place.value) } }); load(); };
      place.addEventListener("change", pick);
      source.replaceChildren(h("div", { class: "bar" }, h("label", {}, "Item", place), h("button", { type: "button", onclick: () => { place.value = Math.floor(Math.random() * about.items); pick(); } }, "Any"), h("small", {}, `0 to ${count(about.items - 1)}`)));
    } else if (value === "upload") {
      const file = h("input", { type: "file", id: "file", accept: about.kind === "images" ? ".png,.jpg,.jpeg,.webp,.npy" : ".csv,.tsv,.txt,.npy", onchange: () => take(file.files[0]) });
      const drop = h("div", { class: "drop" }, h("label", {}, about.kind === "images" ? "A picture, or .npy of uint8: " : `A .csv with a row for each step and ${about.channels} column${about.channels === 1 ? "" : "s"}, or .npy: `, file), h("div", {}, h("small", {}, "or drop it here. It stays in memory.")));
      drop.addEventListener("dragover", event => { event.preventDefault(); drop.classList.add("over"); });
      drop.addEventListener("dragleave", () => drop.classList.remove("over"));
      drop.addEventListener("drop", event => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files[0]); });
      source.replaceChildren(drop);
    } else {
      source.replaceChildren(pad(values => { change({ query: { values } }); item = { series: [values], step: 1, length: values.length }; show(); search(); }));
    }
  }

  async function take(file) {
    if (!file) return;
    shown.replaceChildren(busy(`Reading ${file.name} …`));
    try {
      item = await upload(file);
    } catch (error) {
      shown.replaceChildren(problem(error));
      return;
    }
    change({ query: { upload: item.upload } });
    show();
    search();
  }

  async function load() {
    if (state.query?.item === undefined) return;
    delete results.dataset.ready;
    try {
      item = await get("item", { item: state.query.item });
    } catch (error) {
      shown.replaceChildren(problem(error));
      return;
    }
    show();
    search();
  }

  function show() {
    const { query } = state, label = item.label ? `, ${item.label}` : "";
    const about = query.item !== undefined ? `Item ${item.id}${label}` : query.upload ? "Uploaded" : "Drawn";
    const stretch = query.start === undefined ? null : [query.start, query.end];
    shown.replaceChildren(figure(about, drawn(item, { onstretch: mark, stretch, label: about }), { note: item.series ? `${item.length} steps` : null, name: "query" }));
    start.value = query.start ?? "";
    end.value = query.end ?? "";
    start.max = end.max = item.length;
  }

  function mark(from, to) {
    const { start: a, end: b, ...whole } = state.query;
    change({ query: from === null ? whole : { ...whole, start: from, end: to } });
    if (item) show();
    search();
  }

  function typed() {
    if (start.value !== "" && end.value !== "" && Number(end.value) > Number(start.value)) mark(Number(start.value), Number(end.value));
  }

  async function search() {
    if (!state.query) return;
    const chosen = [...metrics.querySelectorAll("input:checked")].map(box => box.value);
    if (!chosen.length) {
      results.replaceChildren(empty("Choose at least one metric."));
      return;
    }
    delete results.dataset.ready;
    results.replaceChildren(busy("Searching …"));
    try {
      const found = await post("ask", { query: state.query, metrics: chosen, k: Math.max(1, Math.min(200, Number(k.value) || 10)) }, signal());
      await list(found);
    } catch (error) {
      if (!cancelled(error)) results.replaceChildren(problem(error));
    }
  }

  async function list(found) {
    const label = state.query.item !== undefined ? item?.label : null;
    const columns = await Promise.all(found.answers.map(answer => column(answer, label)));
    const rows = found.answers.flatMap(answer => (answer.hits ?? []).map((hit, i) => ({ metric: answer.metric, rank: i + 1, ...hit })));
    const all = table("Neighbours", [["metric", row => row.metric], ["rank", row => row.rank, true], ["item", row => row.item, true], ["id", row => row.id], ["label", row => row.label ?? ""],
      ["distance", row => number(row.distance, 6), true], ["start", row => row.start, true], ["end", row => row.end, true]], rows);
    const note = found.stretch ? h("small", {}, "Stretches are compared after scaling each to mean 0 and deviation 1.") : null;
    results.replaceChildren(...[note].filter(Boolean), h("div", { class: "columns" }, columns), h("details", { class: "card" }, h("summary", {}, "As a table"), all));
    results.dataset.ready = "true";
    say(found.answers.map(answer => `${answer.metric}: ${answer.hits?.length ?? 0} neighbours`).join("; "));
  }

  async function column(answer, label) {
    const head = h("h2", {}, answer.metric);
    if (answer.problem) return h("section", { class: "card" }, head, h("p", { class: "problem" }, answer.problem));
    const pruned = Object.entries(answer.pruned), killed = pruned.reduce((sum, [, value]) => sum + value, 0);
    const unit = found => found === 1 ? "pair" : "pairs";
    const work = `${duration(answer.seconds)}, ${answer.method}: ${count(answer.candidates)} ${unit(answer.candidates)}, ` + (killed ? `${(100 * killed / answer.candidates).toPrecision(3)} % pruned (${pruned.filter(([, value]) => value).map(([stage, value]) => `${stage} ${count(value)}`).join(", ")})` : "none pruned");
    const pictures = state.about.kind === "images" ? await thumbnails(answer.hits.map(hit => hit.item), 44) : null;
    const same = label ? answer.hits.filter(hit => hit.label === label).length : null;
    return h("section", { class: "card" }, head, h("small", {}, work), same === null ? null : h("div", {}, h("small", { class: same === answer.hits.length ? "good" : null }, `${same} of ${answer.hits.length} share the label ${label}`)),
      h("ol", { class: "hits" }, answer.hits.map((hit, i) => row(hit, i, answer.metric, pictures?.[i], label))),
      answer.hits.length ? null : empty("No neighbours."));
  }

  function row(hit, i, metric, picture, label) {
    const part = hit.end - hit.start < hit.length ? [hit.start, hit.end] : null;
    const text = `${i + 1}. item ${hit.id}${hit.label ? `, ${hit.label}` : ""}, distance ${number(hit.distance)}${part ? `, steps ${hit.start} to ${hit.end - 1}` : ""}`;
    const wrong = label && hit.label !== label;
    return h("li", {}, h("button", { type: "button", "aria-label": `${text}; understand`, title: `${text}\nOpen in Understand`, onclick: () => {
      change({ pair: [state.query, part ? { item: hit.item, start: hit.start, end: hit.end } : { item: hit.item }], metric });
      open("understand");
    } },
      h("span", { class: "rank" }, String(i + 1)),
      picture ?? small(hit.series, { match: part, length: hit.length }),
      h("span", { class: "name" }, hit.label ? h("span", { class: "dot", style: { background: classColor(colorCode(hit.label), state.about.classes.length) } }) : null, h("span", { class: wrong ? "problem" : null }, hit.label ?? short(hit.id))),
      h("span", { class: "num" }, number(hit.distance))));
  }

  choose("item");
  if (!state.query) change({ query: { item: state.selected[0] ?? 0 } });
  if (state.query.item !== undefined) {
    source.querySelector("#item").value = state.query.item;
    load();
  } else {
    results.append(empty("Pick, upload or draw a query."));
  }
  return node;
}

// A pad to draw a series on: one value for each step from left to right.
function pad(ondrawn) {
  const width = 600, height = 170, steps = Math.max(16, Math.min(256, state.about.lengths[1]));
  const canvas = h("canvas", { class: "pad", width, height, id: "pad", "aria-label": "Draw a series from left to right with the mouse; with the keyboard, upload or pick one instead" });
  const pen = canvas.getContext("2d");
  let values = null, last = null;
  const at = event => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]; };
  const paint = () => {
    pen.clearRect(0, 0, width, height);
    pen.strokeStyle = token("accent");
    pen.lineWidth = 2;
    pen.beginPath();
    values.forEach((value, i) => { if (value !== null) pen.lineTo(i / (steps - 1) * width, value * height); });
    pen.stroke();
  };
  canvas.addEventListener("pointerdown", event => { values = Array(steps).fill(null); last = at(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (!last) return;
    const next = at(event), [a, b] = last[0] <= next[0] ? [last, next] : [next, last];
    for (let i = Math.max(0, Math.round(a[0] * (steps - 1))); i <= Math.min(steps - 1, Math.round(b[0] * (steps - 1))); i++) {
      const share = b[0] > a[0] ? Math.max(0, Math.min(1, (i / (steps - 1) - a[0]) / (b[0] - a[0]))) : 0;
      values[i] = a[1] + share * (b[1] - a[1]);
    }
    last = next;
    paint();
  });
  canvas.addEventListener("pointerup", async () => {
    last = null;
    const drawn = values.filter(value => value !== null);
    if (drawn.length < 4) return;
    // The height of the pad is the range of an item, so that a drawing has the size of the others.
    const { series } = await get("item", { item: 0 });
    const low = Math.min(...series[0]), high = Math.max(...series[0]);
    ondrawn(drawn.map(value => Number((high - value * (high - low)).toFixed(5))));
  });
  return canvas;
}
