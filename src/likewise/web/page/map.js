// The map: points on a canvas, with a brush, zoom by wheel, and arrow keys that walk from point to point.
import { h, s } from "/dom.js";
import { token } from "/color.js";

export class PointMap {
  constructor({ onselect, onhover, onopen, label }) {
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": label, "aria-describedby": "map-help" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.node = h("div", { class: "map" }, this.canvas, this.tip);
    Object.assign(this, { onselect, onhover, onopen, points: null, colors: [], hidden: null, selected: new Set(), focus: -1, brush: null });
    this.view = { x: 0, y: 0, scale: 1 };
    this.size = { width: 0, height: 0 };  // until it is first drawn
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.listen();
  }

  setPoints(x, y) {
    this.points = { x: Float32Array.from(x, v => v / 10000), y: Float32Array.from(y, v => v / 10000) };
    this.view = { x: 0, y: 0, scale: 1 };
    this.focus = -1;
    this.selected.clear();
    this.draw();
  }

  setColors(colors, hidden = null) {
    this.colors = colors;
    this.hidden = hidden;
    this.draw();
  }

  place(i) {
    const { width, height } = this.size, side = Math.min(width, height) / 2 - 14;
    return [width / 2 + (this.points.x[i] - this.view.x) * this.view.scale * side, height / 2 - (this.points.y[i] - this.view.y) * this.view.scale * side];
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = null; this.paint(); });
  }

  paint() {
    const box = this.node.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    this.size = { width: box.width, height: box.height };
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = token("faint");
    pen.fillRect(0, 0, box.width, box.height);
    if (!this.points) return;
    const n = this.points.x.length, radius = (n > 5000 ? 1.6 : n > 1000 ? 2.4 : 3.6) * Math.min(2, Math.sqrt(this.view.scale));
    const some = this.selected.size > 0;
    // Points of one colour are one path: ten thousand take a few milliseconds.
    const groups = new Map();
    for (let i = 0; i < n; i++) {
      if (this.hidden?.[i] || this.selected.has(i)) continue;
      const color = this.colors[i] ?? "#98a1a8";
      if (!groups.has(color)) groups.set(color, []);
      groups.get(color).push(i);
    }
    pen.globalAlpha = some ? 0.28 : 0.82;
    for (const [color, members] of groups) this.dots(pen, color, members, radius);
    pen.globalAlpha = 1;
    for (const i of this.selected) this.dots(pen, this.colors[i], [i], radius + 1.2);
    if (this.focus >= 0) {
      const [x, y] = this.place(this.focus);
      pen.strokeStyle = token("ink");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, radius + 5, 0, 7);
      pen.stroke();
    }
    if (this.brush) {
      const [a, b, c, d] = this.brush;
      pen.strokeStyle = token("accent");
      pen.fillStyle = token("accent");
      pen.globalAlpha = 0.12;
      pen.fillRect(a, b, c - a, d - b);
      pen.globalAlpha = 1;
      pen.strokeRect(a, b, c - a, d - b);
    }
  }

  dots(pen, color, members, radius) {
    pen.fillStyle = color;
    if (radius < 2.4) { // too small to see a difference, and many times faster
      for (const i of members) {
        const [x, y] = this.place(i);
        pen.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
      }
      return;
    }
    pen.beginPath();
    for (const i of members) {
      const [x, y] = this.place(i);
      pen.moveTo(x + radius, y);
      pen.arc(x, y, radius, 0, 6.2832);
    }
    pen.fill();
  }

  nearest(x, y, most = 12) {
    let best = -1, least = most * most;
    for (let i = 0; i < (this.points?.x.length ?? 0); i++) {
      if (this.hidden?.[i]) continue;
      const [px, py] = this.place(i), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) { least = far; best = i; }
    }
    return best;
  }

  // The nearest point in a direction: near, and not far off the line.
  step(dx, dy) {
    if (this.focus < 0) return this.nearest(this.size.width / 2, this.size.height / 2, Infinity);
    const [x, y] = this.place(this.focus);
    let best = this.focus, least = Infinity;
    for (let i = 0; i < this.points.x.length; i++) {
      if (i === this.focus || this.hidden?.[i]) continue;
      const [px, py] = this.place(i), along = (px - x) * dx + (py - y) * dy, aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (along > 0.5 && aside <= along * 1.5 && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    }
    return best;
  }

  move(i) {
    this.focus = i;
    this.draw();
    if (i >= 0) this.onhover(i, this.place(i), true);
  }

  select(indices) {
    this.selected = new Set(indices);
    this.draw();
    this.onselect([...this.selected]);
  }

  listen() {
    const at = event => { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    let from = null;
    this.canvas.addEventListener("pointerdown", event => { from = at(event); this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", event => {
      if (!this.points) return;
      const [x, y] = at(event);
      if (from && Math.hypot(x - from[0], y - from[1]) > 4) { this.brush = [...from, x, y]; this.draw(); return; }
      const i = this.nearest(x, y);
      if (i !== this.hovered) { this.hovered = i; i >= 0 ? this.onhover(i, this.place(i), false) : this.hide(); }
    });
    this.canvas.addEventListener("pointerup", event => {
      const [x, y] = at(event);
      if (this.brush) {
        const [a, b, c, d] = this.brush, inside = [];
        for (let i = 0; i < this.points.x.length; i++) {
          const [px, py] = this.place(i);
          if (!this.hidden?.[i] && px >= Math.min(a, c) && px <= Math.max(a, c) && py >= Math.min(b, d) && py <= Math.max(b, d)) inside.push(i);
        }
        this.brush = null;
        this.select(inside);
      } else if (from && this.points) {
        const i = this.nearest(x, y);
        if (i < 0) this.select([]);
        else this.select(event.shiftKey || event.ctrlKey || event.metaKey ? [...this.selected, i] : [i]);
        this.focus = i;
      }
      from = null;
    });
    this.canvas.addEventListener("pointerleave", () => { this.hovered = -1; this.hide(); });
    this.canvas.addEventListener("dblclick", () => { this.view = { x: 0, y: 0, scale: 1 }; this.draw(); });
    this.canvas.addEventListener("wheel", event => { event.preventDefault(); this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event)); }, { passive: false });
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("blur", () => this.hide());
  }

  zoom(factor, [x, y] = [this.size.width / 2, this.size.height / 2]) {
    const side = Math.min(this.size.width, this.size.height) / 2 - 14, old = this.view.scale;
    const scale = Math.max(1, Math.min(60, old * factor));
    const dx = (x - this.size.width / 2) / side, dy = -(y - this.size.height / 2) / side;
    this.view = scale === 1 ? { x: 0, y: 0, scale } : { x: this.view.x + dx / old - dx / scale, y: this.view.y + dy / old - dy / scale, scale };
    this.draw();
  }

  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (!this.points) return;
    if (ways[event.key]) this.move(this.step(...ways[event.key]));
    else if (event.key === " " && this.focus >= 0) this.select(this.selected.has(this.focus) ? [...this.selected].filter(i => i !== this.focus) : [...this.selected, this.focus]);
    else if (event.key === "Enter" && this.focus >= 0) this.onopen(this.focus);
    else if (event.key === "Escape") this.select([]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else return;
    event.preventDefault();
  }

  showTip([x, y], ...content) {
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth, tall = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(0, Math.min(this.size.width - wide, x + 14))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(this.size.height - tall, y + 14))}px`;
  }

  hide() {
    this.tip.hidden = true;
  }

  toSvg() {
    const { width, height } = this.size, dots = [];
    for (let i = 0; i < this.points.x.length; i++) {
      if (this.hidden?.[i]) continue;
      const [x, y] = this.place(i);
      dots.push(s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2.4, fill: this.colors[i] }));
    }
    return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, dots);
  }
}
