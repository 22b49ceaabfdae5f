// Judge: how well neighbours share a label, and the items behind every number.
import { classColor, token } from "/color.js";
import { h, s, busy, count, empty, number, percent, problem, say } from "/dom.js";
import { csvButton, figure, table } from "/figure.js";
import { thumbnails, wide } from "/series.js";
import { state, change, listen, labelOf, colorCode } from "/state.js";
import { short, verdict } from "/look.js";
import { open } from "/main.js";

export function judge() {
  const body = h("div", { class: "stack" });
  const others = state.about.metrics.map(({ name }) => name);
  const against = h("select", { id: "against", onchange: load }, h("option", { value: "" }, "no other"), others.map(name => h("option", { value: name }, name)));
  const node = h("div", { class: "stack" }, h("div", { class: "bar" }, others.length > 1 ? h("label", {}, "Against", against) : null), body);
  listen("metric", () => node.isConnected && load());
  let asked = 0;

  async function load() {
    if (!state.about.classes.length) {
      body.replaceChildren(empty("Judging needs labels, and these items have none."));
      return;
    }
    const turn = ++asked, other = against.value && against.value !== state.metric ? against.value : null;
    delete body.dataset.ready;
    body.replaceChildren(busy("Every query looks for its class among the other items …"));
    try {
      const found = [await verdict(state.metric), other ? await verdict(other) : null];
      if (turn === asked) show(...found);
    } catch (error) {
      if (turn === asked) body.replaceChildren(problem(error));
    }
  }

  function show(found, other) {
    const opened = h("div", { class: "stack" });
    const both = [found, other].filter(Boolean);
    const sample = found.queries.items.length < found.total ? `${count(found.queries.items.length)} queries, drawn at random, against ${count(found.references)} of ${count(found.total)} items` : `each of ${count(found.total)} items against all others`;
    body.replaceChildren(...[
      h("p", {}, h("small", {}, `Leave-one-out: ${sample}. Intervals hold 95 % of resamplings of the queries.`)),
      ...both.map(one => h("section", { class: "card stack" }, h("div", { class: "bar" }, h("h2", {}, one.metric), h("span", { class: "end" }, csvButton(`Scores of ${one.metric}`, SCORES, Object.entries(one.scores)))), scores(one))),
      other ? h("section", { class: "card stack" }, versus(found, other, opened)) : null,
      h("div", { class: "halves" }, h("section", { class: "card" }, confusion(found, opened)), h("section", { class: "card" }, figure("Precision against recall", curves(both), { note: both.map(one => one.metric).join(" and ") }))),
      opened,
      h("div", { class: "halves" }, h("section", { class: "card" }, worst(found)), h("section", { class: "card" }, hardest(found))),
      h("section", { class: "card" }, suspects(found)),
    ].filter(Boolean));
    body.dataset.ready = "true";
    say(`${found.metric}: accuracy ${percent(found.scores.accuracy[0])}`);
  }

  load();
  return node;
}

const SCORES = [["score", ([name]) => name], ["value", ([, [value]]) => number(value, 6), true], ["low", ([, [, low]]) => number(low, 6), true], ["high", ([, [, , high]]) => number(high, 6), true]];

const ITEMS = [["item", row => row.item], ["id", row => row.id], ["label", row => row.label], ["nearest item", row => row.other]];

function scores(found) {
  return h("div", { class: "scores" }, Object.entries(found.scores).map(([name, [value, low, high]]) => h("div", { class: "score" },
    h("small", {}, name), h("b", {}, percent(value)), h("small", {}, `${percent(low)} to ${percent(high)}`), interval(value, low, high))));
}

const interval = (value, low, high) => s("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
  s("rect", { x: 0, y: 3, width: 100, height: 2, fill: token("line") }), s("rect", { x: 100 * low, y: 2, width: Math.max(0.6, 100 * (high - low)), height: 4, fill: token("accent"), opacity: 0.45 }), s("rect", { x: 100 * value - 0.4, y: 0, width: 0.8, height: 8, fill: token("accent") }));

