// Series as lines: small ones beside a name, and large ones with axes and a stretch that can be marked.
import { h, s, number } from "/dom.js";
import { channelColor } from "/color.js";
import { picture, post } from "/api.js";
import { state } from "/state.js";

// Pictures are as wide as the window lets them be, so that their words stay legible.
export const wide = (most = 900) => Math.max(330, Math.min(most, innerWidth - 70));

export function range(...all) {
  let low = Infinity, high = -Infinity;
  for (const series of all) for (const channel of series) for (const value of channel) if (value !== null) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return high > low ? [low, high] : [low - 1, high + 1];
}

export function path(values, x, y) {
  let text = "";
  values.forEach((value, i) => { text += `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`; });
  return text;
}

export function lines(series, x, y, attributes = {}) {
  return series.map((channel, c) => s("path", { class: "line", d: path(channel, x, y), stroke: channelColor(c, state.about.channels ?? 1), ...attributes }));
}

export function small(series, { match = null, length = null, width = 160, height = 40, label = null } = {}) {
  const [low, high] = range(series), steps = series[0].length;
  const x = i => steps > 1 ? i / (steps - 1) * width : width / 2;
  const y = value => height - 3 - (value - low) / (high - low) * (height - 6);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label ?? "series" },
    match && s("rect", { class: "match", x: match[0] / length * width, y: 0, width: Math.max(1.5, (match[1] - match[0]) / length * width), height }),
    lines(series, x, y));
}

// A large series; drag to mark a stretch: onstretch(start, end), or (null, null) after a click.
export function large(item, { height = 170, onstretch = null, stretch = null, label = "series" } = {}) {
  const { series, step } = item, width = wide(), left = 44, bottom = 20;
  const [low, high] = range(series), steps = series[0].length;
  const x = i => left + (steps > 1 ? i / (steps - 1) : 0.5) * (width - left - 6);
  const y = value => height - bottom - (value - low) / (high - low) * (height - bottom - 8);
  const mark = s("rect", { class: "brush", y: 4, height: height - bottom - 4, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    s("path", { class: "axis", d: `M${left} 4V${height - bottom}H${width - 6}` }),
    s("text", { x: left - 6, y: 12, "text-anchor": "end" }, number(high, 3)), s("text", { x: left - 6, y: height - bottom, "text-anchor": "end" }, number(low, 3)),
    s("text", { x: left, y: height - 5 }, "0"), s("text", { x: width - 6, y: height - 5, "text-anchor": "end" }, String(item.length - 1)),
    mark, lines(series, x, y));
  const show = (a, b) => {
    mark.setAttribute("visibility", a === null ? "hidden" : "visible");
    if (a === null) return;
    mark.setAttribute("x", x(a / step));
    mark.setAttribute("width", Math.max(1, x((b - 1) / step) - x(a / step)));
  };
  if (stretch) show(...stretch);
  if (onstretch) {
    const stepAt = event => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
      return Math.max(0, Math.min(item.length - 1, Math.round((at - left) / (width - left - 6) * (item.length - 1))));
    };
    let from = null;
    svg.addEventListener("pointerdown", event => { from = stepAt(event); svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointermove", event => { if (from !== null) show(Math.min(from, stepAt(event)), Math.max(from, stepAt(event)) + 1); });
    svg.addEventListener("pointerup", event => {
      if (from === null) return;
      const to = stepAt(event), [a, b] = [Math.min(from, to), Math.max(from, to) + 1];
      from = null;
      if (b - a < 3) { show(null); onstretch(null, null); } else onstretch(a, b);
    });
  }
  return svg;
}

// Thumbnails of items, asked for together: elements that fill once the server has answered.
export async function thumbnails(items, size = 56) {
  if (!items.length) return [];
  if (state.about.kind === "images") {
    const strip = await picture("thumbnails", { items, size });
    return items.map((_, i) => {
      const canvas = h("canvas", { width: size, height: size, role: "img", "aria-label": "image" });
      canvas.getContext("2d").drawImage(strip, i * size, 0, size, size, 0, 0, size, size);
      return canvas;
    });
  }
  const { series } = await post("thumbnails", { items });
  return series.map(one => small(one));
}

export function drawn(item, options = {}) {
  if (item.png) return h("img", { src: `data:image/png;base64,${item.png}`, alt: options.label ?? "image", style: { width: "160px", "image-rendering": "pixelated" } });
  return large(item, options);
}
