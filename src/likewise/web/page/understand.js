// Understand: two items, how they match, and which of their parts carry the distance.
import { post, latest, cancelled } from "/api.js";
import { channelColor, rampParts, token } from "/color.js";
import { h, s, busy, bytes, empty, number, percent, problem, say } from "/dom.js";
import { figure, table } from "/figure.js";
import { lines, path, range, wide } from "/series.js";
import { state, change, listen } from "/state.js";

export function understand() {
  const body = h("div", { class: "stack" }), signal = latest();
  const fields = ["x", "y"].map((name, i) => h("input", { type: "number", min: 0, max: state.about.items - 1, id: `pair-${name}`, value: state.pair[i]?.item ?? "", onchange: pick }));
  const node = h("div", { class: "stack" }, h("div", { class: "bar" }, h("label", {}, "Item x", fields[0]), h("label", {}, "Item y", fields[1]), h("button", { type: "button", onclick: swap }, "Swap")), body);
  listen("metric", () => node.isConnected && load());

  function pick() {
    if (fields.every(field => field.value !== "")) {
      change({ pair: fields.map(field => ({ item: Number(field.value) })) });
      load();
    }
  }

  function swap() {
    change({ pair: [...state.pair].reverse() });
    fields.forEach((field, i) => { field.value = state.pair[i]?.item ?? ""; });
    load();
  }

  async function load() {
    const [x, y] = state.pair;
    if (!x || !y) {
      body.replaceChildren(empty("Choose two items: a neighbour in Ask, two points in Look, or their numbers here."));
      return;
    }
    delete body.dataset.ready;
    body.replaceChildren(busy("Comparing …"));
    try {
      show(await post("understand", { x, y, metric: state.metric }, signal()));
    } catch (error) {
      if (!cancelled(error)) body.replaceChildren(problem(error));
    }
  }

  function show(found) {
    const head = h("div", { class: "bar" }, h("h2", {}, `${name(found.x, "x")} and ${name(found.y, "y")}`), h("span", {}, `${found.metric}: `, h("b", {}, number(found.distance, 6))),
      found.scaled ? h("small", {}, "stretches are scaled to mean 0 and deviation 1, as in the search for them") : null);
    const parts = found.x.png ? pictures(found) : sequences(found);
    body.replaceChildren(head, ...parts);
    body.dataset.ready = "true";
    say(`Distance ${number(found.distance)} under ${found.metric}`);
  }

  load();
  return node;
}

const name = (item, letter) => item.id === undefined ? letter : `${letter}: ${item.id}${item.label ? ` (${item.label})` : ""}${item.end ? `, steps ${item.start ?? 0} to ${item.end - 1}` : ""}`;

function sequences(found) {
  const { alignment, contributions } = found, nodes = [];
  nodes.push(h("section", { class: "card" }, figure(alignment ? "Alignment" : "Both series", matched(found), { note: alignment ? `${alignment.steps} matched pairs` : `${found.metric} aligns no steps` })));
  if (alignment) nodes.push(h("section", { class: "card" }, morph(found)));
  const left = [], right = [];
  if (found.cost && alignment) left.push(h("section", { class: "card" }, matrix("Cost and path", found.cost, alignment.path, found)));
  if (alignment?.plan) left.push(h("section", { class: "card" }, matrix("Plan", alignment.plan, null, found)));
  const under = alignment?.plan ? right : left; // so that both columns are about as long
  if (alignment) under.push(h("section", { class: "card" }, figure("Warp", warp(found), { note: "where in y each step of x is matched" })));
  right.push(h("section", { class: "card stack" }, ...carried(contributions, found)));
  nodes.push(h("div", { class: "halves" }, h("div", { class: "stack" }, left), h("div", { class: "stack" }, right)));
  return nodes;
}

// x above, y below, matched steps joined.
function matched(found) {
  const width = wide(), tall = 120, gap = 60, left = 8;
  const longest = Math.max(found.x.length, found.y.length), [low, high] = range(found.x.series, found.y.series);
  const place = i => left + i / Math.max(1, longest - 1) * (width - 2 * left);
  const up = value => tall - 6 - (value - low) / (high - low) * (tall - 12), down = value => up(value) + tall + gap;
  const svg = s("svg", { viewBox: `0 0 ${width} ${2 * tall + gap}`, role: "img", "aria-label": "Both series, x above y, with lines between matched steps" });
  const pairs = found.alignment?.path ?? [], every = Math.max(1, Math.floor(pairs.length / 120));
  for (let p = 0; p < pairs.length; p += every) {
    const [i, j] = pairs[p];
    svg.append(s("path", { class: "link", d: `M${place(i).toFixed(1)} ${up(at(found.x, i)).toFixed(1)}L${place(j).toFixed(1)} ${down(at(found.y, j)).toFixed(1)}` }));
  }
  svg.append(...lines(found.x.series, i => place(i * found.x.step), up), ...lines(found.y.series, i => place(i * found.y.step), down),
    s("text", { class: "halo", x: left, y: 12 }, name(found.x, "x")), s("text", { class: "halo", x: left, y: 2 * tall + gap - 4 }, name(found.y, "y")));
  return svg;
}

