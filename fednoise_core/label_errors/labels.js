// The list of suspects: filters, decisions by mouse and keyboard, undo, decisions.csv. Only rows in view are in the page.
(() => {
  const at = (id) => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  const [SAMPLE, SOURCE, SITE, GIVEN, PROPOSED, WRONG, RIGHT, VERDICT, DRAWN, KIND] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const WORDS = { keep: "Keep", relabel: "Relabel", drop: "Drop" };
  const DONE = { keep: "kept", relabel: "relabelled", drop: "dropped" };
  const STORE = "fednoise-labels:" + data.key;
  const list = at("list"), body = at("rows"), said = at("said");
  const first = new Map(); // sample -> its first row: what another site holds, too, is decided once
  data.rows.forEach((row) => first.has(row[SAMPLE]) || first.set(row[SAMPLE], row));

  // sample -> {choice, label}; from a loaded file also source -> {choice, label, cells}, of samples that are not here
  const decided = new Map();
  const suspects = data.rows.slice(0, data.listed);
  const random = data.sites.map((_, site) => data.rows.filter((row) => row[SITE] === site && row[DRAWN]));
  const past = []; // of changes: [[sample, what was decided before or undefined], ...]
  let shown = []; // indices of data.rows that the filters let through
  let offered = 0; // rows of the list that is chosen
  let current = 0; // position in `shown`
  let unsaved = false, stored = true;

  // ---- decisions

  const name = (label) => data.classes[label];
  const percent = (p) => (p >= 0.995 ? "over 99" : p < 0.005 ? "under 1" : Math.round(100 * p)) + " %";

  function change(changes, words) {
    past.push(changes.map(([sample]) => [sample, decided.get(sample)]));
    for (const [sample, to] of changes) to ? decided.set(sample, to) : decided.delete(sample);
    after(words);
  }

  function undo() {
    const changes = past.pop();
    if (!changes) return;
    for (const [sample, before] of changes) before ? decided.set(sample, before) : decided.delete(sample);
    const place = changes.length === 1 ? shown.findIndex((i) => data.rows[i][SAMPLE] === changes[0][0]) : -1;
    if (place >= 0) move(place);
    after(changes.length === 1 ? "Undone." : `Undone: ${changes.length.toLocaleString("en")} decisions.`);
  }

  function after(words) {
    unsaved = true;
    said.textContent = words;
    store();
    draw();
  }

  function decide(position, choice, label) {
    const row = data.rows[shown[position]];
    if (!row) return false;
    const before = decided.get(row[SAMPLE]);
    if (label === undefined) label = choice === "relabel" ? target(row) : row[GIVEN];
    const again = before && !before.unseen && before.choice === choice && before.label === label;
    const to = again ? undefined : { choice, label };
    const what = again ? "undecided again" : DONE[choice] + (choice === "relabel" ? ` as ${name(label)}` : "");
    change([[row[SAMPLE], to]], `${row[SOURCE]}: ${what}.`);
    return !again;
  }

  const wished = new Map(); // sample -> label chosen in its row but not decided on
  const target = (row) => (decided.get(row[SAMPLE])?.choice === "relabel" ? decided.get(row[SAMPLE]).label
    : wished.get(row[SAMPLE]) ?? row[PROPOSED]);

  // what may be decided unseen: the rule of fednoise_core.label_errors.decisions
  function acceptable() {
    const seen = new Set();
    if (at("view").value) return []; // a random sample is to be looked at
    return shown.map((i) => data.rows[i]).filter((row) => {
      const wrong = data.verdicts[row[VERDICT]] === "wrong" && !data.classless.includes(row[KIND]);
      const open = wrong && !decided.has(row[SAMPLE]) && !seen.has(row[SAMPLE]);
      seen.add(row[SAMPLE]);
      return open;
    });
  }

  function decideAll(choice) {
    const rows = acceptable(), label = (row) => (choice === "relabel" ? target(row) : row[GIVEN]);
    change(rows.map((row) => [row[SAMPLE], { choice, label: label(row), unseen: true }]),
      `${rows.length.toLocaleString("en")} ${DONE[choice]}${choice === "relabel" ? " as proposed" : ""}.`);
  }

  function store() {
    try {
      localStorage.setItem(STORE, JSON.stringify([...decided]));
    } catch {
      stored = false;
    }
  }

  function restore() {
    try {
      for (const [sample, one] of JSON.parse(localStorage.getItem(STORE) ?? "[]")) {
        const here = first.has(sample), fits = Object.hasOwn(WORDS, one.choice) && Object.hasOwn(data.classes, one.label);
        const line = Array.isArray(one.cells) && one.cells.length === data.columns.length;
        if (fits && here) decided.set(sample, { choice: one.choice, label: one.label, unseen: one.unseen });
        else if (fits && line) decided.set(sample, one);
      }
    } catch {
      stored = false;
    }
    if (decided.size) said.textContent = `${decided.size.toLocaleString("en")} earlier decisions are here again.`;
    if (!stored) said.textContent = "This browser keeps nothing for this page: save decisions.csv before you close it.";
  }

  // ---- decisions.csv

  function table() {
    const place = ([key, one]) => (one.cells ? Number(one.cells[0]) : key);
    const lines = [...decided].sort((a, b) => place(a) - place(b)).map(([sample, one]) => {
      if (one.cells) return one.cells;
      const row = first.get(sample), [client, site] = data.sites[row[SITE]];
      const label = one.choice === "relabel" ? one.label : row[GIVEN];
      return [sample, row[SOURCE], client, site, row[GIVEN], name(row[GIVEN]), one.choice, label, name(label), data.data];
    });
    return csv.write([data.columns, ...lines]);
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    unsaved = false;
    said.textContent = `decisions.csv: ${decided.size.toLocaleString("en")} decisions.`;
  }

  // An earlier decisions.csv: its decisions replace those about the same samples, as one step, or nothing is changed.
  async function load(file) {
    let changes;
    try {
      changes = earlier(csv.read(await file.text(), data.columns));
    } catch (error) {
      said.textContent = `Nothing was loaded. ${file.name}: ${error.message}`;
      return;
    }
    const elsewhere = changes.filter(([, one]) => one.cells).length, number = (n) => n.toLocaleString("en");
    const words = `${file.name}: ${number(changes.length)} decisions are here again`;
    change(changes, words + (elsewhere ? `, ${number(elsewhere)} of them about samples that this page does not show.` : "."));
  }

  function earlier(lines) {
    const bySource = new Map([...first].map(([sample, row]) => [row[SOURCE], [sample, row]])), seen = new Set();
    return lines.map(([line, cells]) => {
      const [sample, row] = bySource.get(cells.source) ?? [], given = Number(cells.given), label = Number(cells.label);
      const refuse = (unless, words) => {
        if (!unless) throw new Error(`line ${line}: ${words}`);
      };
      refuse(!cells.data || !data.data || cells.data === data.data, "it was decided about other data than this page shows");
      refuse(!seen.has(cells.source), `${cells.source} was decided before`);
      seen.add(cells.source);
      refuse(Object.hasOwn(WORDS, cells.decision), `the decision ${cells.decision} is not known`);
      refuse(/^\d+$/.test(cells.sample), `the sample ${cells.sample} is no number`);
      for (const [number, text] of [["given", "given_name"], ["label", "label_name"]])
        refuse(/^\d+$/.test(cells[number]) && name(Number(cells[number])) === cells[text],
          `${number} ${cells[number]} ${cells[text]} is no class here`);
      refuse(!row || row[GIVEN] === given, `${cells.source} is given as ${row && name(row[GIVEN])} here, not as ${cells.given_name}`);
      const one = { choice: cells.decision, label };
      return row ? [sample, one] : [cells.source, { ...one, cells: data.columns.map((column) => cells[column]) }];
    });
  }

  // ---- filters

  function options(select, all, texts) {
    select.append(new Option(all, ""), ...texts.map(([value, text]) => new Option(text, value)));
  }

  function counted(column, text) {
    const counts = new Map();
    for (const row of suspects) counts.set(row[column], (counts.get(row[column]) ?? 0) + 1);
    return [...counts.keys()].sort((a, b) => a - b).map((key) => [key, `${text(key)} (${counts.get(key)})`]);
  }

  function filter(keep) {
    const value = (id) => at(id).value, state = value("state");
    const wanted = [["site", SITE], ["given", GIVEN], ["proposed", PROPOSED], ["verdict", VERDICT], ["kind", KIND]]
      .filter(([id]) => value(id) !== "").map(([id, column]) => [column, Number(value(id))]);
    const held = keep ? undefined : shown[current], byDraw = value("view") === "random";
    [shown, offered] = [[], 0];
    data.rows.forEach((row, i) => {
      if (byDraw ? !row[DRAWN] : i >= data.listed) return;
      offered++;
      const choice = decided.get(row[SAMPLE])?.choice;
      if (wanted.every(([column, number]) => row[column] === number)
        && (state === "" || (state === "open" ? !choice : state === "done" ? choice : choice === state))) shown.push(i);
    });
    const order = (i) => data.rows[i][SITE] * 1000 + data.rows[i][DRAWN];
    if (byDraw) shown.sort((a, b) => order(a) - order(b));
    body.replaceChildren();
    drawn.clear();
    const place = held === undefined ? -1 : shown.indexOf(held);
    current = Math.max(place, 0);
    body.style.height = `${shown.length * height()}px`;
    list.setAttribute("aria-rowcount", shown.length);
    list.scrollTop = place > 0 ? place * height() : 0;
    draw();
  }

  // ---- the list

  const drawn = new Map(); // position in `shown` -> element
  const sheets = [];
  let rowHeight = 0;

  function height() {
    rowHeight ||= parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
    return rowHeight;
  }

  function sheet(number) {
    if (!sheets[number]) {
      const bytes = Uint8Array.from(atob(at("sheet" + number).textContent), (letter) => letter.charCodeAt(0));
      sheets[number] = URL.createObjectURL(new Blob([bytes], { type: data.type }));
    }
    return sheets[number];
  }

  function paint(element, i, size) {
    const within = i % data.per, x = within % data.across, y = Math.floor(within / data.across);
    element.style.backgroundImage = `url("${sheet(Math.floor(i / data.per))}")`;
    element.style.backgroundSize = `${data.across * size}px auto`;
    element.style.backgroundPosition = `-${x * size}px -${y * size}px`;
    element.classList.toggle("sharp", data.side < size / 1.5);
  }

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function build(position) {
    const i = shown[position], row = data.rows[i], element = make("div", "row");
    element.id = "row" + position;
    element.setAttribute("role", "row");
    element.setAttribute("aria-rowindex", position + 1);
    element.style.top = `${position * height()}px`;
    element.dataset.position = position;
    const thumb = make("div", "thumb"), words = make("div", "words"), choices = make("div", "choices");
    for (const part of [thumb, words, choices]) part.setAttribute("role", "gridcell");
    paint(thumb, i, 72);
    const labels = make("div", "labels"), sure = make("div", "sure"), verdict = data.verdicts[row[VERDICT]];
    const where = make("div", "where", `${data.sites[row[SITE]][1]} · ${row[SOURCE]}`);
    sure.append(make("span", verdict, verdict), `, ${percent(row[WRONG])}`, row[KIND] ? ` · ${data.kinds[row[KIND] - 1]}` : "");
    words.append(labels, sure, where);
    words.title = `${name(row[GIVEN])} → ${name(row[PROPOSED])}\n${where.textContent}`;
    for (const [choice, word] of Object.entries(WORDS)) {
      const button = make("button", "", word);
      button.type = "button";
      button.tabIndex = -1;
      button.dataset.do = choice;
      choices.append(button);
    }
    const select = make("select");
    select.tabIndex = -1;
    select.setAttribute("aria-label", `Relabel ${row[SOURCE]} as`);
    select.append(...data.classes.map((text, label) => new Option(text, label)));
    select.options[row[GIVEN]].disabled = true;
    choices.append(select);
    element.append(thumb, words, choices);
    return element;
  }

  function refresh(element, position) {
    const row = data.rows[shown[position]], one = decided.get(row[SAMPLE]), to = target(row);
    element.setAttribute("aria-selected", position === current);
    element.dataset.choice = one?.choice ?? "";
    element.querySelector(".labels").textContent = `${name(row[GIVEN])} → ${name(to)}`;
    element.querySelector("select").value = to;
    for (const button of element.querySelectorAll("button"))
      button.setAttribute("aria-pressed", one?.choice === button.dataset.do);
  }

  function draw() {
    const from = Math.max(Math.floor(list.scrollTop / height()) - 4, 0);
    const to = Math.min(Math.ceil((list.scrollTop + list.clientHeight) / height()) + 4, shown.length);
    for (const [position, element] of drawn)
      if ((position < from || position >= to) && !element.contains(document.activeElement)) {
        element.remove();
        drawn.delete(position);
      }
    for (let position = from; position < to; position++) {
      if (!drawn.has(position)) {
        drawn.set(position, build(position));
        const next = [...drawn.keys()].filter((one) => one > position).sort((a, b) => a - b)[0];
        body.insertBefore(drawn.get(position), next === undefined ? null : drawn.get(next));
      }
    }
    for (const [position, element] of drawn) refresh(element, position);
    status();
  }

  // The share of wrong labels in a site's random sample, once all of it is decided: before, the decided are no random part.
  // What was relabelled with all others, unseen, is the models' word.
  function rate(site) {
    const choices = random[site].map((row) => decided.get(row[SAMPLE])).map((one) => (one?.unseen ? undefined : one?.choice)), n = choices.length;
    const open = choices.filter((choice) => !choice).length;
    const wrong = choices.filter((choice) => choice === "relabel" || choice === "drop").length;
    const whole = (share) => Math.round(100 * share), [low, high] = interval(wrong, n);
    at("rate" + site).textContent = open === n ? "" : open ? `${n - open} of ${n} decided`
      : `${wrong} of ${n} wrong: ${whole(wrong / n)} %, ${whole(low)} to ${whole(high)} %`;
  }

  // 90 % interval of a share of which k of n were seen (Clopper and Pearson, 1934)
  function interval(k, n) {
    const atMost = (most, p) => {
      let sum = 0, term = (1 - p) ** n;
      for (let i = 0; i <= most; i++) {
        sum += term;
        term *= (n - i) / (i + 1) * p / (1 - p);
      }
      return sum;
    };
    const solve = (most, chance) => {
      let [low, high] = [0, 1];
      for (let step = 0; step < 40; step++) {
        const middle = (low + high) / 2;
        if (atMost(most, middle) > chance) low = middle;
        else high = middle;
      }
      return low;
    };
    return [k ? solve(k - 1, 0.95) : 0, k < n ? solve(k, 0.05) : 1];
  }

  function status() {
    const counts = { keep: 0, relabel: 0, drop: 0 }, number = (n) => n.toLocaleString("en");
    for (const { choice } of decided.values()) counts[choice]++;
    const open = acceptable(), sum = (amount) => open.reduce((total, row) => total + amount(row), 0);
    const lost = sum((row) => 1 - row[WRONG]), right = sum((row) => row[RIGHT]), helps = right > lost;
    data.sites.forEach((_, site) => rate(site));
    at("count").textContent = `${number(shown.length)} of ${number(offered)} shown · decided: `
      + Object.entries(counts).map(([choice, n]) => `${number(n)} ${DONE[choice]}`).join(", ");
    at("accept").textContent = `Relabel ${number(open.length)} “wrong” as proposed`;
    at("accept").disabled = !helps;
    at("drop").textContent = `Drop ${number(open.length)} “wrong”`;
    at("drop").disabled = !open.length;
    at("gain").textContent = open.length ? `Of these ${number(open.length)} labels ${number(Math.round(lost))} are expected to be right, and `
      + `${number(Math.round(right))} of the proposed ones.` + (helps ? "" : " Relabelling them all would not help: drop them, or decide by hand.") : "";
    at("undo").disabled = !past.length;
    if (shown.length) list.setAttribute("aria-activedescendant", "row" + current);
    else list.removeAttribute("aria-activedescendant");
    detail();
  }

  function detail() {
    const row = data.rows[shown[current]];
    at("large").hidden = !row;
    if (!row || !at("large").clientWidth) return;
    paint(at("picture"), shown[current], at("picture").clientWidth);
    at("picture").setAttribute("aria-label", `Image ${row[SOURCE]}`);
    const facts = [["given", name(row[GIVEN])], ["proposed", `${name(row[PROPOSED])}, right with ${percent(row[RIGHT])}`],
      ["P(the given label is wrong)", percent(row[WRONG])], ["site", data.sites[row[SITE]][1]], ["source", row[SOURCE]]];
    at("facts").replaceChildren(...facts.flatMap(([key, value]) => [make("dt", "", key), make("dd", "", value)]));
  }

  function move(position) {
    current = Math.min(Math.max(position, 0), Math.max(shown.length - 1, 0));
    const top = current * height(), bottom = top + height();
    if (top < list.scrollTop) list.scrollTop = top;
    else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
    draw();
  }

  // ---- what the user does

  function pressed(event) {
    if (event.target.matches("select")) {
      if (event.key === "Escape" || event.key === "Enter") {
        event.preventDefault();
        list.focus();
      }
      return;
    }
    if ((event.ctrlKey || event.metaKey) && event.key === "z") {
      event.preventDefault();
      return undo();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(Math.floor(list.clientHeight / height()) - 1, 1);
    const moves = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page,
      Home: 0, End: shown.length - 1 };
    const choice = { k: "keep", r: "relabel", d: "drop" }[event.key.toLowerCase()];
    if (Object.hasOwn(moves, event.key)) move(moves[event.key]);
    else if (choice) decide(current, choice) && move(current + 1);
    else if (event.key.toLowerCase() === "u") undo();
    else if (event.key.toLowerCase() === "l") drawn.get(current)?.querySelector("select").focus();
    else return;
    event.preventDefault();
  }

  function clicked(event) {
    const element = event.target.closest(".row");
    if (!element) return;
    current = Number(element.dataset.position);
    const button = event.target.closest("button");
    if (!button) draw();
    else if (decide(current, button.dataset.do)) move(current + 1);
    if (!event.target.matches("select, option")) list.focus({ preventScroll: true });
  }

  // ---- the grid: the largest groups of a site's given -> proposed with the verdict wrong, each most suspect first

  const GROUPS = 12, EACH = 10, TILE = 44;

  function fillGrid() {
    const groups = new Map();
    suspects.forEach((row, i) => {
      const key = [row[SITE], row[GIVEN], row[PROPOSED]].join();
      if (row[VERDICT] !== 0) return;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(i);
    });
    const largest = [...groups.values()].sort((a, b) => b.length - a.length).slice(0, GROUPS);
    at("grid").append(...largest.map((rows) => {
      const group = make("div"), first = data.rows[rows[0]];
      const site = data.sites.length > 1 ? data.sites[first[SITE]][1] + ": " : "";
      const text = `${site}${name(first[GIVEN])} → ${name(first[PROPOSED])} (${rows.length.toLocaleString("en")})`;
      const tiles = rows.slice(0, EACH).map((i) => {
        const tile = makeButton("tile", "", i);
        paint(tile, i, TILE);
        tile.setAttribute("aria-label", `${data.rows[i][SOURCE]}, ${percent(data.rows[i][WRONG])}`);
        return tile;
      });
      group.append(makeButton("link", text, rows[0]), ...tiles);
      return group;
    }));
  }

  function makeButton(className, text, i) {
    const button = make("button", className, text);
    button.type = "button";
    button.addEventListener("click", () => {
      for (const id of ["view", "kind", "state"]) at(id).value = "";
      for (const [id, column] of [["site", SITE], ["given", GIVEN], ["proposed", PROPOSED], ["verdict", VERDICT]])
        at(id).value = data.rows[i][column];
      filter(true);
      move(shown.indexOf(i));
      list.scrollIntoView({ block: "nearest" });
      list.focus({ preventScroll: true });
    });
    return button;
  }

  function start() {
    const held = (site) => suspects.filter((row) => row[SITE] === site).length;
    options(at("site"), "all", data.sites.map(([, text], site) => [site, `${text} (${held(site)})`]));
    options(at("given"), "all", counted(GIVEN, name));
    options(at("proposed"), "all", counted(PROPOSED, name));
    options(at("verdict"), "all", counted(VERDICT, (verdict) => data.verdicts[verdict]));
    options(at("kind"), "all", counted(KIND, (kind) => data.kinds[kind - 1]).filter(([kind]) => kind));
    options(at("state"), "all", [["open", "undecided"], ["done", "decided"], ...Object.entries(DONE)]);
    for (const id of ["view", "site", "given", "proposed", "verdict", "kind", "state"]) at(id).addEventListener("change", () => filter());
    for (const button of document.querySelectorAll("[data-site]"))
      button.addEventListener("click", () => {
        at("site").value = button.dataset.site;
        filter(true);
        at("suspects").scrollIntoView();
        list.focus({ preventScroll: true });
      });
    for (const button of document.querySelectorAll("[data-random]"))
      button.addEventListener("click", () => {
        for (const id of ["given", "proposed", "verdict", "kind", "state"]) at(id).value = "";
        [at("view").value, at("site").value] = ["random", button.dataset.random];
        filter(true);
        at("suspects").scrollIntoView();
        list.focus({ preventScroll: true });
      });
    at("accept").addEventListener("click", () => decideAll("relabel"));
    at("drop").addEventListener("click", () => decideAll("drop"));
    at("undo").addEventListener("click", undo);
    at("save").addEventListener("click", save);
    at("load").addEventListener("click", () => at("file").click());
    at("file").addEventListener("change", async () => {
      await load(at("file").files[0]);
      at("file").value = ""; // so that the same file can be loaded again
    });
    list.addEventListener("keydown", pressed);
    list.addEventListener("click", clicked);
    list.addEventListener("change", (event) => {
      const position = Number(event.target.closest(".row").dataset.position), row = data.rows[shown[position]];
      wished.set(row[SAMPLE], Number(event.target.value));
      decide(position, "relabel", Number(event.target.value));
    });
    let waiting = false;
    list.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
      });
    });
    window.addEventListener("resize", () => { // a phone's address bar comes and goes: only another height starts anew
      const before = rowHeight;
      rowHeight = 0;
      height() === before ? draw() : filter(true);
    });
    window.addEventListener("beforeunload", (event) => {
      if (unsaved && !stored) event.preventDefault();
    });
    at("tool").hidden = false;
    fillGrid();
    restore();
    filter(true);
  }

  start();
})();
