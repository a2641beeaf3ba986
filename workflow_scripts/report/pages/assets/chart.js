"use strict";
// A chart of accuracy over rounds or work, as SVG: mouse, finger and arrow keys read values, dragging with the mouse zooms,
// colours follow the theme. What is read stands in the place of the names beside the lines' ends, or, where there is no room
// for names, in a list below.
// A line: {name, seed, colour, dash, faint, wide, end, x: [], round: [], y: [] (%, null: none), seeds: [{seed, y: []}]}.
const make = (tag, attributes = {}, ...children) => {
  const made = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const sample = (line, length = 24) => // a short piece of a line
  make("svg:svg", { width: length + 2, height: 10, "aria-hidden": "true" }, make("svg:path", { class: `line wide ${line.ceiling ? "ceiling" : `series-${line.colour}`}`, d: `M1 5h${length}`, "stroke-dasharray": line.dash || null }));
const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));

class Chart {
  static TOP = 30;
  static BOTTOM = 44;
  static LEFT = 46;
  static NAME = 15; // pixels of height of a name beside a line's end

  // host: an empty element; said: a live region for what arrow keys read, or null
  constructor(host, said) {
    this.host = host;
    this.said = said;
    this.zoom = null;
    this.at = null; // {x, line}: what is read
    this.only = null; // the name of a line that stands out
    this.svg = make("svg:svg", { role: "img" });
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" });
    host.append(this.svg, this.tip);
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", () => this.cancel());
    this.svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.leave()); // what a finger reads stays
    this.svg.addEventListener("dblclick", () => this.reset());
    host.addEventListener("keydown", (event) => this.key(event));
    host.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => host.clientWidth && host.clientWidth !== this.width && this.draw()).observe(host);
  }

  // model: {lines, label (of the x axis), start (% where the y axis starts), words (what is drawn), score (what y is)}
  show(model, keep = false) {
    this.model = model;
    if (!keep) this.zoom = null;
    this.at = null;
    this.draw();
  }

  // ---- scales

  limits() {
    if (this.zoom) return this.zoom;
    const lines = this.model.lines, all = lines.flatMap((line) => line.y.filter((y) => y !== null));
    const high = all.length ? Math.max(...all) : 100, lowest = all.length ? Math.min(...all) : 0;
    const low = this.model.start && this.model.start < high ? this.model.start : Math.max(0, Math.floor(lowest / 5) * 5);
    const far = Math.max(1, ...lines.map((line) => line.x[line.x.length - 1] || 0));
    return { x0: 0, x1: far, y0: Math.min(low, high - 2), y1: Math.min(100, high + 0.04 * (high - low) + 0.3) };
  }

  px(x) { return Chart.LEFT + ((x - this.box.x0) / (this.box.x1 - this.box.x0)) * this.wide; }
  py(y) { return Chart.TOP + (1 - (y - this.box.y0) / (this.box.y1 - this.box.y0)) * this.tall; }
  dx(px) { return this.box.x0 + ((px - Chart.LEFT) / this.wide) * (this.box.x1 - this.box.x0); }
  dy(py) { return this.box.y0 + (1 - (py - Chart.TOP) / this.tall) * (this.box.y1 - this.box.y0); }

  static ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * (power >= 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 5, 10]).find((factor) => factor * power >= rough * 0.999);
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9; value += step) found.push(+value.toFixed(6));
    return found;
  }

  // ---- drawing

  draw() {
    if (!this.model || !this.host.clientWidth) return;
    this.width = this.host.clientWidth;
    const named = this.model.lines.filter((line) => line.end), beside = this.width >= 640 && named.length > 1 && named.length <= 40;
    this.height = Math.max(this.width < 520 ? 280 : 380, beside ? named.length * Chart.NAME + Chart.TOP + Chart.BOTTOM : 0);
    this.right = beside ? 46 + this.longest(named.map((line) => `▾ 88.8 ${Chart.short(line.name)}`)) : 14;
    this.wide = this.width - Chart.LEFT - this.right;
    this.tall = this.height - Chart.TOP - Chart.BOTTOM;
    this.box = this.limits();
    const svg = this.svg;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    svg.setAttribute("aria-label", this.words());
    this.axes();
    const id = `clip-${(Chart.count = (Chart.count || 0) + 1)}`;
    svg.append(make("svg:clipPath", { id }, make("svg:rect", { x: Chart.LEFT, y: Chart.TOP - 2, width: this.wide + 2, height: this.tall + 4 })));
    const inside = make("svg:g", { "clip-path": `url(#${id})` });
    for (const line of this.model.lines) inside.append(this.path(line));
    this.cursor = make("svg:g", { class: "cursor" });
    this.brush = make("svg:rect", { class: "brush", hidden: "" });
    svg.append(inside, this.brush, this.cursor);
    if (beside) this.names(named);
    this.tip.className = beside ? "tip beside" : "tip below";
    this.tip.style.left = beside ? `${Chart.LEFT + this.wide + 14}px` : "";
    this.at ? this.read(this.at.x, this.at.line, false) : this.rest();
  }

  static short(name) { return name.length > 28 ? `${name.slice(0, 27)}…` : name; }

  longest(texts) { // in pixels, as names are set where they stand out
    const pen = (Chart.pen = Chart.pen || document.createElement("canvas").getContext("2d"));
    pen.font = `700 12px ${getComputedStyle(this.host).fontFamily}`;
    return Math.ceil(Math.max(...texts.map((text) => pen.measureText(text).width)));
  }

  axes() {
    const { x0, x1, y0, y1 } = this.box, foot = Chart.TOP + this.tall;
    const text = (x, y, words, anchor, kind = "") => make("svg:text", { x, y, "text-anchor": anchor, class: kind }, words);
    for (const y of Chart.ticks(y0, y1, this.height < 300 ? 4 : 6)) {
      this.svg.append(make("svg:line", { class: "grid", x1: Chart.LEFT, x2: Chart.LEFT + this.wide, y1: this.py(y), y2: this.py(y) }));
      this.svg.append(text(Chart.LEFT - 7, this.py(y) + 4, String(y), "end"));
    }
    for (const x of Chart.ticks(x0, x1, Math.max(3, Math.min(8, this.wide / 80)))) {
      this.svg.append(make("svg:line", { class: "tick", x1: this.px(x), x2: this.px(x), y1: foot, y2: foot + 4 }));
      this.svg.append(text(this.px(x), foot + 17, String(x), "middle"));
    }
    this.svg.append(make("svg:line", { class: "axis", x1: Chart.LEFT, x2: Chart.LEFT + this.wide, y1: foot, y2: foot }));
    this.svg.append(text(Chart.LEFT + this.wide, foot + 35, this.model.label, "end", "label"));
    const cut = this.model.lines.some((line) => line.y.some((y) => y !== null && y < y0));
    if (cut && !this.zoom) this.svg.append(make("svg:path", { class: "axis cut", d: `M${Chart.LEFT - 5} ${foot - 4}l10 -5m-10 -1l10 -5` }));
    this.svg.append(text(0, 12, `${this.model.score.toLowerCase()}, %${cut ? `, from ${+y0.toFixed(1)}` : ""}`, "start", "label"));
  }

  path(line) {
    let d = "", pen = "M";
    line.x.forEach((x, i) => {
      if (line.y[i] === null) return (pen = "M");
      d += `${pen}${this.px(x).toFixed(1)} ${this.py(line.y[i]).toFixed(1)}`;
      pen = "L";
    });
    const dim = this.only !== null && this.only !== line.name;
    const kind = ["line", line.faint && "faint", line.wide && "wide", dim && "dim", line.ceiling && "ceiling"].filter(Boolean).join(" ");
    return make("svg:path", { d, class: `${kind} ${line.ceiling ? "" : `series-${line.colour}`}`, "stroke-dasharray": line.dash || null, "data-name": line.name });
  }

  // Beside each line's end its value and name, in the order of the ends and apart.
  names(lines) {
    const foot = Chart.TOP + this.tall, ends = lines.map((line) => {
      let i = line.y.length - 1;
      while (i > 0 && (line.y[i] === null || line.x[i] > this.box.x1)) i--;
      const y = line.y[i];
      return { line, y, wanted: y === null || y === undefined ? foot : Math.min(foot, Math.max(Chart.TOP, this.py(y))), x: this.px(line.x[i]) };
    });
    ends.sort((a, b) => a.wanted - b.wanted || (b.y || 0) - (a.y || 0));
    let place = -Infinity;
    for (const end of ends) end.place = place = Math.max(end.wanted, place + Chart.NAME);
    place = foot + Chart.NAME;
    for (const end of ends.reverse()) end.place = place = Math.min(end.place, place - Chart.NAME);
    const right = Chart.LEFT + this.wide, group = make("svg:g", { class: "names" });
    this.svg.append(group);
    for (const { line, y, wanted, place, x } of ends) {
      const dim = this.only !== null && this.only !== line.name ? " dim" : "";
      group.append(
        make("svg:path", { class: `leader${dim}`, d: `M${Math.min(x, right)} ${wanted}L${right + 12} ${place}` }),
        make("svg:path", { class: `line ${line.ceiling ? "ceiling" : `series-${line.colour}`}${dim}`, "stroke-dasharray": line.dash || null, d: `M${right + 14} ${place}h16` }),
        make("svg:text", { class: `name${dim}`, x: right + 35, y: place + 4 }, `${y !== null && this.py(y) > foot + 1 ? "▾ " : ""}${percent(y)} ${Chart.short(line.name)}`),
      );
    }
  }

  words() {
    const last = (line) => [...line.y].reverse().find((y) => y !== null);
    const ends = this.model.lines.filter((line) => line.end).map((line) => `${line.name} ${percent(last(line))} %`);
    return `${this.model.words} over ${this.model.label}. At the end: ${ends.join("; ") || "no method is shown"}.`;
  }

  // ---- mouse, touch, keys

  place(event) {
    const box = this.svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  press(event) {
    if (event.button) return;
    if (event.pointerType !== "mouse") return this.move(event); // a finger reads, and slides along; it does not zoom
    this.from = this.place(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    const [px, py] = this.place(event);
    if (this.from && Math.abs(px - this.from[0]) > 6) {
      const [x, y, width, height] = this.dragged(px, py);
      for (const [name, value] of Object.entries({ x, y, width, height })) this.brush.setAttribute(name, value);
      this.brush.removeAttribute("hidden");
    }
    const line = this.near(px, py);
    if (line) this.read(this.dx(px), line, false);
  }

  // The rectangle of a drag; a flat one goes over the whole height.
  dragged(px, py) {
    const inside = (v, low, size) => Math.min(low + size, Math.max(low, v));
    const xs = [px, this.from[0]].map((v) => inside(v, Chart.LEFT, this.wide)).sort((a, b) => a - b);
    const ys = [py, this.from[1]].map((v) => inside(v, Chart.TOP, this.tall)).sort((a, b) => a - b);
    const flat = ys[1] - ys[0] < 24;
    return [xs[0], flat ? Chart.TOP : ys[0], xs[1] - xs[0], flat ? this.tall : ys[1] - ys[0]];
  }

  release(event) {
    if (!this.from) return;
    const [px, py] = this.place(event), [x, y, width, height] = this.dragged(px, py);
    const drag = Math.abs(px - this.from[0]) > 6;
    this.cancel();
    if (drag && width > 6) this.to({ x0: this.dx(x), x1: this.dx(x + width), y0: this.dy(y + height), y1: this.dy(y) });
  }

  cancel() {
    this.from = null;
    this.brush && this.brush.setAttribute("hidden", "");
  }

  to(box) {
    const whole = ((now) => ((this.zoom = null), (now = this.limits())))();
    this.zoom = box && { x0: Math.max(whole.x0, box.x0), x1: Math.min(whole.x1, box.x1), y0: Math.max(0, box.y0), y1: Math.min(100, box.y1) };
    this.draw();
    this.host.dispatchEvent(new CustomEvent("zoom", { detail: Boolean(this.zoom) }));
  }

  reset() { this.to(null); }

  scale(factor) {
    const { x0, x1, y0, y1 } = this.box, line = this.at && this.at.line;
    const i = line ? Chart.index(line, this.at.x) : -1;
    const cx = i < 0 ? (x0 + x1) / 2 : line.x[i], cy = i < 0 ? (y0 + y1) / 2 : line.y[i];
    this.to({ x0: cx + (x0 - cx) * factor, x1: cx + (x1 - cx) * factor, y0: cy + (y0 - cy) * factor, y1: cy + (y1 - cy) * factor });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const lines = this.model.lines.filter((line) => !line.faint && line.y.some((y) => y !== null));
    if (!lines.length) return;
    const now = this.at && lines.includes(this.at.line) ? this.at : { x: this.box.x1, line: lines[0] };
    const i = Chart.index(now.line, now.x), sorted = [...lines].sort((a, b) => this.value(b, now.x) - this.value(a, now.x));
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined) {
      let j = Math.max(0, Math.min(now.line.x.length - 1, this.at ? i + step : i));
      while (j > 0 && now.line.y[j] === null) j--;
      this.read(now.line.x[j], now.line, true);
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const to = sorted.indexOf(now.line) + (this.at ? (event.key === "ArrowUp" ? -1 : 1) : 0);
      this.read(now.x, sorted[Math.max(0, Math.min(sorted.length - 1, to))], true);
    } else if (event.key === "+" || event.key === "=") this.scale(0.6);
    else if (event.key === "-") this.scale(1 / 0.6);
    else if (event.key === "0") this.reset();
    else return;
    event.preventDefault();
  }

  value(line, x) {
    const i = Chart.index(line, x);
    return i < 0 ? -1 : line.y[i];
  }
}
