// The section "Curves": a setting's methods as lines, each a button to hide and show; seeds, smoothing, zoom.
const lines = (data) => {
  const smooth = (run, on) => (on ? run.t : run.v).map((value) => (value === null ? null : value / 100));
  const axis = (run, by) => (by === "work" ? data.xs[run.x].work : data.xs[run.x].round);

  // One line of several runs: their mean at each evaluation that all have; it ends where one has no value.
  function mean(runs, by, on) {
    const first = runs[0], ys = runs.map((run) => smooth(run, on));
    const at = runs.map((run) => new Map(data.xs[run.x].round.map((round, i) => [round, i])));
    const x = axis(first, by), round = data.xs[first.x].round;
    const seeds = runs.map((run, r) => ({ seed: run.seed, y: round.map((n) => ys[r][at[r].get(n)] ?? null) }));
    const y = round.map((_, i) => {
      const values = seeds.map((one) => one.y[i]);
      return values.includes(null) ? null : values.reduce((a, b) => a + b, 0) / values.length;
    });
    return { x, round, y, seeds };
  }
  return { smooth, axis, mean };
};

const curves = (data) => {
  const at = (id) => document.getElementById(id);
  const { smooth, axis, mean } = lines(data);
  const noisy = data.settings.map((_, place) => place).filter((place) => !data.settings[place].clean);
  const places = noisy.length ? noisy : data.settings.map((_, place) => place);
  const off = new Set(); // names of methods that are hidden, in every setting
  const chart = new Chart(at("plot"), at("plot-said"));
  const setting = at("plot-setting"), by = at("plot-x"), seeds = at("plot-seeds"), smoothed = at("plot-smooth"), back = at("plot-reset");

  for (const place of places) setting.append(make("option", { value: place }, data.settings[place].title));
  setting.closest("label").hidden = places.length < 2;
  seeds.closest("label").hidden = new Set(data.runs.map((run) => run.seed)).size < 2;
  if (data.runs.every((run) => data.xs[run.x].round.every((round, i) => Math.abs(round - data.xs[run.x].work[i]) < 0.05))) by.closest("label").hidden = true;

  const grouped = (place) => {
    const found = new Map();
    for (const run of data.runs) if (run.s === place) found.set(run.m, [...(found.get(run.m) || []), run]);
    return found;
  };

  function model() {
    const place = +setting.value, found = [], on = smoothed.checked;
    for (const [m, runs] of grouped(place)) {
      const method = data.methods[m];
      if (off.has(m)) continue;
      const line = { name: method.name, colour: method.colour, dash: method.dash };
      if (seeds.checked && runs.length > 1)
        for (const run of runs) found.push({ ...line, dash: "", seed: run.seed, faint: true, x: axis(run, by.value), round: data.xs[run.x].round, y: smooth(run, on) });
      found.push({ ...line, end: true, wide: true, ...mean(runs, by.value, on) });
    }
    for (const other of data.settings[place].ceiling)
      for (const [m, runs] of grouped(other))
        if (!off.has(`ceiling ${m}`)) found.push({ name: `${data.methods[m].name}, no noise`, ceiling: true, end: true, dash: "2 4", ...mean(runs, by.value, on) });
    const { score } = data.settings[place], what = on ? `${score}, mean of the last ${data.last} evaluations` : `${score} of each evaluation`;
    return { lines: found, score, label: by.value === "work" ? "work (rounds of FedAvg)" : "round", start: data.settings[place].start, words: `${data.settings[place].whole}: ${what}` };
  }

  function button(key, name, line) { // line: {colour, dash, ceiling}
    const made = make("button", { type: "button", class: "key", "aria-pressed": String(!off.has(key)) }, sample(line), name);
    made.addEventListener("click", () => {
      off.has(key) ? off.delete(key) : off.add(key);
      made.setAttribute("aria-pressed", String(!off.has(key)));
      chart.only = off.has(key) ? null : name; // a hidden line cannot stand out
      draw(true);
    });
    const stand = (only) => () => {
      if (chart.only === only) return;
      chart.only = only;
      chart.draw();
    };
    made.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && !off.has(key) && stand(name)());
    made.addEventListener("pointerleave", stand(null));
    made.addEventListener("focus", () => made.matches(":focus-visible") && !off.has(key) && stand(name)());
    made.addEventListener("blur", stand(null));
    return made;
  }

  function keys(focus) { // focus: the place among "all" and "none" of the one to focus when they are made anew
    const place = +setting.value, row = at("plot-keys");
    const methods = [...grouped(place).keys()];
    row.replaceChildren(...methods.map((m) => button(m, data.methods[m].name, data.methods[m])));
    for (const other of data.settings[place].ceiling)
      for (const m of grouped(other).keys()) row.append(button(`ceiling ${m}`, `${data.methods[m].name}, no noise`, { ceiling: true, dash: "2 4" }));
    const all = make("button", { type: "button", class: "link" }, "all"), none = make("button", { type: "button", class: "link" }, "none");
    all.addEventListener("click", () => (off.clear(), keys(0), draw(true)));
    none.addEventListener("click", () => (methods.forEach((m) => off.add(m)), keys(1), draw(true)));
    if (methods.length > 2) row.append(all, none);
    if (focus !== undefined) [all, none][focus].focus();
  }

  const draw = (keep) => chart.show(model(), keep);
  setting.addEventListener("change", () => (keys(), draw()));
  by.addEventListener("change", () => draw());
  for (const box of [seeds, smoothed]) box.addEventListener("change", () => draw(true));
  at("plot").addEventListener("zoom", (event) => (back.disabled = !event.detail));
  back.addEventListener("click", () => (chart.reset(), at("plot").focus()));
  keys();
  draw();
  return (place) => { // show a setting, from elsewhere on the page
    if (!places.includes(place)) return;
    setting.value = place;
    keys();
    draw();
  };
};