const at = (item, i) => item.series[0][Math.min(item.series[0].length - 1, Math.floor(i / item.step))];

// Along the matched pairs, time and value move from x to y together.
function morph(found) {
  const width = wide(), height = 150, pairs = found.alignment.path, [low, high] = range(found.x.series, found.y.series);
  const y = value => height - 8 - (value - low) / (high - low) * (height - 16);
  const longest = Math.max(found.x.length, found.y.length) - 1;
  const curves = found.x.series.map((_, c) => s("path", { class: "line", stroke: channelColor(c, state.about.channels ?? 1) }));
  const ghosts = [found.x, found.y].map(item => lines(item.series, i => 6 + i * item.step / Math.max(1, longest) * (width - 12), y, { opacity: 0.16 }));
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "x turning into y along the alignment" }, ...ghosts, curves);
  const value = (item, c, i) => item.series[c][Math.min(item.series[c].length - 1, Math.floor(i / item.step))];
  const draw = share => curves.forEach((curve, c) => curve.setAttribute("d", path(pairs, p => 6 + ((1 - share) * pairs[p][0] + share * pairs[p][1]) / Math.max(1, longest) * (width - 12),
    ([i, j]) => y((1 - share) * value(found.x, c, i) + share * value(found.y, c, j)))));
  const slider = h("input", { type: "range", min: 0, max: 100, value: 0, id: "morph", "aria-label": "From x, at 0, to y, at 100", oninput: () => draw(slider.value / 100) });
  draw(0);
  const picture = figure("From one to the other", svg, { note: "drag the slider: steps and values move along the alignment" });
  picture.append(h("div", { class: "bar" }, h("small", {}, "x"), h("span", { style: { flex: "1" } }, slider), h("small", {}, "y")));
  return picture;
}

// A matrix as a heat map, x downwards and y to the right, with the path over it.
function matrix(title, grid, pairs, found) {
  const scale = Math.max(1, Math.ceil(420 / Math.max(grid.rows, grid.columns)));
  const canvas = h("canvas", { width: grid.columns * scale, height: grid.rows * scale, class: "matrix", role: "img", "aria-label": `${title}: steps of x downwards, steps of y to the right` });
  heat(canvas, grid, scale);
  if (pairs) {
    const pen = canvas.getContext("2d");
    pen.strokeStyle = "#ffffff";
    pen.lineWidth = 2.5;
    pen.lineJoin = "round";
    pen.beginPath();
    for (const [i, j] of pairs) pen.lineTo((j + 0.5) / found.y.length * canvas.width, (i + 0.5) / found.x.length * canvas.height);
    pen.stroke();
  }
  return figure(title, canvas, { note: `${number(grid.low, 3)} to ${number(grid.high, 3)}; x ↓, y →` });
}

function heat(canvas, grid, scale, alpha = null) {
  const values = bytes(grid), pixels = new ImageData(grid.columns, grid.rows);
  for (let i = 0; i < values.length; i++) {
    pixels.data.set(rampParts(values[i] / 255), 4 * i);
    pixels.data[4 * i + 3] = alpha === null ? 255 : Math.round(alpha * values[i]);
  }
  const small = h("canvas", { width: grid.columns, height: grid.rows }), pen = canvas.getContext("2d");
  small.getContext("2d").putImageData(pixels, 0, 0);
  pen.imageSmoothingEnabled = alpha !== null;
  pen.drawImage(small, 0, 0, grid.columns * scale, grid.rows * scale);
}

