// Tables whose heads sort their rows. The number of a cell is its data-value, or the first in its text.
const makeSortable = (table, texts) => {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const toNumber = (text) => parseFloat(text.replace("−", "-").replace(/\u202f/g, ""));
  const valueOf = (cell, text) => (cell.dataset.value === undefined ? text : cell.dataset.value === "" ? NaN : +cell.dataset.value);
  const values = rows.map((row, r) => [...row.cells].map((cell, c) => valueOf(cell, texts ? texts[r][c] : c ? toNumber(cell.textContent) : cell.textContent)));
  let by = -1, down = false;
  const sort = (c) => {
    const number = values.some((row) => typeof row[c] === "number");
    down = by === c ? !down : number; // numbers: the highest first
    by = c;
    const order = rows.map((_, r) => r).sort((a, b) => {
      const [left, right] = [values[a][c], values[b][c]];
      if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right) || a - b;
      const way = number ? left - right : left.localeCompare(right, "en", { numeric: true });
      return (down ? -way : way) || a - b;
    });
    body.append(...order.map((r) => rows[r]));
    heads.forEach((head, i) => (i === c ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
  };
  heads.forEach((head, c) => {
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(c));
  });
};

// The table of runs: sort by a column, filter by words and by column, move with the arrow keys; and what a run opens to.
const runTable = (data) => {
  const table = document.getElementById("runs-table"), body = table.tBodies[0], rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells], bar = document.getElementById("runs-bar"), count = document.getElementById("runs-count");
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  const words = texts.map((cells) => cells.join(" ").toLowerCase());
  const search = make("input", { type: "search", id: "runs-search" });
  const picks = [];

  makeSortable(table, texts);
  bar.append(make("label", {}, "Search", search));
  heads.forEach((head, c) => {
    const found = [...new Set(texts.map((cells) => cells[c]))];
    if (head.dataset.pick === undefined || found.length < 2) return;
    const select = make("select", {}, make("option", { value: "" }, "all"), ...found.map((text) => make("option", {}, text)));
    select.addEventListener("change", filter);
    picks.push([c, select]);
    bar.append(make("label", {}, head.textContent.trim(), select));
  });
  const clear = make("button", { type: "button" }, "Clear");
  clear.addEventListener("click", () => {
    search.value = "";
    for (const [, select] of picks) select.value = "";
    filter();
    search.focus();
  });
  bar.append(clear);
  search.addEventListener("input", filter);

  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, r) => {
      const fits = wanted.every((word) => words[r].includes(word)) && picks.every(([c, select]) => !select.value || texts[r][c] === select.value);
      row.hidden = !fits;
      shown += fits;
    });
    count.textContent = shown === rows.length ? `${shown} runs` : `${shown} of ${rows.length} runs`;
    clear.disabled = !search.value && picks.every(([, select]) => !select.value);
  }

  const links = () => [...body.querySelectorAll("tr:not([hidden]) a")];
  body.addEventListener("keydown", (event) => {
    const all = links(), now = all.indexOf(document.activeElement);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: all.length - 1 }[event.key];
    if (now < 0 || to === undefined || !all[to]) return;
    event.preventDefault();
    all[to].focus();
  });
  body.addEventListener("click", (event) => {
    if (!event.target.closest("a") && !String(getSelection())) event.target.closest("tr").querySelector("a").click();
  });
  filter();
  return () => links().map((link) => link.hash); // those shown, in their order
};

