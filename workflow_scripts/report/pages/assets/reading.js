// How a chart is read: the values of all lines at one place, beside the plot instead of the names, or in the list below.
Object.assign(Chart, {
  index(line, x) { // of the evaluation nearest to x that has a value
    let best = -1, least = Infinity;
    line.x.forEach((value, i) => {
      if (line.y[i] !== null && Math.abs(value - x) < least) [least, best] = [Math.abs(value - x), i];
    });
    return best;
  },
  seeds(line, i) { return (line.seeds || []).map((one) => `seed ${one.seed}: ${percent(one.y[i])}`).join(" · "); },
  named(line) { return line.name + (line.seed === undefined ? "" : `, seed ${line.seed}`); },
});

Object.assign(Chart.prototype, {
  near(px, py) {
    let best = null, least = Infinity;
    for (const line of this.model.lines) {
      const i = Chart.index(line, this.dx(px));
      if (i < 0) continue;
      const away = Math.abs(this.py(line.y[i]) - py) + Math.abs(this.px(line.x[i]) - px) / 4 + (line.faint ? 2 : 0);
      if (away < least) [least, best] = [away, line];
    }
    return best;
  },

  // What each line but single seeds has at x, the highest first: {line, y, i, till: the round that it ended at before x}.
  values(x, near) {
    const found = [];
    for (const line of this.model.lines) {
      const i = Chart.index(line, x);
      if (i < 0 || (line.faint && line !== near)) continue;
      const ended = line.x[i] < x && !line.y.slice(i + 1).some((y) => y !== null), far = Math.abs(line.x[i] - x) > 0.02 * (this.box.x1 - this.box.x0) + 1;
      if (!far || ended) found.push({ line, y: line.y[i], i, till: far && ended ? line.round[i] : null });
    }
    return found.sort((a, b) => b.y - a.y);
  },

  list(head, rows, near) {
    const row = ({ line, y, i, till }) => {
      const seeds = line === near ? Chart.seeds(line, i) : "", more = [till === null ? "" : `till round ${till}`, seeds].filter(Boolean).join(" · ");
      return make("div", { class: line === near ? "row near" : "row" }, sample(line, 22), make("b", {}, percent(y)), make("span", {}, Chart.named(line)), ...(more ? [make("small", {}, more)] : []));
    };
    this.tip.replaceChildren(make("strong", {}, head), ...rows.map(row));
  },

  read(x, line, aloud) {
    const i = Chart.index(line, x);
    if (i < 0) return this.rest();
    this.at = { x, line };
    const cx = this.px(line.x[i]), rows = this.values(line.x[i], line);
    this.cursor.replaceChildren(make("svg:line", { class: "reading", x1: cx, x2: cx, y1: Chart.TOP, y2: Chart.TOP + this.tall }));
    for (const { line: other, y, i: at } of rows) {
      const cy = this.py(y);
      if (cy <= Chart.TOP + this.tall + 1 && cy >= Chart.TOP - 1) this.cursor.append(make("svg:circle", { class: other.ceiling ? "ceiling" : `dot-${other.colour}`, cx: this.px(other.x[at]), cy, r: other === line ? 5 : 3 }));
    }
    const where = `Round ${line.round[i]}${Math.abs(line.x[i] - line.round[i]) > 0.05 ? `, work ${line.x[i].toFixed(1)}` : ""}`, more = Chart.seeds(line, i);
    this.list(where, rows, line);
    this.tip.hidden = false;
    this.host.classList.add("read");
    if (aloud && this.said) this.said.textContent = `${where}: ${Chart.named(line)} ${percent(line.y[i])} %${more ? ` (${more})` : ""}`;
  },

  // Nothing is read: names and last values beside the lines, or in the list below.
  rest() {
    this.host.classList.remove("read");
    this.tip.hidden = this.tip.classList.contains("beside");
    if (!this.tip.hidden) this.list(this.zoom ? "At the right edge" : "At the end", this.values(this.box.x1, null), null);
  },

  leave() {
    if (this.from) return;
    this.at = null;
    this.cursor && this.cursor.replaceChildren();
    this.box && this.rest();
  },
});