function warp(found) {
  const width = wide(460), height = 220, left = 34, bottom = 22, { warp: places } = found.alignment;
  const x = i => left + i / Math.max(1, places.length - 1) * (width - left - 8), y = value => height - bottom - value / Math.max(1, found.y.length - 1) * (height - bottom - 8);
  const real = places.map((value, i) => [i, value]).filter(([, value]) => value !== null);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Warp from x's steps to y's" },
    s("path", { class: "axis", d: `M${left} 6V${height - bottom}H${width - 6}` }), s("path", { class: "link", d: `M${x(0)} ${y(0)}L${x(places.length - 1)} ${y(found.y.length - 1)}` }),
    s("path", { class: "line", stroke: token("accent"), d: path(real, p => x(real[p][0]), ([, value]) => y(value)) }),
    s("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, `step of x (${found.x.length})`), s("text", { x: 4, y: 14 }, `y (${found.y.length})`));
}

// Contributions by step and by channel; with the rest they sum to the distance.
function carried(parts, found) {
  const how = parts.method === "cost" ? "costs of matched frames" : "integrated gradients";
  const nodes = [h("h2", {}, "What carries the distance")];
  const share = found.distance ? ` (${percent(parts.rest / found.distance)})` : "";
  nodes.push(h("p", {}, h("small", {}, `By ${how}. Steps and channels add up to ${number(found.distance - parts.rest, 6)}; ${number(parts.rest, 4)}${share} belongs to no step.`)));
  nodes.push(figure("By step of x", bars(parts.by_frame), {}));
  if (parts.by_channel.length > 1) {
    nodes.push(figure("By step and channel", strip(parts.picture), { note: "channels downwards" }));
    const total = parts.by_channel.reduce((sum, value) => sum + Math.abs(value), 0) || 1;
    nodes.push(table("By channel", [["channel", row => row[0], true], ["contribution", row => number(row[1], 6), true], ["share", row => percent(row[1] / total), true]], parts.by_channel.map((value, c) => [c, value])));
  }
  return nodes;
}

function bars(values) {
  const width = wide(460), height = 110, high = Math.max(0, ...values), low = Math.min(0, ...values), span = high - low || 1;
  const y = value => 6 + (high - value) / span * (height - 12), zero = y(0);
  let text = "";
  values.forEach((value, i) => { const x = i / values.length * width, wide = Math.max(0.6, width / values.length - 0.4); text += `M${x.toFixed(2)} ${zero.toFixed(2)}h${wide.toFixed(2)}V${y(value).toFixed(2)}h-${wide.toFixed(2)}z`; });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Contribution of each step" }, s("path", { d: text, fill: token("second") }), s("path", { class: "axis", d: `M0 ${zero}H${width}` }));
}

function strip(grid) {
  const scale = Math.max(1, Math.ceil(460 / grid.columns)), canvas = h("canvas", { width: grid.columns * scale, height: grid.rows * scale, role: "img", "aria-label": "Contribution of each step and channel" });
  heat(canvas, grid, scale);
  canvas.style.height = `${Math.max(40, Math.min(160, 14 * grid.rows))}px`;
  canvas.style.imageRendering = "pixelated";
  return canvas;
}

function pictures(found) {
  const side = 200, load = async (item, grid) => {
    const image = new Image();
    image.src = `data:image/png;base64,${item.png}`;
    await image.decode();
    const canvas = h("canvas", { width: side, height: side, role: "img" }), pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.drawImage(image, 0, 0, side, side);
    if (grid) heat(canvas, { ...grid }, side / grid.columns, 0.75);
    return canvas;
  };
  const row = h("div", { class: "images" });
  const add = async (title, item, grid) => row.append(figure(title, await load(item, grid), {}));
  (async () => {
    await add("x", found.x, null);
    await add("y", found.y, null);
    await add("What carries the distance", found.x, found.contributions.picture);
    for (const [i, item] of [found.x, found.y].entries()) for (const [layer, grid] of Object.entries(found.attention?.[i] ?? {})) await add(`Attention of ${"xy"[i]}, ${layer}`, item, grid);
  })();
  const blend = h("canvas", { width: side, height: side, role: "img", "aria-label": "x fading into y" });
  const both = [found.x, found.y].map(item => { const image = new Image(); image.src = `data:image/png;base64,${item.png}`; return image; });
  const draw = share => { const pen = blend.getContext("2d"); pen.imageSmoothingEnabled = false; both.forEach((image, i) => { pen.globalAlpha = i ? share : 1; pen.drawImage(image, 0, 0, side, side); }); };
  const slider = h("input", { type: "range", min: 0, max: 100, value: 0, id: "morph", "aria-label": "From x, at 0, to y, at 100", oninput: () => draw(slider.value / 100) });
  Promise.all(both.map(image => image.decode())).then(() => draw(0));
  const fade = figure("From one to the other", blend, {});
  fade.append(slider);
  return [h("section", { class: "card" }, row), h("section", { class: "card" }, h("div", { class: "images" }, fade))];
}