const runView = (data) => {
  const { smooth, axis } = lines(data);
  const facts = (rows, kind = "facts") => make("dl", { class: kind }, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const section = (title, ...inside) => make("section", {}, make("h3", {}, title), ...inside);

  function curve(run) {
    const method = data.methods[run.m], host = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": "Curve of this run: arrow keys read values" });
    const said = make("p", { class: "unseen", "aria-live": "polite" });
    const one = (other, extra, on) => ({ name: method.name, seed: other.seed, colour: method.colour, x: axis(other, "round"), round: data.xs[other.x].round, y: smooth(other, on), ...extra });
    const others = data.runs.filter((other) => other !== run && other.s === run.s && other.m === run.m);
    const model = {
      lines: [...others.map((other) => one(other, { faint: true }, true)), one(run, { name: "each evaluation", faint: true, dash: "2 3" }, false), one(run, { end: true, wide: true }, true)],
      label: "round",
      score: data.settings[run.s].score,
      words: `${data.settings[run.s].score} of this run, mean of the last ${data.last} evaluations`,
    };
    const chart = new Chart(host, said);
    chart.show(model);
    const more = others.length ? `, and the method’s other seeds (pale)` : "";
    return section("Curve", host, said, make("p", { class: "caption" }, `The mean of the last ${data.last} evaluations, each evaluation by itself (dotted)${more}.`, make("span", { class: "for-mouse" }, " Drag to zoom, double-click to go back.")));
  }

  function confusion(run) {
    if (!run.confusion) return make("p", {}, data.whys[run.no_confusion]);
    const { known } = data.settings[run.s], names = data.names[run.names], sums = run.confusion.map((row) => row.reduce((a, b) => a + b, 0));
    const body = make("tbody", {}, ...run.confusion.map((row, i) =>
      make("tr", {}, make("th", { scope: "row" }, names[i]), ...row.map((count, j) => {
        const cell = make("td", { class: i === j ? "right" : count ? "wrong" : "none", title: `${names[i]} taken for ${names[j]}: ${count} of ${sums[i]}` }, String(count));
        cell.style.setProperty("--share", `${sums[i] ? Math.round((45 * count) / sums[i]) : 0}%`);
        return cell;
      })),
    ));
    const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, known ? "true" : "given"), ...names.map((name) => make("th", { scope: "col" }, name))));
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Confusion matrix" }, make("table", { class: "matrix" }, head, body));
    return make("div", {}, scroll, make("p", { class: "caption" }, `${known ? "Test images of each true class" : "Held-out images of each given label"} (rows) by the class that they are taken for (columns)${run.personal ? ", summed over the personal models, each of which predicts all of them" : ""}.`));
  }

  // Each client's estimated share of wrong labels with its interval over the true share; on the diagonal it is right.
  function clients(run) {
    if (!run.clients) return [make("p", {}, data.whys[run.no_clients])];
    const truth = data.noise[`${run.s}/${run.seed}`] || [], known = run.clients.some(([client]) => typeof truth[client] === "number");
    const size = 330, edge = 40, head = 24, svg = make("svg:svg", { role: "img", viewBox: `0 0 ${size + 12} ${size}`, class: "clients" });
    const most = Math.max(0.1, ...run.clients.map((row) => row[4]), ...truth.filter((rate) => rate !== null)), top = Math.min(1, Math.ceil(most * 10) / 10);
    const x = (share) => edge + (share / top) * (size - edge - 8), y = (share) => size - edge - (share / top) * (size - edge - head);
    for (const share of Chart.ticks(0, top, 5)) {
      svg.append(make("svg:line", { class: "grid", x1: edge, x2: size - 8, y1: y(share), y2: y(share) }));
      svg.append(make("svg:text", { x: edge - 6, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}`), make("svg:text", { x: x(share), y: size - edge + 16, "text-anchor": "middle" }, `${Math.round(100 * share)}`));
    }
    svg.append(make("svg:line", { class: "equal", x1: x(0), y1: y(0), x2: x(top), y2: y(top) }));
    svg.append(make("svg:text", { class: "label", x: size - 8, y: size - 6, "text-anchor": "end" }, "truly wrong labels, %"), make("svg:text", { class: "label", x: 0, y: 12 }, "estimated wrong labels, %"));
    const show = (share) => (typeof share === "number" ? `${(100 * share).toFixed(1)} %` : "unknown");
    for (const [client, samples, share, low, high, verdictWrong] of run.clients) {
      if (typeof truth[client] !== "number") continue;
      const cx = x(truth[client]), words = `Client ${client}: ${show(truth[client])} of ${samples} labels are wrong; estimated ${show(share)} (${show(low)} to ${show(high)}), ${verdictWrong} with the verdict wrong`;
      svg.append(make("svg:g", {}, make("svg:title", {}, words), make("svg:line", { class: "range", x1: cx, x2: cx, y1: y(low), y2: y(high) }), make("svg:circle", { class: "client", cx, cy: y(share), r: 4 })));
    }
    svg.setAttribute("aria-label", "Clients: the share of labels that the method holds for wrong, with its 90 % interval, over the share that is wrong. The table has the numbers.");
    const rows = run.clients.map(([client, samples, share, low, high, verdictWrong]) =>
      make("tr", {}, make("th", { scope: "row" }, String(client)), ...[samples, ...(known ? [show(truth[client])] : []), show(share), `${show(low)} to ${show(high)}`, verdictWrong].map((text) => make("td", {}, String(text)))));
    const heads = ["client", "labels", ...(known ? ["wrong"] : []), "estimated wrong", "90 % interval", "verdict wrong"];
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows));
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Clients" }, table);
    if (!known) return [make("p", { class: "caption" }, "Nobody knows which labels are wrong; this is what the method estimates."), scroll];
    return [svg, make("p", { class: "caption" }, "A client each: the estimated share of wrong labels with its 90 % interval, over the true share. On the dashed line the estimate is right."), make("details", {}, make("summary", {}, "The same as a table"), scroll)];
  }

  function command(run) {
    const code = make("code", { id: "command" }, run.command), button = make("button", { type: "button" }, "Copy"), said = make("span", { "aria-live": "polite", class: "said" });
    button.addEventListener("click", () => copy(run.command, code, said));
    return section("Make it again", make("p", { class: "command" }, code, button, said));
  }

  return (place) => {
    const run = data.runs[place], setting = data.settings[run.s];
    const files = make("ul", { class: "files" }, ...run.files.map(([name, size]) => make("li", {}, make("code", {}, name), ` ${size}`)));
    return {
      kicker: `Run · ${setting.whole}`,
      title: `${data.methods[run.m].name}, seed ${run.seed}`,
      content: () => [
        make("dl", { class: "tiles" }, ...run.scores.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
        facts(run.facts, "facts two"),
        curve(run),
        make("div", { class: "pair" }, section("Confusion matrix, last round", confusion(run)), section(run.clients && !data.noise[`${run.s}/${run.seed}`].length ? "Clients: suspects" : "Clients: noise against suspects", ...clients(run))),
        section("Settings", ...run.parts.map(([title, part]) => make("details", title === "Method" ? { open: "" } : {}, make("summary", {}, title), facts(data.parts[part])))),
        section("Files", make("p", {}, make("code", {}, run.folder)), files),
        command(run),
      ],
    };
  };
};