function confusion(found, opened) {
  const { classes, confusion: cells } = found, sums = cells.map(row => row.reduce((sum, value) => sum + value, 0) || 1);
  const csv = cells.flatMap((row, i) => row.map((value, j) => ({ actual: classes[i], predicted: classes[j], queries: value })));
  const cell = (i, j) => {
    const value = cells[i][j], share = value / sums[i];
    return h("td", {}, h("button", { type: "button", disabled: value === 0, style: { background: value ? (i === j ? mixed(token("accent"), share) : mixed(token("second"), share)) : "transparent", color: !value ? "transparent" : share > 0.55 ? token("on-accent") : token("ink") },
      "aria-label": `${classes[i]} taken for ${classes[j]}: ${value} queries`, onclick: () => openCell(found, i, j, opened) }, String(value)));
  };
  const node = table("Confusion", [["actual", row => row.actual], ["predicted", row => row.predicted], ["queries", row => row.queries, true]], csv, { note: "rows: label; columns: the nearest item's" });
  node.querySelector("table").replaceWith(h("table", { class: "confusion" }, h("thead", {}, h("tr", {}, h("th", {}, ""), classes.map(name => h("th", { scope: "col", title: name }, name)))),
    h("tbody", {}, classes.map((name, i) => h("tr", {}, h("th", { scope: "row", title: name }, name), classes.map((_, j) => cell(i, j)))))));
  return node;
}

const mixed = (color, share) => `color-mix(in srgb, ${color} ${Math.round(12 + 88 * share)}%, transparent)`;

function openCell(found, i, j, opened) {
  const { queries } = found, places = queries.items.map((_, q) => q).filter(q => queries.codes[q] === i && queries.predicted[q] === j);
  gallery(opened, `${labelOf(i)} taken for ${labelOf(j)}`, places.map(q => ({ item: queries.items[q], id: queries.ids[q], label: labelOf(queries.codes[q]), other: queries.nearest[q] })));
}

async function gallery(opened, title, rows) {
  const few = rows.slice(0, 60), pictures = await thumbnails(few.map(row => row.item));
  opened.replaceChildren(h("section", { class: "card stack", id: "opened" }, h("div", { class: "bar" }, h("h2", { tabindex: "-1" }, `${title}: ${count(rows.length)} quer${rows.length === 1 ? "y" : "ies"}`), h("span", { class: "end" }, csvButton(title, ITEMS, rows)), h("button", { class: "quiet", type: "button", onclick: () => opened.replaceChildren() }, "Close")),
    h("ul", { class: "grid" }, few.map((row, i) => h("li", {}, h("button", { type: "button", "aria-label": `Item ${row.id}, label ${row.label}: understand it beside its nearest item`, title: "Understand it beside its nearest item", onclick: () => understand(row.item, row.other) }, pictures[i], tag(row.label, row.id)))))));
  opened.querySelector("h2").focus();
  say(`${title}: ${rows.length} queries`);
}

const tag = (label, id) => h("span", { class: "name" }, h("span", { class: "dot", style: { background: classColor(colorCode(label), state.about.classes.length) } }), h("span", {}, label), h("small", {}, short(id)));

function understand(x, y) {
  change({ pair: [{ item: x }, { item: y }] });
  open("understand");
}
const opener = (x, y) => h("button", { type: "button", onclick: () => understand(x, y) }, "Understand");

function curves(both) {
  const width = wide(460), height = 280, left = 36, bottom = 26, x = value => left + value * (width - left - 8), y = value => height - bottom - value * (height - bottom - 10);
  const colors = [token("accent"), token("second")];
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Precision against recall" },
    [0, 0.5, 1].flatMap(value => [s("path", { class: "axis", d: `M${left} ${y(value)}H${width - 8}` }), s("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, String(value)), s("text", { x: x(value), y: height - 8, "text-anchor": "middle" }, String(value))]),
    both.flatMap((one, i) => [s("path", { class: "line", stroke: colors[i], d: one.curve.recall.map((r, p) => `${p ? "L" : "M"}${x(r).toFixed(1)} ${y(one.curve.precision[p]).toFixed(1)}`).join("") }), s("text", { x: width - 10, y: 22 + 15 * i, "text-anchor": "end", fill: colors[i], style: { fill: colors[i] } }, one.metric)]));
}

function worst(found) {
  const { queries } = found, order = queries.items.map((_, q) => q).sort((a, b) => queries.precision[a] - queries.precision[b] || a - b).slice(0, 60);
  return table("Worst queries", [["id", q => queries.ids[q]], ["label", q => labelOf(queries.codes[q])], ["nearest is", q => labelOf(queries.predicted[q])], ["average precision", q => number(queries.precision[q], 3), true]], order, { open: q => opener(queries.items[q], queries.nearest[q]) });
}

function hardest(found) {
  return table("Hardest negatives", [["query", row => row.query_id], ["label", row => row.query_label], ["item", row => row.item_id], ["its label", row => row.item_label], ["distance", row => number(row.distance), true], ["nearest of its own", row => number(row.own), true]], found.hardest,
    { note: "nearest items of another class", open: row => opener(row.query, row.item) });
}

function suspects(found) {
  if (!found.suspects.length) return h("div", {}, h("h3", {}, "Suspected label errors"), empty("None: no item's neighbours agree on another label."));
  return table("Suspected label errors", [["id", row => row.id], ["label", row => row.label], ["neighbours say", row => row.suggested], ["votes", row => `${row.votes} of ${row.of}`], ["own class: times as far", row => number(row.margin, 3), true]], found.suspects,
    { note: "items whose nearest agree on another label", open: row => h("button", { type: "button", onclick: () => { change({ query: { item: row.item } }); open("ask"); } }, "Ask") });
}

// Two metrics on the same queries: who is right where the other is wrong.
function versus(a, b, opened) {
  const right = found => new Map(found.queries.items.map((item, q) => [item, found.queries.predicted[q] === found.queries.codes[q]]));
  const [first, second] = [right(a), right(b)], shared = a.queries.items.filter(item => second.has(item));
  const groups = { both: [], first: [], second: [], neither: [] };
  for (const item of shared) groups[first.get(item) ? (second.get(item) ? "both" : "first") : second.get(item) ? "second" : "neither"].push(item);
  const p = signTest(groups.first.length, groups.second.length);
  const rows = [["both", "both right"], ["first", `only ${a.metric} right`], ["second", `only ${b.metric} right`], ["neither", "both wrong"]].map(([key, text]) => ({ key, text, items: groups[key] }));
  const place = new Map(a.queries.items.map((item, q) => [item, q]));
  return table(`${a.metric} against ${b.metric}`, [["outcome", row => row.text], ["queries", row => row.items.length, true], ["share", row => percent(row.items.length / shared.length), true]], rows,
    { note: `they differ on ${groups.first.length + groups.second.length} queries; two-sided sign test, p = ${number(p, 2)}`,
      open: row => h("button", { type: "button", disabled: !row.items.length, onclick: () => gallery(opened, row.text, row.items.map(item => ({ item, id: a.queries.ids[place.get(item)], label: labelOf(a.queries.codes[place.get(item)]), other: (row.key === "first" ? b : a).queries.nearest[place.get(item)] }))) }, "Open") });
}

function signTest(wins, losses) {
  const n = wins + losses, least = Math.min(wins, losses);
  let term = n * Math.log(0.5), sum = 0; // log of one outcome's probability
  for (let k = 0; k <= least; k++) {
    sum += Math.exp(term);
    term += Math.log((n - k) / (k + 1));
  }
  return Math.min(1, 2 * sum);
}
